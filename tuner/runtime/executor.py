"""The execution of schedules by real ranks over point-to-point messages.

A `PersistentSchedule` is a rank's part of a schedule bound to memory at fixed addresses, with a
persistent request for every message. It can be run any number of times.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from tuner.base.errors import ScheduleError
from tuner.core.schedule import DST_OP_ARRIVING, NO_REDUCTION, Schedule
from tuner.runtime.buffers import ByteArray, address_of, datatype_of
from tuner.runtime.memory import HOST_MEMORY, Memory
from tuner.runtime.rank_schedule import RankSchedule, RankTransfer

AddressRange = tuple[float, float]
ALL_MEMORY: AddressRange = (-math.inf, math.inf)
MAX_ROUNDS_AHEAD = 8  # rounds that a send may last before its rank waits for it


class LocalReduction(NamedTuple):
    """A reduction of `source` into `target`.

    elements    number of elements
    reduce      code of the reduction, or NO_REDUCTION for a copy
    request     receive that fills `source`, to be complete first; None where `source` is local
    """

    source: ByteArray
    target: ByteArray
    elements: int
    reduce: int
    request: MPI.Prequest | None


class BoundRound(NamedTuple):
    """One round of a schedule, bound to memory.

    first_actions           functions to call first: they wait for sends of earlier rounds whose
                            source is written now, copy local sources that a reduction of the round
                            overwrites, and wait for copies and reductions in memory that messages
                            of the round read or write
    requests                all requests of the round, started together
    sends_before_reductions sends that must be complete before the first reduction, because a
                            reduction overwrites their source
    reductions              in the order of the transfers
    final_receives          receives that complete last
    """

    first_actions: list[Callable[[], object]]
    requests: list[MPI.Prequest]
    sends_before_reductions: list[MPI.Prequest]
    reductions: list[LocalReduction]
    final_receives: list[MPI.Prequest]


class PendingSend(NamedTuple):
    """A send that may still be in progress, and the round in which it started."""

    request: MPI.Prequest
    transfer: RankTransfer
    round_number: int


class PersistentSchedule:
    """A rank's part of a schedule, bound to one buffer by persistent requests.

    rank_schedule   transfers of this rank, in elements
    buffer          the user's buffer, shape (count * itemsize,); requests refer to its address and
                    do not keep it alive
    scratch         `rank_schedule.extra_elements` elements, which others may use between two runs
    itemsize        bytes of one element
    memory          kind of memory of both
    n_messages      transfers of this rank, including copies within the rank
    """

    def __init__(
        self,
        rank_schedule: RankSchedule,
        comm: MPI.Intracomm,
        buffer: ByteArray,
        scratch: ByteArray,
        itemsize: int,
        memory: Memory = HOST_MEMORY,
    ) -> None:
        self._rank_schedule = rank_schedule
        self._comm = comm
        self._itemsize = itemsize
        self._memory = memory
        self.buffer, self.order_preserving = buffer, rank_schedule.order_preserving
        self.n_messages = sum(map(len, rank_schedule.rounds))
        self.scratch, self._arriving = np.split(
            scratch, [rank_schedule.scratch_elements * itemsize]
        )
        self._rounds = self._bind_rounds()

    def run(self, op: MPI.Op = MPI.SUM, datatype: MPI.Datatype = MPI.BYTE) -> None:
        """Run all rounds: start the transfers, reduce arrivals in order, wait for the rest.

        An arrival is reduced while later ones are in transit, unless its target is the source of a
        send of the round, which must send the value from the start of the round. A send may take
        up to MAX_ROUNDS_AHEAD further rounds as long as its source is not written, which keeps
        pipelines flowing.
        """
        memory, complete = self._memory, False
        try:
            for begin, requests, before, folds, after in self._rounds:
                for act in begin:
                    act()
                for request in requests:
                    request.Start()
                for request in before:
                    request.Wait()
                for fold in folds:
                    if fold.request is not None:
                        fold.request.Wait()
                    reduce_local(fold, memory, op, datatype)
                for request in after:
                    request.Wait()
            complete = True
        finally:
            if not complete:
                self._reset_after_failure()

    def free(self) -> None:
        """Free the requests; none is active between two runs."""
        for play in self._rounds:
            for request in play.requests:
                request.Free()

    def _reset_after_failure(self) -> None:
        """Cancel all receives after a failed run and create new requests."""
        for request in self._receives:
            if not request.Get_status():
                request.Cancel()
                request.Wait()
        self.free()  # MPI keeps an active send until it completes
        self._rounds = self._bind_rounds()

    def _bind_rounds(self) -> list[BoundRound]:
        """Bind all rounds, and add a final one that waits for sends and reductions."""
        self._receives: list[MPI.Prequest] = []
        self._pending_ranges = [ALL_MEMORY]  # the program may have started copies before a run
        plays, sent = list[BoundRound](), list[PendingSend]()
        for number, rows in enumerate(self._rank_schedule.rounds):
            written = [
                (row.dst_offset, row.elements)
                for row in rows
                if row.dst == self._rank_schedule.rank
            ]
            due, on_their_way = list[PendingSend](), list[PendingSend]()
            for send in sent:
                late = number - send.round_number > MAX_ROUNDS_AHEAD or send.transfer.reads_from(
                    written
                )
                (due if late else on_their_way).append(send)
            begin: list[Callable[[], object]] = [send.request.Wait for send in due]
            play = BoundRound(begin, [], [], [], [])
            sent = [*on_their_way, *self._bind_round(play, rows, number)]
            plays.append(play)
        ending: list[Callable[[], object]] = [send.request.Wait for send in sent]
        if self._pending_ranges:
            ending += self._memory.wait_functions
        return [*plays, BoundRound(ending, [], [], [], [])]

    def _bind_round(
        self, bound_round: BoundRound, transfers: tuple[RankTransfer, ...], round_number: int
    ) -> list[PendingSend]:
        """Fill `bound_round`; return its sends that may complete in later rounds."""
        rank = self._rank_schedule.rank
        sent = list[PendingSend]()
        copied, moved = list[ByteArray](), list[ByteArray]()
        # what is only moved goes to chunks that the round does not read
        written = [
            (r.dst_offset, r.elements)
            for r in transfers
            if r.dst == rank and r.reduce != NO_REDUCTION
        ]
        room = 0
        for row in transfers:
            source, target = self._window(row.src_offset, row), self._window(row.dst_offset, row)
            own = self._arriving[room * self._itemsize :][: row.elements * self._itemsize]
            overwritten = row.src == rank and row.reads_from(written)
            if row.dst == rank and row.reduce != NO_REDUCTION:
                room += row.elements
            if row.src == row.dst:
                if overwritten:
                    bound_round.first_actions.append(partial(self._memory.copy, source, own))
                    copied += [source, own]
                kept = own if overwritten else source
                bound_round.reductions.append(
                    LocalReduction(kept, target, row.elements, row.reduce, None)
                )
            elif row.src == rank:
                request = self._comm.Send_init([source, MPI.BYTE], row.dst, row.tag)
                bound_round.requests.append(request)
                moved.append(source)
                if overwritten:
                    bound_round.sends_before_reductions.append(request)
                else:
                    sent.append(PendingSend(request, row, round_number))
            elif row.reduce == NO_REDUCTION:
                bound_round.final_receives.append(self._receive(target, row))
                moved.append(target)
            else:
                request = self._receive(own, row)
                moved.append(own)
                bound_round.requests.append(request)
                bound_round.reductions.append(
                    LocalReduction(own, target, row.elements, row.reduce, request)
                )
        bound_round.requests.extend(bound_round.final_receives)
        if self._memory.wait_functions:
            self._wait_before(bound_round, copied, moved)
        return sent

    def _wait_before(
        self, bound_round: BoundRound, copied: list[ByteArray], moved: list[ByteArray]
    ) -> None:
        """Make a round wait for copies and reductions in memory that its messages access.

        copied      memory that is read and written by copies before the messages start
        moved       memory that the messages read and write
        """
        self._pending_ranges += map(address_range, copied)
        if any(
            overlaps(address_range(part), one) for part in moved for one in self._pending_ranges
        ):
            bound_round.first_actions.extend(self._memory.wait_functions)
            self._pending_ranges.clear()
        folded = (part for fold in bound_round.reductions for part in (fold.source, fold.target))
        self._pending_ranges += map(address_range, folded)

    def _receive(self, target: ByteArray, transfer: RankTransfer) -> MPI.Prequest:
        self._receives.append(self._comm.Recv_init([target, MPI.BYTE], transfer.src, transfer.tag))
        return self._receives[-1]

    def _window(self, offset: int, transfer: RankTransfer) -> ByteArray:
        start, nbytes = offset * self._itemsize, transfer.elements * self._itemsize
        if start < len(self.buffer):
            return self.buffer[start : start + nbytes]
        start -= len(self.buffer)
        return self.scratch[start : start + nbytes]


def address_range(memory: ByteArray) -> AddressRange:
    """Return the first address of the memory and the one after its end, on host or device."""
    begin = address_of(memory)
    return begin, begin + len(memory)


def overlaps(one: AddressRange, other: AddressRange) -> bool:
    """Return whether two address ranges have a byte in common."""
    return one[0] < other[1] and other[0] < one[1]


def reduce_local(
    reduction: LocalReduction, memory: Memory, op: MPI.Op, datatype: MPI.Datatype
) -> None:
    """Reduce or copy `source` into `target`.

    Where the target is the first operand of an operator that does not commute, the result is
    computed in temporary memory, since MPI's Reduce_local computes `second = first op second`.
    """
    source, target, elements, reduce, _ = reduction
    if reduce == NO_REDUCTION:
        memory.copy(source, target)
    elif reduce == DST_OP_ARRIVING and not op.is_commutative:
        result = memory.empty(len(source))
        memory.copy(source, result)
        memory.reduce(op, datatype, elements, target, result)
        memory.copy(result, target)
    else:
        memory.reduce(op, datatype, elements, source, target)


def execute(
    schedule: Schedule,
    comm: MPI.Intracomm,
    buffer: NDArray[np.generic],
    op: MPI.Op = MPI.SUM,
    datatype: MPI.Datatype | None = None,
) -> None:
    """Run this rank's part of `schedule` once, in place on `buffer`; collective over `comm`.

    buffer      contiguous, shape (count, ...): its first axis counts elements. It holds the rank's
                contribution and, afterwards, its result; other chunks may be overwritten
    datatype    datatype of one element where it is not that of numpy's dtype (operators on derived
                datatypes)

    Raises ScheduleError when comm's size is not the schedule's p, or the count is not divisible
    as the schedule needs.
    """
    if comm.size != schedule.p:
        raise ScheduleError(f"{schedule} cannot run on {comm.size} ranks")
    part = RankSchedule.from_schedule(schedule, comm.rank, len(buffer))
    content = buffer.reshape(-1).view(np.uint8)
    itemsize = len(content) // max(len(buffer), 1)
    bound = PersistentSchedule(
        part, comm, content, np.empty(part.extra_elements * itemsize, np.uint8), itemsize
    )
    if schedule.collective.gives_in_scratch:
        bound.scratch[: len(content)] = content
    bound.run(op, datatype or datatype_of(buffer.dtype))
    bound.free()
