"""Call collectives on test data, and check their results before they are timed (rank side).

Data are whole numbers small enough for their float32 sums to be exact in any order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from tuner.base.arrays import AnyArray, Int32Array
from tuner.core.collective import PROBE_ELEMENT_BYTES, Collective, Held
from tuner.runtime.staging import READ, WRITE, BufferAccess

PAGE_BYTES = 4096  # bytes
EMPTY_COUNT = 5  # elements of size 0
LATE_S = 1e-3  # seconds after all others that a rank enters a call to which it comes late
LATE_TAG = 1
MAX_OPERAND = 1000  # sums over 4096 ranks stay below 2^24, where float32 counts exactly


def page_aligned_ones(nbytes: int) -> NDArray[np.float32]:
    """Return an array of ones that begins at a page boundary, in touched memory."""
    room = np.empty(nbytes + PAGE_BYTES, np.uint8)
    start = -room.ctypes.data % PAGE_BYTES
    values = room[start : start + nbytes].view(np.float32)
    values[:] = 1.0
    return values


class CallBuffers(Protocol):
    """Buffers in one kind of memory, and how a collective is called on them.

    `comm` is a communicator of MPI, or an object of another library in its place.
    """

    def ones(self, nbytes: int) -> Any:
        """Return a float32 buffer of ones, for many calls."""

    def from_numpy(self, values: AnyArray) -> Any: ...

    def to_numpy(self, buffer: Any) -> AnyArray: ...

    def bind_collective(
        self,
        comm: Any,
        collective: Collective,
        *buffers: tuple[Any, BufferAccess],
        trailing_args: tuple[Any, ...],
    ) -> Callable[[], object]:
        """Return the call on these buffers, each with its access, and on operator and root."""


class HostBuffers:
    """Buffers in host memory; see `CallBuffers`."""

    def ones(self, nbytes: int) -> NDArray[np.float32]:
        """Return a page-aligned float32 buffer of ones."""
        return page_aligned_ones(nbytes)

    def from_numpy(self, values: AnyArray) -> AnyArray:
        return values

    def to_numpy(self, buffer: AnyArray) -> AnyArray:
        return buffer

    def bind_collective(
        self,
        comm: Any,
        collective: Collective,
        *buffers: tuple[Any, BufferAccess],
        trailing_args: tuple[Any, ...],
    ) -> Callable[[], object]:
        """Return the communicator's method bound to these buffers."""
        return partial(
            getattr(comm, collective.spec.mpi), *(buffer for buffer, _ in buffers), *trailing_args
        )


@dataclass(frozen=True)
class CollectiveRun:
    """A collective on `nbytes` bytes, as an application calls it.

    nbytes      of a rank's buffer; where every rank has a share, of all shares together
    """

    collective: Collective
    nbytes: int
    buffers: CallBuffers = field(default_factory=HostBuffers)

    def make_calls(self, comms: Sequence[Any]) -> list[Callable[[], object]]:
        """Return the call to time on each communicator, all on the same buffers, with root 0.

        With buffers of their own, algorithms would have different pages and evict one another's
        buffers from the caches, and so differ for reasons that are not theirs.
        """
        gives, takes = self._sizes(comms[0].size) if comms else (0, 0)
        send, receive = self.buffers.ones(gives), self.buffers.ones(takes)
        return [self._bind(comm, 0, send, receive) for comm in comms]

    def is_correct(self, comm: Any, seed: int) -> bool:
        """Return whether this rank gets the right result on fresh data; collective over `comm`.

        Rooted collectives are called with the first and with the last rank as root. Raises
        RuntimeError where the library (MPI's or NCCL's) refuses the algorithm for this call.
        """
        if not self.collective.has_data:
            call = self._bind(comm, 0, None, None)
            right = [waits_for_rank(comm, call, late) for late in (0, comm.size - 1)]
            return all(right)
        roots = (0, comm.size - 1) if self.collective.is_rooted else (0,)
        right = [self._is_correct_from(comm, seed, root) for root in roots]
        return all(right)

    def _sizes(self, p: int) -> tuple[int, int]:
        """Return the maximum bytes that a rank sends and receives."""
        spec, share = self.collective.spec, self.nbytes // p
        gives, takes = (
            share if held is Held.BLOCK else self.nbytes for held in (spec.before, spec.after)
        )
        return gives, takes

    def _bind(
        self, comm: Any, root: int, send_buffer: Any, receive_buffer: Any
    ) -> Callable[[], object]:
        """Return the call on these buffers; some ranks need only one of them."""
        at_root, name = comm.rank == root, self.collective
        if not name.has_data:
            return self.buffers.bind_collective(comm, name, trailing_args=())
        send, receive = (send_buffer, READ), (receive_buffer, WRITE)
        if name.has_one_buffer:
            return self.buffers.bind_collective(
                comm, name, send if at_root else receive, trailing_args=(root,)
            )
        if not name.gives(at_root):
            send = (None, READ)
        if not name.takes(at_root):
            receive = (None, WRITE)
        operator = (MPI.SUM,) if name.is_reduction else ()
        last = (*operator, root) if name.is_rooted else operator
        return self.buffers.bind_collective(comm, name, send, receive, trailing_args=last)

    def _is_correct_from(self, comm: Any, seed: int, root: int) -> bool:
        name, rank, p = self.collective, comm.rank, comm.size
        share = self.nbytes // PROBE_ELEMENT_BYTES // p
        mine = slice(rank * share, (rank + 1) * share)
        whole = _random_operands(self.nbytes // PROBE_ELEMENT_BYTES, seed, root)
        given = whole + np.float32(rank) if name.is_reduction else whole
        added = np.float32(p * (p - 1) // 2)
        expected = whole * np.float32(p) + added if name.is_reduction else whole
        if name.gives_in_scratch:
            given = whole + np.float32(rank)
            expected = (whole[mine] + np.arange(p, dtype=np.float32)[:, None]).reshape(-1)
        given = given[mine] if name.spec.before is Held.BLOCK else given
        expected = expected[mine] if name.spec.after is Held.BLOCK else expected
        send = self.buffers.from_numpy(given.copy())
        taken = self.buffers.from_numpy(np.full(len(expected), -1, np.float32))
        self._bind(comm, root, send, taken)()
        at_root = rank == root
        gets = name.takes(at_root) and not (name.has_one_buffer and at_root)
        return not gets or np.array_equal(self.buffers.to_numpy(taken), expected)


def waits_for_rank(comm: MPI.Comm, synchronise: Callable[[], object], late: int) -> bool:
    """Return whether this rank leaves a call only after rank `late` has entered it; collective.

    That rank enters LATE_S after it has heard of all others, of which each hears the time on its
    own clock: clocks of different hosts are not compared.
    """
    others = [rank for rank in range(comm.size) if rank != late]
    if comm.rank == late:
        for other in others:
            comm.recv(source=other, tag=LATE_TAG)
        time.sleep(LATE_S)
        synchronise()
        return True
    begun = time.monotonic()
    comm.send(None, late, tag=LATE_TAG)
    synchronise()
    return time.monotonic() - begun >= LATE_S


def call_on_zeros(comm: MPI.Comm, collective: Collective, nbytes: int, operator: MPI.Op) -> None:
    """Call with root 0 on a whole buffer of `nbytes` zeros, less what is not divisible by ranks.

    Raises MPI.Exception where the library refuses the call.
    """
    share = nbytes // comm.size if collective.has_blocks else nbytes
    integers = not collective.moves_blocks and share % PROBE_ELEMENT_BYTES == 0
    kind = np.dtype(np.int32 if integers else np.int8)
    arrays = [np.zeros(share * of // kind.itemsize, kind) for of in collective.blocks(comm.size)]
    buffers = arrays[: collective.n_buffers]
    getattr(comm, collective.spec.mpi)(*buffers, *((operator,) if collective.is_reduction else ()))


def call_without_data(comm: MPI.Comm, collective: Collective, *, commute: bool = True) -> None:
    """Call with a count of 0 and with a datatype of size 0, then wait for all ranks of `comm`.

    commute     whether the operator of a reduction commutes

    Raises MPI.Exception where the library refuses such a call.
    """
    datatype = MPI.INT.Create_contiguous(0).Commit()
    operator = MPI.Op.Create(matrix_product, commute=commute)
    arrays = np.zeros((2, EMPTY_COUNT * comm.size), np.int32)
    operators = (operator,) if collective.is_reduction else ()
    try:
        for count, kind in ((0, MPI.INT), (EMPTY_COUNT, datatype)):
            buffers = [[array, count, kind] for array in arrays]
            getattr(comm, collective.spec.mpi)(*buffers[: collective.n_buffers], *operators)
    finally:
        comm.Barrier()
        operator.Free()
        datatype.Free()


def _random_operands(count: int, seed: int, root: int) -> NDArray[np.float32]:
    """Return whole numbers that differ from call to call.

    Only some are drawn and then repeated, since drawing all of them takes long.
    """
    drawn = np.random.default_rng([seed, root]).integers(
        0, MAX_OPERAND, min(count, DISTINCT_OPERANDS)
    )
    return np.resize(drawn.astype(np.float32), count)


MODULUS = 10007
MATRICES_PER_BLOCK = 4096  # matrices whose products fit in the cache
# Operands of a rank, which then repeat: a prime, so that no share is another's.
DISTINCT_OPERANDS = 1021


def matrix_product(arriving: Any, inout: Any, _datatype: MPI.Datatype) -> None:
    """Set `inout = arriving x inout` for 2x2 integer matrices modulo a prime: not commutative."""
    left = np.frombuffer(arriving, np.int32).reshape(-1, 4)
    right = np.frombuffer(inout, np.int32).reshape(-1, 4)
    for first in range(0, len(right), MATRICES_PER_BLOCK):
        some = slice(first, first + MATRICES_PER_BLOCK)
        right[some] = _product(left[some], right[some])


def _product(left: Int32Array, right: Int32Array) -> Int32Array:
    """Return the products of matrices of shape (n, 4), stored row after row.

    It is written out because numpy's matrix product of integers is slow.
    """
    (a, b, c, d), (e, f, g, h) = left.T, right.T
    return np.stack([a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h], axis=1) % MODULUS


def preserves_operand_order(comm: MPI.Comm, matrices: int, seed: int) -> bool:
    """Return whether an Allreduce on `comm` combines operands in rank order, on this rank."""
    few = min(matrices, DISTINCT_OPERANDS)
    operands = [
        np.random.default_rng([seed, rank]).integers(0, MODULUS, (few, 4), np.int32)
        for rank in range(comm.size)
    ]
    given = np.resize(operands[comm.rank], (matrices, 4))
    datatype = MPI.INT32_T.Create_contiguous(4).Commit()
    operator = MPI.Op.Create(matrix_product, commute=False)
    received = np.zeros_like(given)
    comm.Allreduce([given, matrices, datatype], [received, matrices, datatype], operator)
    operator.Free()
    datatype.Free()
    return np.array_equal(received, np.resize(reduce(_product, operands), (matrices, 4)))
