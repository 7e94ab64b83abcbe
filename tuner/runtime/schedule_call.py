"""Calls of the communicator that run one of our schedules.

Data that is moved but not reduced is divided in bytes, because ranks may describe one signature by
different datatypes. Data that is reduced is divided in elements, whose datatype is the same on all
ranks (MPI 4.1, 6.9.1). Calls that a schedule cannot make (arguments that mpi4py refuses, operators
that are not defined for a datatype, counts that are not divisible) go to the library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from tuner.core.collective import Collective
from tuner.core.table import AlgorithmConfig
from tuner.runtime.buffers import (
    BufferView,
    ByteArray,
    address_of,
    contiguous_view,
    is_in_place,
    spec_of_all_ranks,
)
from tuner.runtime.compatibility import handle_of
from tuner.runtime.executor import PersistentSchedule
from tuner.runtime.mpi_arguments import root_rank
from tuner.runtime.packing import PackedBuffer, pack_buffer
from tuner.runtime.schedule_cache import CachedCall, ScheduleCache, memory_at
from tuner.runtime.scratch import ScratchPool

Action = Callable[..., None]
Move = Callable[[], None]


class ScheduleCall:
    """One of our algorithms on one communicator.

    comm            private communicator, without messages of others
    library         the communicator's own method, for calls that the schedule cannot make
    scratch_pool    memory of the same kind as this rank's buffers; other ranks may use another kind

    call            makes a call; takes the arguments of the communicator's method
    prepare         does the part of a call that can fail on one rank alone and returns a function
                    that moves the data; None where the library must make the call
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        library: Action,
        collective: Collective,
        choice: AlgorithmConfig,
        scratch_pool: ScratchPool,
    ) -> None:
        self._comm, self._library, self._memory = comm, library, scratch_pool.memory
        self._rank, self._size = comm.rank, comm.size
        self._cache = ScheduleCache(comm, collective, choice, scratch_pool)
        self._cached_calls, self._workspace = self._cache.calls, scratch_pool.workspace.reserve
        self._copy = self._memory.copy
        self._valid: dict[tuple[int, int], bool] = {}
        self.prepare: Callable[..., Move | None] = getattr(self, f"_{collective.value}")
        known: dict[Collective, Action] = {
            Collective.BCAST: self._cached_bcast,
            Collective.ALLREDUCE: self._cached_allreduce,
        }
        self.call: Action = known.get(collective, self._prepare_and_run)

    def release(self) -> None:
        """Free all requests."""
        self._cache.release()

    def _prepare_and_run(self, *arguments: Any) -> None:
        move = self.prepare(*arguments)
        if move is None:
            return self._library(*arguments)
        return move()

    def _cached_bcast(self, buf: Any, root: int = 0) -> None:
        call = (_buffer_key(buf), root_rank(root))
        if call in self._cached_calls:
            return self._cached_calls[call].schedule.run()
        return self._prepare_and_run(buf, root)

    def _cached_allreduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> None:
        call = (_buffer_key(sendbuf), _buffer_key(recvbuf), handle_of(op), op.is_commutative)
        if call in self._cached_calls:
            known = self._cached_calls[call]
            if known.source is not None:
                known.schedule.buffer[...] = known.source
            return known.schedule.run(op, known.datatype)
        return self._prepare_and_run(sendbuf, recvbuf, op)

    def _bcast(self, buf: Any, root: int = 0) -> Move | None:
        giver = root_rank(root)
        content = self._pack(buf, is_source=self._rank == giver)
        bound = self._bind_bytes(content, giver)
        if content is None or bound is None:
            return None

        def move() -> None:
            bound.run()
            self._store_call((_buffer_key(buf), giver), CachedCall(bound, MPI.BYTE, None))
            content.unpack()

        return move

    def _allgather(self, sendbuf: Any, recvbuf: Any) -> Move | None:
        return self._prepare_gather(sendbuf, recvbuf, 0)

    def _gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Move | None:
        taker = root_rank(root)
        if self._rank == taker:
            return self._prepare_gather(sendbuf, recvbuf, taker)
        given = self._pack(sendbuf, is_source=True)
        everything = None if given is None else self._workspace(len(given.array) * self._size)
        bound = self._bind_bytes(everything, taker)
        if given is None or everything is None or bound is None:
            return None

        def move() -> None:
            self._copy(given.array, self._own_block(everything))
            bound.run()

        return move

    def _scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Move | None:
        giver = root_rank(root)
        stays = self._rank == giver and is_in_place(recvbuf)
        into = None if stays else self._pack(recvbuf, is_source=False)
        everything, given = None, None
        if self._rank == giver:
            given = self._pack(sendbuf, is_source=True, blocks=self._size)
            everything = None if given is None else self._workspace(len(given.array))
        elif into is not None:
            everything = self._workspace(len(into.array) * self._size)
        bound = self._bind_bytes(everything, giver)
        if everything is None or bound is None or (into is None and not stays):
            return None

        def move() -> None:
            if given is not None:
                self._copy(given.array, everything)
            bound.run()
            if into is not None:
                self._copy(self._own_block(everything), into.array)
                self._wait_for_copies()
                into.unpack()

        return move

    def _allreduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> Move | None:
        into = contiguous_view(recvbuf, writable=True, allow_padding=True)
        given = into if is_in_place(sendbuf) else _operand(sendbuf)
        if into is None or given is None or not _match(given, into):
            return None
        bound = self._bind_elements(into.flat, into, op, 0)
        if bound is None:
            return None
        source = None if given is into else memory_at(address_of(given.flat), len(given.flat))
        call = (_buffer_key(sendbuf), _buffer_key(recvbuf), handle_of(op), op.is_commutative)

        def move() -> None:
            if source is not None:
                self._copy(source, into.flat)
            bound.run(op, into.datatype)
            self._store_call(call, CachedCall(bound, into.datatype, source))

        return move

    def _reduce(
        self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, root: int = 0
    ) -> Move | None:
        taker = root_rank(root)
        if self._rank == taker:
            into = contiguous_view(recvbuf, writable=True, allow_padding=True)
            given = into if is_in_place(sendbuf) else _operand(sendbuf)
        else:
            given = _operand(sendbuf)
            into = given
        if into is None or given is None or not _match(given, into):
            return None
        content = into.flat if self._rank == taker else self._workspace(given.flat.nbytes)
        bound = self._bind_elements(content, given, op, taker)
        if bound is None:
            return None
        copied = given is not into or self._rank != taker

        def move() -> None:
            if copied:
                self._copy(given.flat, content)
            bound.run(op, given.datatype)

        return move

    def _reduce_scatter(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> Move | None:
        stays = is_in_place(sendbuf)
        into = contiguous_view(
            spec_of_all_ranks(recvbuf, self._size) if stays else recvbuf,
            writable=True,
            allow_padding=True,
        )
        given = into if stays else _operand(spec_of_all_ranks(sendbuf, self._size))
        if given is None or into is None or not _match(given, into, 1 if stays else self._size):
            return None
        content = self._workspace(given.flat.nbytes)
        bound = self._bind_elements(content, given, op, 0)
        if bound is None:
            return None

        def move() -> None:
            self._copy(given.flat, content)
            bound.run(op, given.datatype)
            mine = self._own_block(content)
            self._copy(mine, into.flat[: len(mine)])
            self._wait_for_copies()

        return move

    def _prepare_gather(self, sendbuf: Any, recvbuf: Any, root: int) -> Move | None:
        """Prepare the part of every rank of an allgather and of the root of a gather."""
        p, stays = self._size, is_in_place(sendbuf)
        into = self._pack(recvbuf, is_source=False, blocks=p)
        given = self._pack(recvbuf if stays else sendbuf, is_source=True, blocks=p if stays else 1)
        bound = self._bind_bytes(into, root)
        if (
            into is None
            or given is None
            or bound is None
            or (len(given.array) * (1 if stays else p) != len(into.array))
        ):
            return None
        own = into.array if stays else self._own_block(into.array)

        def move() -> None:
            if address_of(own) != address_of(given.array):
                self._copy(given.array, own)
            bound.run()
            into.unpack()

        return move

    def _bind_bytes(
        self, content: PackedBuffer | ByteArray | None, root: int | None
    ) -> PersistentSchedule | None:
        """Return the schedule bound to these bytes; None where it does not apply."""
        if content is None:
            return None
        array = content.array if isinstance(content, PackedBuffer) else content
        return self._cache.get_or_bind(array, len(array), 1, root)

    def _bind_elements(
        self, content: ByteArray, operand: BufferView, op: MPI.Op, root: int | None
    ) -> PersistentSchedule | None:
        """Return the schedule bound to these elements; None where it does not apply."""
        if not self._supports_datatype(op, operand.datatype):
            return None
        itemsize = operand.flat.nbytes // max(operand.count, 1)
        bound = self._cache.get_or_bind(content, operand.count, itemsize, root)
        if bound is None or op.is_commutative or bound.order_preserving:
            return bound
        return None

    def _supports_datatype(self, op: MPI.Op, datatype: MPI.Datatype) -> bool:
        """Return whether an operator is defined for a datatype; the result is cached."""
        if not op.is_predefined:
            return True
        key = (handle_of(op), handle_of(datatype))
        if key not in self._valid:
            self._valid[key] = _has_operator(op, datatype)
        return self._valid[key]

    def _own_block(self, all_blocks: ByteArray) -> ByteArray:
        """Return this rank's block of all ranks' bytes."""
        nbytes = len(all_blocks) // self._size
        return all_blocks[nbytes * self._rank :][:nbytes]

    def _wait_for_copies(self) -> None:
        for wait in self._memory.wait_functions:
            wait()

    def _store_call(self, call: tuple[Any, ...], cached: CachedCall) -> None:
        """Cache a call whose buffers are plain arrays; other objects may change unnoticed."""
        if None not in call:
            self._cache.store_call(call, cached)

    def _pack(self, spec: Any, *, is_source: bool, blocks: int = 1) -> PackedBuffer | None:
        return pack_buffer(
            spec, self._comm, is_source=is_source, blocks=blocks, allocate=self._memory.empty
        )


def _buffer_key(buf: Any) -> tuple[Any, ...] | str | None:
    """Return a key of all properties of a plain array that matter; None for other arguments."""
    if type(buf) is np.ndarray:
        flags = buf.flags
        return (MPI.Get_address(buf), buf.shape, buf.dtype.str, flags.c_contiguous, flags.writeable)
    return "in place" if is_in_place(buf) else None


def _operand(spec: Any) -> BufferView | None:
    return contiguous_view(spec, writable=False, allow_padding=True)


def _match(operand: BufferView, result: BufferView, blocks: int = 1) -> bool:
    """Return whether the operand has `blocks` times the elements of the result.

    mpi4py refuses buffers that do not match.
    """
    return operand.count == result.count * blocks and operand.datatype == result.datatype


def _has_operator(op: MPI.Op, datatype: MPI.Datatype) -> bool:
    """Return whether a reduction of one element succeeds."""
    one = np.zeros((2, max(datatype.extent, 1)), np.uint8)
    try:
        op.Reduce_local([one[0], 1, datatype], [one[1], 1, datatype])
    except MPI.Exception:
        return False
    return True
