"""Calls of the communicator carried out by one of our schedules.

What moves without being reduced is cut in bytes, because ranks may describe one signature by
different datatypes; what is reduced is cut in elements, whose datatype is the same on all ranks
(MPI 4.1, 6.9.1). Whatever is not ours (arguments that mpi4py refuses, operators that a datatype
lacks, counts that do not divide) goes to the library, which answers as it always does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from tuner.core.collective import Collective
from tuner.core.table import Choice
from tuner.runtime.buffers import Bytes, View, address_of, contiguous, in_place, whole
from tuner.runtime.compatibility import handle_of
from tuner.runtime.executor import Bound
from tuner.runtime.mpi_arguments import rank_of
from tuner.runtime.packing import Packed, packed
from tuner.runtime.schedule_cache import Bindings, Known, memory_at
from tuner.runtime.scratch import Spaces

Call = Callable[..., None]
Move = Callable[[], None]


class Scheduled:
    """One algorithm of ours on one communicator.

    comm        private: nobody else sends messages there
    library     the communicator's own method, for calls that are not ours
    spaces      of the kind of all buffers of the calls on this rank; other ranks may have another

    call        makes a call, as the communicator's method
    prepare     does all of a call that can fail on one rank alone, and returns what moves the data;
                None where the call is the library's
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        library: Call,
        collective: Collective,
        choice: Choice,
        spaces: Spaces,
    ) -> None:
        self._comm, self._library, self._memory = comm, library, spaces.memory
        self._rank, self._size = comm.rank, comm.size
        self._bindings = Bindings(comm, collective, choice, spaces)
        self._known, self._workspace = self._bindings.known, spaces.work.take
        self._copy = self._memory.copy
        self._valid: dict[tuple[int, int], bool] = {}
        self.prepare: Callable[..., Move | None] = getattr(self, f"_{collective.value}")
        known: dict[Collective, Call] = {
            Collective.BCAST: self._known_bcast,
            Collective.ALLREDUCE: self._known_allreduce,
        }
        self.call: Call = known.get(collective, self._carry_out)

    def release(self) -> None:
        """Free all requests."""
        self._bindings.release()

    def _carry_out(self, *arguments: Any) -> None:
        move = self.prepare(*arguments)
        if move is None:
            return self._library(*arguments)
        return move()

    def _known_bcast(self, buf: Any, root: int = 0) -> None:
        call = (_identity(buf), rank_of(root))
        if call in self._known:
            return self._known[call].bound.run()
        return self._carry_out(buf, root)

    def _known_allreduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        call = (_identity(sendbuf), _identity(recvbuf), handle_of(op), op.is_commutative)
        if call in self._known:
            known = self._known[call]
            if known.source is not None:
                known.bound.buffer[...] = known.source
            return known.bound.run(op, known.datatype)
        return self._carry_out(sendbuf, recvbuf, op)

    def _bcast(self, buf: Any, root: int = 0) -> Move | None:
        giver = rank_of(root)
        content = self._packed(buf, root=self._rank == giver)
        bound = self._movement(content, giver)
        if content is None or bound is None:
            return None

        def move() -> None:
            bound.run()
            self._remember((_identity(buf), giver), Known(bound, MPI.BYTE, None))
            content.unpack()

        return move

    def _allgather(self, sendbuf: Any, recvbuf: Any) -> Move | None:
        return self._gathered(sendbuf, recvbuf, 0)

    def _gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Move | None:
        taker = rank_of(root)
        if self._rank == taker:
            return self._gathered(sendbuf, recvbuf, taker)
        given = self._packed(sendbuf, root=True)
        everything = None if given is None else self._workspace(len(given.array) * self._size)
        bound = self._movement(everything, taker)
        if given is None or everything is None or bound is None:
            return None

        def move() -> None:
            self._copy(given.array, self._share(everything))
            bound.run()

        return move

    def _scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Move | None:
        giver = rank_of(root)
        stays = self._rank == giver and in_place(recvbuf)
        into = None if stays else self._packed(recvbuf, root=False)
        everything, given = None, None
        if self._rank == giver:
            given = self._packed(sendbuf, root=True, parts=self._size)
            everything = None if given is None else self._workspace(len(given.array))
        elif into is not None:
            everything = self._workspace(len(into.array) * self._size)
        bound = self._movement(everything, giver)
        if everything is None or bound is None or (into is None and not stays):
            return None

        def move() -> None:
            if given is not None:
                self._copy(given.array, everything)
            bound.run()
            if into is not None:
                self._copy(self._share(everything), into.array)
                self._wait()
                into.unpack()

        return move

    def _allreduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> Move | None:
        into = contiguous(recvbuf, writable=True, padded=True)
        given = into if in_place(sendbuf) else _operand(sendbuf)
        if into is None or given is None or not _alike(given, into):
            return None
        bound = self._reduction(into.flat, into, op, 0)
        if bound is None:
            return None
        source = None if given is into else memory_at(address_of(given.flat), len(given.flat))
        call = (_identity(sendbuf), _identity(recvbuf), handle_of(op), op.is_commutative)

        def move() -> None:
            if source is not None:
                self._copy(source, into.flat)
            bound.run(op, into.datatype)
            self._remember(call, Known(bound, into.datatype, source))

        return move

    def _reduce(
        self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, root: int = 0
    ) -> Move | None:
        taker = rank_of(root)
        if self._rank == taker:
            into = contiguous(recvbuf, writable=True, padded=True)
            given = into if in_place(sendbuf) else _operand(sendbuf)
        else:
            given = _operand(sendbuf)
            into = given
        if into is None or given is None or not _alike(given, into):
            return None
        content = into.flat if self._rank == taker else self._workspace(given.flat.nbytes)
        bound = self._reduction(content, given, op, taker)
        if bound is None:
            return None
        copied = given is not into or self._rank != taker

        def move() -> None:
            if copied:
                self._copy(given.flat, content)
            bound.run(op, given.datatype)

        return move

    def _reduce_scatter(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> Move | None:
        stays = in_place(sendbuf)
        into = contiguous(
            whole(recvbuf, self._size) if stays else recvbuf, writable=True, padded=True
        )
        given = into if stays else _operand(whole(sendbuf, self._size))
        if given is None or into is None or not _alike(given, into, 1 if stays else self._size):
            return None
        content = self._workspace(given.flat.nbytes)
        bound = self._reduction(content, given, op, 0)
        if bound is None:
            return None

        def move() -> None:
            self._copy(given.flat, content)
            bound.run(op, given.datatype)
            mine = self._share(content)
            self._copy(mine, into.flat[: len(mine)])
            self._wait()

        return move

    def _gathered(self, sendbuf: Any, recvbuf: Any, root: int) -> Move | None:
        """What every rank of an allgather does, and the root of a gather."""
        p, stays = self._size, in_place(sendbuf)
        into = self._packed(recvbuf, root=False, parts=p)
        given = self._packed(recvbuf if stays else sendbuf, root=True, parts=p if stays else 1)
        bound = self._movement(into, root)
        if (
            into is None
            or given is None
            or bound is None
            or (len(given.array) * (1 if stays else p) != len(into.array))
        ):
            return None
        own = into.array if stays else self._share(into.array)

        def move() -> None:
            if address_of(own) != address_of(given.array):
                self._copy(given.array, own)
            bound.run()
            into.unpack()

        return move

    def _movement(self, content: Packed | Bytes | None, root: int | None) -> Bound | None:
        """The schedule bound to these bytes; None where it does not apply."""
        if content is None:
            return None
        array = content.array if isinstance(content, Packed) else content
        return self._bindings.bound(array, len(array), 1, root)

    def _reduction(self, content: Bytes, given: View, op: MPI.Op, root: int | None) -> Bound | None:
        """The schedule bound to these elements; None where it does not apply."""
        if not self._suits(op, given.datatype):
            return None
        itemsize = given.flat.nbytes // max(given.count, 1)
        bound = self._bindings.bound(content, given.count, itemsize, root)
        if bound is None or op.is_commutative or bound.order_preserving:
            return bound
        return None

    def _suits(self, op: MPI.Op, datatype: MPI.Datatype) -> bool:
        """A predefined operator may lack a datatype, which the library must be the one to say."""
        if not op.is_predefined:
            return True
        key = (handle_of(op), handle_of(datatype))
        if key not in self._valid:
            self._valid[key] = _reduces(op, datatype)
        return self._valid[key]

    def _share(self, everything: Bytes) -> Bytes:
        """This rank's part of all ranks' bytes."""
        nbytes = len(everything) // self._size
        return everything[nbytes * self._rank :][:nbytes]

    def _wait(self) -> None:
        for wait in self._memory.waits:
            wait()

    def _remember(self, call: tuple[Any, ...], known: Known) -> None:
        """Plain arrays alone: what else there is may change and look the same."""
        if None not in call:
            self._bindings.remember(call, known)

    def _packed(self, spec: Any, *, root: bool, parts: int = 1) -> Packed | None:
        return packed(spec, self._comm, root=root, parts=parts, empty=self._memory.empty)


def _identity(buf: Any) -> tuple[Any, ...] | str | None:
    """All that decides how a plain array is treated; None for other arguments."""
    if type(buf) is np.ndarray:
        flags = buf.flags
        return (MPI.Get_address(buf), buf.shape, buf.dtype.str, flags.c_contiguous, flags.writeable)
    return "in place" if in_place(buf) else None


def _operand(spec: Any) -> View | None:
    return contiguous(spec, writable=False, padded=True)


def _alike(given: View, into: View, shares: int = 1) -> bool:
    """Whether the operand has the elements of so many results; what has not, mpi4py refuses."""
    return given.count == into.count * shares and given.datatype == into.datatype


def _reduces(op: MPI.Op, datatype: MPI.Datatype) -> bool:
    """Tried on one element."""
    one = np.zeros((2, max(datatype.extent, 1)), np.uint8)
    try:
        op.Reduce_local([one[0], 1, datatype], [one[1], 1, datatype])
    except MPI.Exception:
        return False
    return True
