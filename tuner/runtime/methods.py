"""The methods of a tuned communicator that make collective calls.

The action for a call depends only on what MPI requires to be equal on all ranks: the bytes of the
type signature, the root and the operator.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from mpi4py import MPI
from numpy import ndarray

from tuner.runtime import fast_path
from tuner.runtime.accesses import accessed_send_recv
from tuner.runtime.buffers import contiguous_view, is_in_place, nbytes_of
from tuner.runtime.cuda_support import cuda_device_or_none, device_of, is_cuda_aware
from tuner.runtime.device_pointers import NO_DEVICE, buffer_of
from tuner.runtime.dispatch import Dispatch
from tuner.runtime.dispatch_table import Action, DispatchTable
from tuner.runtime.mpi_arguments import is_commutative, root_rank
from tuner.runtime.staging import READ, UNUSED, WRITE, BufferAccess


class CollectiveMethods:
    """A mixin with the collective methods of a tuned communicator.

    The communicator has a dispatch table for each collective and kind of operators. Device buffers
    that the chosen algorithm cannot take go through pinned host memory; each rank decides this
    alone, and other ranks do not notice.
    """

    plain: MPI.Intracomm
    _dispatch: Dispatch | None
    _bcast_any: DispatchTable
    _reduce_any: DispatchTable
    _reduce_commutative: DispatchTable
    _allreduce_any: DispatchTable
    _allreduce_commutative: DispatchTable
    _reduce_scatter_any: DispatchTable
    _reduce_scatter_commutative: DispatchTable
    _allgather_any: DispatchTable
    _gather_any: DispatchTable
    _scatter_any: DispatchTable

    def Bcast(self, buf: Any, root: int = 0) -> None:
        """Broadcast as `Comm.Bcast` does."""
        if type(buf) is ndarray:
            self._bcast_any.action(buf.nbytes)(buf, root)
        else:
            access = READ if self.plain.rank == root_rank(root) else WRITE
            self._call("Bcast", self._bcast_any, nbytes_of(buf), ((buf, access),), root)

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        """Reduce to all ranks as `Comm.Allreduce` does."""
        ladder = self._allreduce_commutative if is_commutative(op) else self._allreduce_any
        if type(recvbuf) is ndarray and type(sendbuf) in fast_path.HOST_BUFFER_TYPES:
            ladder.action(recvbuf.nbytes)(sendbuf, recvbuf, op)
        else:
            self._call(
                "Allreduce", ladder, nbytes_of(recvbuf), accessed_send_recv(sendbuf, recvbuf), op
            )

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, root: int = 0) -> None:
        """Reduce to the root as `Comm.Reduce` does."""
        ladder = self._reduce_commutative if is_commutative(op) else self._reduce_any
        nbytes = nbytes_of(recvbuf if is_in_place(sendbuf) else sendbuf)
        buffers = accessed_send_recv(
            sendbuf, recvbuf, has_result=self.plain.rank == root_rank(root)
        )
        self._call("Reduce", ladder, nbytes, buffers, op, root)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        """Reduce and scatter as `Comm.Reduce_scatter_block` does."""
        reorders = is_commutative(op)
        ladder = self._reduce_scatter_commutative if reorders else self._reduce_scatter_any
        nbytes = nbytes_of(recvbuf if is_in_place(sendbuf) else sendbuf, self.plain.size)
        self._call("Reduce_scatter_block", ladder, nbytes, accessed_send_recv(sendbuf, recvbuf), op)

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """Gather to all ranks as `Comm.Allgather` does."""
        nbytes = self._total_nbytes(sendbuf, recvbuf)
        self._call("Allgather", self._allgather_any, nbytes, accessed_send_recv(sendbuf, recvbuf))

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Gather to the root as `Comm.Gather` does."""
        nbytes = self._total_nbytes(sendbuf, recvbuf)
        buffers = accessed_send_recv(
            sendbuf, recvbuf, has_result=self.plain.rank == root_rank(root)
        )
        self._call("Gather", self._gather_any, nbytes, buffers, root)

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Scatter from the root as `Comm.Scatter` does."""
        p, at_root = self.plain.size, self.plain.rank == root_rank(root)
        nbytes = nbytes_of(sendbuf, p) if at_root else nbytes_of(recvbuf, multiplier=p)
        buffers = (sendbuf, READ if at_root else UNUSED), (recvbuf, WRITE)
        self._call("Scatter", self._scatter_any, nbytes, buffers, root)

    def _total_nbytes(self, sendbuf: Any, recvbuf: Any) -> int | None:
        """Return the bytes of all ranks' data together, the same number on every rank."""
        p = self.plain.size
        return nbytes_of(recvbuf, p) if is_in_place(sendbuf) else nbytes_of(sendbuf, multiplier=p)

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
