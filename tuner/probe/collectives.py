"""Collectives as arms: called, and checked before they are timed (rank side).

Data are whole numbers small enough for their float32 sums to be exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from tuner.collective import Collective
from tuner.runtime.ladders import METHODS
from tuner.runtime.staging import READ, WRITE, Access

PAGE = 4096  # bytes
LARGEST = 1000  # sums over 4096 ranks stay below 2^24, where float32 counts exactly


def aligned(nbytes: int) -> NDArray[np.float32]:
    """Ones that begin with a page, in touched memory."""
    room = np.empty(nbytes + PAGE, np.uint8)
    start = -room.ctypes.data % PAGE
    values = room[start : start + nbytes].view(np.float32)
    values[:] = 1.0
    return values


class Buffers(Protocol):
    """Where the buffers of calls are, and how a call on them is made.

    What is called on (`comm`) is a communicator of MPI, or of whoever else makes the call.
    """

    def ones(self, nbytes: int) -> Any:
        """A buffer of float32, for many calls."""

    def put(self, values: NDArray[Any]) -> Any:
        """A buffer with these values."""

    def get(self, buffer: Any) -> NDArray[Any]:
        """The values of a buffer."""

    def bound(
        self, comm: Any, collective: Collective, *given: tuple[Any, Access], last: Any
    ) -> Callable[[], object]:
        """The call, given buffers with what it does to each, and its root or operator."""


class HostBuffers:
    """See Buffers."""

    def ones(self, nbytes: int) -> NDArray[np.float32]:
        """See Buffers."""
        return aligned(nbytes)

    def put(self, values: NDArray[Any]) -> NDArray[Any]:
        """See Buffers."""
        return values

    def get(self, buffer: NDArray[Any]) -> NDArray[Any]:
        """See Buffers."""
        return buffer

    def bound(
        self, comm: Any, collective: Collective, *given: tuple[Any, Access], last: Any
    ) -> Callable[[], object]:
        """See Buffers."""
        return partial(getattr(comm, METHODS[collective]), *(buffer for buffer, _ in given), last)


@dataclass(frozen=True)
class Call:
    """A collective on buffers of `nbytes` bytes, as an application makes it."""

    collective: Collective
    nbytes: int
    buffers: Buffers = field(default_factory=HostBuffers)

    def timed(self, comms: Sequence[Any]) -> list[Callable[[], object]]:
        """The call to time on each communicator, all on the same buffers.

        Buffers of its own would give every algorithm other pages, and all of them together would
        push one another out of the caches: differences that no algorithm makes.
        """
        send, receive = self.buffers.ones(self.nbytes), self.buffers.ones(self.nbytes)
        if self.collective is Collective.BCAST:
            return [self._broadcast(comm, send, 0) for comm in comms]
        return [self._sum(comm, send, receive) for comm in comms]

    def correct(self, comm: Any, seed: int) -> bool:
        """Whether this rank gets the right result on fresh data; collective over `comm`."""
        try:
            if self.collective is Collective.BCAST:
                first = self._bcast(comm, seed, 0)
                return self._bcast(comm, seed, comm.size - 1) and first
            return self._allreduce(comm, seed)
        except RuntimeError:  # the library, MPI's or NCCL's, refuses the algorithm for this call
            return False

    def _broadcast(self, comm: Any, buffer: Any, root: int) -> Callable[[], object]:
        access = READ if comm.rank == root else WRITE
        return self.buffers.bound(comm, self.collective, (buffer, access), last=root)

    def _sum(self, comm: Any, send: Any, receive: Any) -> Callable[[], object]:
        given = (send, READ), (receive, WRITE)
        return self.buffers.bound(comm, self.collective, *given, last=MPI.SUM)

    def _bcast(self, comm: Any, seed: int, root: int) -> bool:
        expected = np.random.default_rng([seed, root]).integers(0, 256, self.nbytes, np.uint8)
        buffer = self.buffers.put(expected.copy() if comm.rank == root else ~expected)
        self._broadcast(comm, buffer, root)()
        return np.array_equal(self.buffers.get(buffer), expected)

    def _allreduce(self, comm: Any, seed: int) -> bool:
        shared = np.random.default_rng(seed).integers(0, LARGEST, self.nbytes // 4)
        given = (shared + comm.rank).astype(np.float32)
        received = self.buffers.put(np.full_like(given, -1))
        self._sum(comm, self.buffers.put(given), received)()
        ranks = comm.size
        expected = shared * ranks + ranks * (ranks - 1) // 2
        return np.array_equal(self.buffers.get(received), expected.astype(np.float32))


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
