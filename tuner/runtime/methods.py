"""The methods of a tuned communicator that make collective calls.

The action for a call depends only on what MPI requires to be equal on all ranks: the bytes of the
type signature, the root and the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from mpi4py import MPI
from numpy import ndarray

from tuner.core.collective import PROBE_ELEMENT_BYTES, Collective
from tuner.core.table import OPERATORS
from tuner.runtime import fast_path
from tuner.runtime.accesses import TUNED_COLLECTIVES, roles_of
from tuner.runtime.buffers import contiguous_view, nbytes_of
from tuner.runtime.cuda_support import cuda_device_or_none, device_of, is_cuda_aware
from tuner.runtime.device_pointers import NO_DEVICE, buffer_of
from tuner.runtime.dispatch import Dispatch
from tuner.runtime.dispatch_table import Action, DispatchTable
from tuner.runtime.mpi_arguments import is_commutative, root_rank
from tuner.runtime.staging import READ, WRITE, BufferAccess


class CollectiveMethods:
    """A mixin with the collective methods of a tuned communicator.

    The communicator has a dispatch table for each collective and kind of operators. Device buffers
    that the chosen algorithm cannot take go through pinned host memory; each rank decides this
    alone, and other ranks do not notice.
    """

    plain: MPI.Intracomm
    _dispatch: Dispatch | None
    _bcast_any: DispatchTable
    _allreduce_any: DispatchTable
    _allreduce_commutative: DispatchTable

    def Bcast(self, buf: Any, root: int = 0) -> None:
        if type(buf) is ndarray:
            self._bcast_any.action(buf.nbytes)(buf, root)
        else:
            access = READ if self.plain.rank == root_rank(root) else WRITE
            self._call("Bcast", self._bcast_any, nbytes_of(buf), ((buf, access),), root)

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        table = self._allreduce_commutative if is_commutative(op) else self._allreduce_any
        if type(recvbuf) is ndarray and type(sendbuf) in fast_path.HOST_BUFFER_TYPES:
            table.action(recvbuf.nbytes)(sendbuf, recvbuf, op)
        else:
            buffers = roles_of(Collective.ALLREDUCE).accesses(False, sendbuf, recvbuf)
            self._call("Allreduce", table, nbytes_of(recvbuf), buffers, op)

    def _call(
        self,
        method: str,
        table: DispatchTable,
        nbytes: int | None,
        buffers: tuple[tuple[Any, BufferAccess], ...],
        *others: Any,
    ) -> None:
        """Make a call whose buffers may be on a device.

        nbytes      size for the dispatch table; None for arguments that mpi4py refuses, which go
                    to the library's method so that it raises the error
        buffers     buffer arguments with what the call does with them
        others      remaining arguments
        """
        specs = [spec for spec, _ in buffers]
        if nbytes is None:  # without a size, the rules of the ranks could differ
            return cast(Action, getattr(self.plain, method))(*specs, *others)
        used = [(spec, device_of(spec)) for spec, access in buffers if access]
        if all(number == NO_DEVICE for _, number in used):
            return table.action(nbytes)(*specs, *others)
        device, direct = cuda_device_or_none(), None
        near = {NO_DEVICE} if device is None else {NO_DEVICE, device.number}
        if device is None or (near.issuperset(n for _, n in used) and _is_reachable_by_mpi(used)):
            mixed = any(nbytes_of(spec) for spec, number in used if number == NO_DEVICE)
            direct = table.device_action(nbytes, mixed=mixed)
        if direct is not None:
            if device is not None:  # MPI does not wait for streams
                device.synchronise_buffers(*(buffer_of(spec) for spec, _ in used))
            return direct(*specs, *others)
        act, dispatch = table.action(nbytes), cast(Dispatch, self._dispatch)
        if device is None and dispatch.leaves_to_library(table, nbytes, method):
            return act(
                *specs, *others
            )  # without CuPy nothing can be copied: the library may take them
        return dispatch.staging(lambda *host: act(*host, *others), *buffers)


def _is_reachable_by_mpi(used: Iterable[tuple[Any, int]]) -> bool:
    """Return whether MPI can take these buffers as they are.

    This applies where its messages take device memory. MPI packs buffers with gaps by its own
    code, which may reach host memory only.

    used    buffer arguments, and the number of the device that each is on
    """
    return is_cuda_aware() or all(
        contiguous_view(spec, writable=False) is not None
        for spec, number in used
        if number != NO_DEVICE
    )


def table_attribute(collective: Collective, operators: str) -> str:
    """Return the attribute that holds a dispatch table of a collective."""
    return f"_{collective.value}_{operators}"


def _method_of(collective: Collective, name: str) -> Callable[..., None]:
    """Return the method of a collective, with name and parameters of mpi4py's."""
    make = _method_with_buffers if collective.has_data else _method_without_buffers
    made = make(collective)
    made.__name__, made.__qualname__ = name, f"CollectiveMethods.{name}"
    made.__doc__ = f"Make the call as `Comm.{name}` does."
    return made


def _method_without_buffers(collective: Collective) -> Callable[..., None]:
    """Return the method of a collective without buffers."""
    name, attribute = collective.spec.mpi, table_attribute(collective, OPERATORS[0])

    def synchronise(self: Any) -> None:
        self._call(name, getattr(self, attribute), PROBE_ELEMENT_BYTES, ())

    return synchronise


def _method_with_buffers(collective: Collective) -> Callable[..., None]:
    """Return the method of a collective with two buffers."""
    name, roles, reduces = collective.spec.mpi, roles_of(collective), collective.is_reduction
    for_any, for_commutative = (table_attribute(collective, kind) for kind in OPERATORS)

    def follow(comm: Any, send: Any, receive: Any, *others: Any) -> None:
        plain = comm.plain
        reorders = reduces and is_commutative(others[0])
        table = getattr(comm, for_commutative if reorders else for_any)
        at_root = roles.is_rooted and plain.rank == root_rank(others[-1])
        nbytes = roles.nbytes(at_root, plain.size if roles.has_blocks else 1, send, receive)
        comm._call(name, table, nbytes, roles.accesses(at_root, send, receive), *others)

    def move(self: Any, sendbuf: Any, recvbuf: Any) -> None:
        follow(self, sendbuf, recvbuf)

    def move_rooted(self: Any, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        follow(self, sendbuf, recvbuf, root)

    def reduce(self: Any, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        follow(self, sendbuf, recvbuf, op)

    def reduce_rooted(
        self: Any, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, root: int = 0
    ) -> None:
        follow(self, sendbuf, recvbuf, op, root)

    methods = (move, move_rooted), (reduce, reduce_rooted)
    return methods[collective.is_reduction][collective.is_rooted]


for _collective in TUNED_COLLECTIVES:
    for _name in _collective.methods:
        if not hasattr(CollectiveMethods, _name):
            setattr(CollectiveMethods, _name, _method_of(_collective, _name))
