"""The communicator whose collectives follow a tuning table.

    from tuner.runtime import tune
    comm = tune(MPI.COMM_WORLD)

It is a communicator of mpi4py like the one it was made from, and every method that is not named
here is mpi4py's own. All ranks have the same table, so all choose alike; where the table says
nothing, and wherever anything is in doubt, the library's own collective runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mpi4py import MPI
from numpy import ndarray

from tuner.collective import Collective
from tuner.errors import InputError, quoted
from tuner.locality import CUDA, HOST
from tuner.runtime import shortcuts
from tuner.runtime.agreement import Agreed, agree
from tuner.runtime.arguments import commutative, rank_of
from tuner.runtime.buffers import in_place, nbytes_of
from tuner.runtime.devices import buffer_of, memory_of, present
from tuner.runtime.feedback import Ring, post
from tuner.runtime.ladders import METHODS, Action, Ladder
from tuner.runtime.objects import as_kind, leave
from tuner.runtime.request import here
from tuner.runtime.staging import READ, WRITE, Access
from tuner.table import OPERATORS, TuningTable

if TYPE_CHECKING:
    from tuner.runtime.following import Following

NOTHING = Agreed(None, "", "", None, None)
DERIVING = (  # what makes a communicator of this one; it follows the same table
    "Dup", "Dup_with_info", "Clone", "Split", "Split_type", "Create", "Create_group", "Create_cart",
    "Create_graph", "Create_dist_graph", "Create_dist_graph_adjacent", "Sub",
)  # fmt: skip


def tune(
    comm: MPI.Comm,
    table: TuningTable | Path | str | None = None,
    *,
    service: str | None = None,
    cluster: str | None = None,
    token: str | None = None,
    memory: str = HOST,
    feedback: bool | None = None,
) -> Any:
    """A communicator like `comm` that follows a table; collective over `comm`.

    table       or its file; without it TUNER_TABLE
    service     base URL, cluster and token of a service to ask; without them TUNER_SERVICE,
                TUNER_CLUSTER and TUNER_TOKEN
    memory      `host`, or `cuda` to follow the rules for device buffers; rank 0's counts
    feedback    whether `finalize` tells the service how long calls took (TUNER_FEEDBACK=1)

    An intercommunicator is returned as it is: its collectives are the library's. No table, or one
    that some rank cannot use, leaves every call to the library, said in one line of the log. Raises
    InputError on all ranks for an unknown kind of memory, and for what is no communicator.
    """
    if not isinstance(comm, MPI.Comm):
        raise InputError(f"tune() takes a communicator, not {quoted(comm)}")
    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        return comm
    plain = comm.plain if isinstance(comm, Tuned) else comm
    source = partial(
        agree, table=table, service=service, cluster=cluster, token=token, directory=here()
    )
    agreed = source(plain)
    wanted = os.environ.get("TUNER_FEEDBACK", "") not in ("", "0") if feedback is None else feedback
    memory, wanted = plain.bcast((memory, wanted))
    if memory not in (HOST, CUDA):
        raise InputError(f"memory is {HOST!r} or {CUDA!r}, not {quoted(memory)}")
    made = _tuned(plain, source, agreed, memory, Ring() if wanted else None)
    made.follow().announce(agreed.table)
    return made


class Tuned:
    """What a tuned communicator does differently; mixed into mpi4py's own class.

    Device buffers that the chosen algorithm cannot take as they are go through pinned host memory:
    the rank's own affair, which other ranks do not notice.
    """

    plain: MPI.Intracomm  # the same communicator without a table
    _kind: type[MPI.Intracomm]  # what it was before it was tuned
    _source: Callable[[MPI.Intracomm], Agreed] = staticmethod(lambda _: NOTHING)
    _agreed = NOTHING
    _memory = HOST
    _ring: Ring | None = None
    _following: Following | None = None

    @property
    def table(self) -> TuningTable | None:
        """The table that is followed; None when every call is the library's own."""
        return self._agreed.table

    def follow(self) -> Following:
        """Make everything ready, which else the first call does; collective."""
        from tuner.runtime.following import Following  # half of all that is to be imported

        self._forget()
        following = Following(self.plain, self._agreed.table, self._memory, self._ring)
        ladders = {(c, op): following.ladder(c, op) for c in METHODS for op in OPERATORS}
        self.__dict__.update({_attribute(*key): ladder for key, ladder in ladders.items()})
        self._following = following
        if self._ring is None and type(self) is _CLASSES.get(self._kind):  # not a program's class
            general = partial(Tuned.Bcast, self), partial(Tuned.Allreduce, self)
            self.__dict__.update(shortcuts.methods(self.plain, ladders, *general))
        return following

    def refresh(self) -> None:
        """Get the table again and follow what is found; collective.

        Communicators that were derived from this one before keep what they have. What was
        recorded is posted when there is another table.
        """
        self._forget()
        before, self._agreed = self._agreed, self._source(self.plain)
        if self._ring is not None and self._agreed.version != before.version:
            post(self.plain, self._ring, before)  # those times say nothing of another table
            self._ring = Ring()
        self.follow().announce(self._agreed.table)

    def finalize(self) -> None:
        """Post what was recorded and leave all further calls to the library; collective.

        What these ranks recorded on communicators that one was derived from the other is posted by
        whichever is finalized first.
        """
        if self._ring is not None:
            post(self.plain, self._ring, self._agreed)
        self._agreed, self._ring = NOTHING, None
        self.follow()

    def Free(self) -> None:
        """As `Comm.Free`; what belongs to the table is freed first."""
        self._end("Free")

    def Disconnect(self) -> None:
        """As `Comm.Disconnect`; what belongs to the table is freed first."""
        self._end("Disconnect")

    def _end(self, end: str) -> None:
        self._forget()
        getattr(self.plain, end)()  # the object whose methods a program may have kept
        leave(cast(MPI.Comm, self))
        self._agreed = NOTHING

    def _forget(self) -> None:
        for name in (*_LADDERS, *METHODS.values()):
            self.__dict__.pop(name, None)
        if self._following is not None:
            self._following.release()
            self._following = None

    def __reduce__(self) -> Any:
        """Travels as the plain communicator: a table is followed where `tune` was called."""
        return type(self.plain), (self.plain,)

    def Bcast(self, buf: Any, root: int = 0) -> None:
        """As `Comm.Bcast`."""
        if type(buf) is ndarray:
            self._bcast_any.action(buf.nbytes)(buf, root)
        else:
            access = READ if self.plain.rank == rank_of(root) else WRITE
            self._call("Bcast", self._bcast_any, nbytes_of(buf), ((buf, access),), root)

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        """As `Comm.Allreduce`."""
        ladder = self._allreduce_commutative if commutative(op) else self._allreduce_any
        if type(recvbuf) is ndarray and type(sendbuf) in shortcuts.PLAIN:
            ladder.action(recvbuf.nbytes)(sendbuf, recvbuf, op)
        else:
            self._call("Allreduce", ladder, nbytes_of(recvbuf), _both(sendbuf, recvbuf), op)

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, root: int = 0) -> None:
        """As `Comm.Reduce`."""
        ladder = self._reduce_commutative if commutative(op) else self._reduce_any
        nbytes = nbytes_of(recvbuf if in_place(sendbuf) else sendbuf)
        self._call("Reduce", ladder, nbytes, _both(sendbuf, recvbuf), op, root)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        """As `Comm.Reduce_scatter_block`."""
        reorders = commutative(op)
        ladder = self._reduce_scatter_commutative if reorders else self._reduce_scatter_any
        nbytes = nbytes_of(recvbuf if in_place(sendbuf) else sendbuf, self.plain.size)
        self._call("Reduce_scatter_block", ladder, nbytes, _both(sendbuf, recvbuf), op)

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """As `Comm.Allgather`."""
        nbytes = self._gathered(sendbuf, recvbuf)
        self._call("Allgather", self._allgather_any, nbytes, _both(sendbuf, recvbuf))

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """As `Comm.Gather`."""
        nbytes = self._gathered(sendbuf, recvbuf)
        self._call("Gather", self._gather_any, nbytes, _both(sendbuf, recvbuf), root)

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """As `Comm.Scatter`."""
        p, at_root = self.plain.size, self.plain.rank == rank_of(root)
        nbytes = nbytes_of(sendbuf, p) if at_root else nbytes_of(recvbuf, times=p)
        self._call("Scatter", self._scatter_any, nbytes, _both(sendbuf, recvbuf), root)

    def _gathered(self, sendbuf: Any, recvbuf: Any) -> int | None:
        """Bytes of all ranks' data together, the same number on all of them."""
        p = self.plain.size
        return nbytes_of(recvbuf, p) if in_place(sendbuf) else nbytes_of(sendbuf, times=p)

    def _call(
        self, method: str, ladder: Ladder, nbytes: int | None,
        buffers: tuple[tuple[Any, Access], ...], *others: Any,
    ) -> None:  # fmt: skip
        """A call whose buffers may be on a device; without a size, mpi4py is to refuse it."""
        specs = [spec for spec, _ in buffers]
        if nbytes is None:  # no rule: this rank's would not be that of the others
            return cast(Action, getattr(self.plain, method))(*specs, *others)
        on_host = [spec for spec in specs if memory_of(spec) == HOST]
        if len(on_host) == len(specs):
            return ladder.action(nbytes)(*specs, *others)
        direct = ladder.device_action(nbytes, mixed=any(map(nbytes_of, on_host)))
        if direct is not None:
            if (device := present()) is not None:
                device.settle(*map(buffer_of, specs))  # MPI knows nothing of streams
            return direct(*specs, *others)
        act, following = ladder.action(nbytes), cast("Following", self._following)
        return following.device_memory.staging(lambda *host: act(*host, *others), *buffers)

    def __getattr__(self, name: str) -> Any:
        """The ladders of a derived communicator, asked for by its first call.

        Also the plain one of a communicator that mpi4py made by our class (`Idup`, or
        `type(comm)(comm)`): there the library decides.
        """
        if name == "plain":
            self.plain = as_kind(self._kind, cast(MPI.Comm, self))
        elif name in _LADDERS:
            self.follow()
        else:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self, name)


def _both(sendbuf: Any, recvbuf: Any) -> tuple[tuple[Any, Access], tuple[Any, Access]]:
    """What is done with each: in place, the receive buffer is read as well."""
    return (sendbuf, READ), (recvbuf, READ | WRITE if in_place(sendbuf) else WRITE)


def _attribute(collective: Collective, operators: str) -> str:
    return f"_{collective.value}_{operators}"


_CLASSES: dict[type[MPI.Intracomm], type[Any]] = {}
_LADDERS = {_attribute(collective, operators) for collective in METHODS for operators in OPERATORS}


def _tuned_class(kind: type[MPI.Intracomm]) -> type[Any]:
    """`kind` of communicator with our methods before its own; made once."""
    if kind not in _CLASSES:
        derive = {name: _deriving(name) for name in DERIVING if hasattr(kind, name)}
        body = {"__doc__": Tuned.__doc__, "_kind": kind, **derive}
        _CLASSES[kind] = type(f"Tuned{kind.__name__}", (Tuned, kind), body)
    return _CLASSES[kind]


def _deriving(name: str) -> Callable[..., Any]:
    def derive(self: Tuned, *arguments: Any, **named: Any) -> Any:
        made = getattr(self.plain, name)(*arguments, **named)
        if not isinstance(made, MPI.Intracomm) or made == MPI.COMM_NULL:
            return made
        return _tuned(made, self._source, self._agreed, self._memory, self._ring)

    derive.__name__ = name
    derive.__doc__ = f"As `{name}` of mpi4py; the communicator it makes follows the same table."
    return derive


def _tuned(
    plain: MPI.Intracomm,
    source: Callable[[MPI.Intracomm], Agreed],
    agreed: Agreed,
    memory: str,
    ring: Ring | None,
) -> Any:
    made = as_kind(_tuned_class(type(plain)), plain)
    made.__dict__.update(getattr(plain, "__dict__", {}))  # what a program's class keeps there
    made.plain, made._source, made._agreed = plain, source, agreed
    made._memory, made._ring = memory, ring
    return made
