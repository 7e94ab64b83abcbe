"""The MPI library's own collectives as arms: called, and checked before they are timed (rank side).

Data are whole numbers small enough for their float32 sums to be exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from tuner.collective import Collective

PAGE = 4096  # bytes
LARGEST = 1000  # sums over 4096 ranks stay below 2^24, where float32 counts exactly


def aligned(nbytes: int) -> NDArray[np.float32]:
    """Ones that begin with a page, in touched memory."""
    room = np.empty(nbytes + PAGE, np.uint8)
    start = -room.ctypes.data % PAGE
    values = room[start : start + nbytes].view(np.float32)
    values[:] = 1.0
    return values


@dataclass(frozen=True)
class Call:
    """A collective on buffers of `nbytes` bytes, as an application makes it."""

    collective: Collective
    nbytes: int

    def timed(self, comms: Sequence[MPI.Comm]) -> list[Callable[[], object]]:
        """The call to time on each communicator, all on the same buffers.

        Buffers of its own would give every algorithm other pages, and all of them together would
        push one another out of the caches: differences that no algorithm makes.
        """
        send, receive = aligned(self.nbytes), aligned(self.nbytes)
        if self.collective is Collective.BCAST:
            return [partial(comm.Bcast, send, 0) for comm in comms]
        return [partial(comm.Allreduce, send, receive, MPI.SUM) for comm in comms]

    def correct(self, comm: MPI.Comm, seed: int) -> bool:
        """Whether this rank gets the right result on fresh data; collective over `comm`."""
        try:
            if self.collective is Collective.BCAST:
                first = self._bcast(comm, seed, 0)
                return self._bcast(comm, seed, comm.size - 1) and first
            return self._allreduce(comm, seed)
        except MPI.Exception:  # the library refuses the algorithm for this call
            return False

    def _bcast(self, comm: MPI.Comm, seed: int, root: int) -> bool:
        expected = np.random.default_rng([seed, root]).integers(0, 256, self.nbytes, np.uint8)
        buffer = expected.copy() if comm.rank == root else ~expected
        comm.Bcast(buffer, root)
        return np.array_equal(buffer, expected)

    def _allreduce(self, comm: MPI.Comm, seed: int) -> bool:
        shared = np.random.default_rng(seed).integers(0, LARGEST, self.nbytes // 4)
        given = (shared + comm.rank).astype(np.float32)
        received = np.full_like(given, -1)
        comm.Allreduce(given, received, MPI.SUM)
        ranks = comm.size
        expected = shared * ranks + ranks * (ranks - 1) // 2
        return np.array_equal(received, expected.astype(np.float32))


MODULUS = 10007


def matrix_product(arriving: Any, inout: Any, _datatype: MPI.Datatype) -> None:
    """`inout = arriving x inout` for 2x2 integer matrices modulo a prime: does not commute."""
    left = np.frombuffer(arriving, np.int32).reshape(-1, 2, 2).astype(np.int64)
    right = np.frombuffer(inout, np.int32).reshape(-1, 2, 2)
    right[:] = (left @ right) % MODULUS


def keeps_order(comm: MPI.Comm, matrices: int, seed: int) -> bool:
    """Whether this rank gets operands combined in rank order by an Allreduce on `comm`."""
    given = [
        np.random.default_rng([seed, rank]).integers(0, MODULUS, (matrices, 2, 2)).astype(np.int32)
        for rank in range(comm.size)
    ]
    expected = given[0].astype(np.int64)
    for operand in given[1:]:
        expected = (expected @ operand) % MODULUS
    datatype = MPI.INT32_T.Create_contiguous(4).Commit()
    operator = MPI.Op.Create(matrix_product, commute=False)
    received = np.zeros_like(given[0])
    comm.Allreduce([given[comm.rank], matrices, datatype], [received, matrices, datatype], operator)
    operator.Free()
    datatype.Free()
    return np.array_equal(received, expected)
