"""Calls of the communicator that run one of our schedules.

Data that is moved but not reduced is divided in bytes, because ranks may describe one signature by
different datatypes. Data that is reduced is divided in elements, whose datatype is the same on all
ranks (MPI 4.1, 6.9.1). Calls that a schedule cannot make (arguments that mpi4py refuses, operators
that are not defined for a datatype, counts that are not divisible) go to the library.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from tuner.core.collective import PROBE_ELEMENT_BYTES, Collective, Held
from tuner.core.table import AlgorithmChoice
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
        choice: AlgorithmChoice,
        scratch_pool: ScratchPool,
    ) -> None:
        self._comm, self._library, self._memory = comm, library, scratch_pool.memory
        self._rank, self._size, self._collective = comm.rank, comm.size, collective
        self._sent, self._received = collective.blocks(comm.size)
        self._scatters = collective.spec.after is Held.BLOCK
        self._gives_in_scratch = collective.gives_in_scratch
        self._cache = ScheduleCache(comm, collective, choice, scratch_pool)
        self._cached_calls, self._workspace = self._cache.calls, scratch_pool.workspace.reserve
        self._copy = self._memory.copy
        self._valid: dict[tuple[int, int], bool] = {}
        self.prepare: Callable[..., Move | None] = self._prepare_moved
        if collective.has_one_buffer:
            self.prepare = self._prepare_one_buffer
        elif collective.is_reduction:
            self.prepare = self._prepare_reduced
        elif not collective.has_data:
            self.prepare = self._prepare_without_data
        known: dict[Collective, Action] = {
            Collective.BCAST: self._cached_bcast,
            Collective.ALLREDUCE: self._cached_allreduce,
        }
        self._is_cached = collective in known
        usual = self._prepare_and_run if collective.has_data else self._cached_synchronisation
        self.call: Action = known.get(collective, usual)

    def release(self) -> None:
        self._cache.release()

    def _prepare_and_run(self, *arguments: Any) -> None:
        move = self.prepare(*arguments)
        if move is None:
            return self._library(*arguments)
        return move()

    def _cached_synchronisation(self) -> None:
        if () in self._cached_calls:
            return self._cached_calls[()].schedule.run(MPI.BOR, MPI.INT32_T)
        return self._prepare_and_run()

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

    def _prepare_one_buffer(self, buf: Any, root: int = 0) -> Move | None:
        giver = root_rank(root)
        content = self._pack(buf, is_source=self._rank == giver)
        bound = None if content is None else self._bind_bytes(content.array, giver)
        if content is None or bound is None:
            return None

        def move() -> None:
            bound.run()
            self._store_call((_buffer_key(buf), giver), CachedCall(bound, MPI.BYTE, None))
            content.unpack()

        return move

    def _prepare_without_data(self) -> Move | None:
        """Prepare a call without buffers; the element that the schedule sends means nothing."""
        whole = self._workspace(PROBE_ELEMENT_BYTES)
        bound = self._cache.get_or_bind(whole, 1, PROBE_ELEMENT_BYTES, 0)
        if bound is None:
            return None
        self._store_call((), CachedCall(bound, MPI.INT32_T, None))
        return partial(bound.run, MPI.BOR, MPI.INT32_T)

    def _prepare_moved(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Move | None:
        """Prepare a call that moves blocks of ranks.

        The schedule runs on the blocks of all ranks: in the receive buffer where that has them all,
        else in memory of our own.
        """
        center = root_rank(root)
        gives, takes = self._gives(center), self._takes(center)
        in_place = gives and takes and is_in_place(recvbuf if self._scatters else sendbuf)
        source, blocks = sendbuf, self._sent
        if in_place and not self._scatters:
            source, blocks = recvbuf, self._received
        fills = takes and not (in_place and self._scatters)
        given = self._pack(source, is_source=True, blocks=blocks) if gives else None
        into = self._pack(recvbuf, is_source=False, blocks=self._received) if fills else None
        used = [(given, blocks)] * gives + [(into, self._received)] * fills
        sizes = [
            None if packed is None else len(packed.array) // held * self._size
            for packed, held in used
        ]
        nbytes = sizes[0]
        if nbytes is None or None in sizes or (sizes[-1] != nbytes and not self._scatters):
            return None  # mpi4py refuses a buffer, or they do not match
        whole = self._workspace(nbytes) if into is None or self._scatters else into.array
        bound = self._bind_bytes(whole, center)
        if bound is None:
            return None

        def move() -> None:
            if given is not None:
                target = whole if blocks == self._size else self._own_block(whole)
                if self._gives_in_scratch:
                    target = bound.scratch[: len(whole)]
                if into is None or address_of(target) != address_of(given.array):
                    self._copy(given.array, target)
            bound.run()
            if into is not None:
                if self._scatters:
                    self._copy_own_block(whole, into.array)
                into.unpack()

        return move

    def _prepare_reduced(
        self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, root: int = 0
    ) -> Move | None:
        """Prepare a call that reduces.

        The schedule runs on the whole vector: in the receive buffer where the result is as long,
        else in memory of our own.
        """
        center = root_rank(root)
        takes = self._takes(center)
        in_place = takes and is_in_place(sendbuf)
        given, into = self._operand_and_result(sendbuf, recvbuf, takes, in_place)
        if given is None or (takes and into is None):
            return None
        here = into is not None and not self._scatters
        whole = into.flat if into is not None and here else self._workspace(given.flat.nbytes)
        bound = self._bind_elements(whole, given, op, center)
        if bound is None:
            return None
        operand = given.flat
        source = None if here and in_place else operand
        if source is not None and self._is_cached:  # not to keep the array alive
            source = memory_at(address_of(operand), len(operand))

        def move() -> None:
            if source is not None:
                self._copy(source, whole)
            bound.run(op, given.datatype)
            if into is not None and self._scatters:
                self._copy_own_block(whole, into.flat)
            if self._is_cached:
                call = (
                    _buffer_key(sendbuf),
                    _buffer_key(recvbuf),
                    handle_of(op),
                    op.is_commutative,
                )
                self._store_call(call, CachedCall(bound, given.datatype, source))

        return move

    def _operand_and_result(
        self, sendbuf: Any, recvbuf: Any, takes: bool, in_place: bool
    ) -> tuple[BufferView | None, BufferView | None]:
        """Return the whole operand and what the result goes to; None where mpi4py refuses them."""
        blocks, into = self._size if self._scatters else 1, None
        if takes:
            taken = spec_of_all_ranks(recvbuf, blocks) if in_place else recvbuf
            into = contiguous_view(taken, writable=True, allow_padding=True)
        if in_place:
            return into, into
        operand = spec_of_all_ranks(sendbuf, blocks)
        given = contiguous_view(operand, writable=False, allow_padding=True)
        if given is None or into is None or _match(given, into, blocks):
            return given, into
        return None, into

    def _gives(self, center: int | None) -> bool:
        return self._collective.gives(self._rank == center)

    def _takes(self, center: int | None) -> bool:
        return self._collective.takes(self._rank == center)

    def _bind_bytes(self, content: ByteArray, root: int | None) -> PersistentSchedule | None:
        """Return the schedule bound to these bytes; None where it does not apply."""
        return self._cache.get_or_bind(content, len(content), 1, root)

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
        nbytes = len(all_blocks) // self._size
        return all_blocks[nbytes * self._rank :][:nbytes]

    def _copy_own_block(self, all_blocks: ByteArray, into: ByteArray) -> None:
        """Copy this rank's block to the beginning of a result, and wait for the copy."""
        mine = self._own_block(all_blocks)
        self._copy(mine, into[: len(mine)])
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
