"""A schedule carried out by real ranks over point-to-point messages.

A `Bound` is a rank's part on memory at fixed addresses, with a persistent request for every
message, to be run any number of times.
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
    """`source`, local or arrived once `request` is complete, is folded into `target`."""

    source: ByteArray
    target: ByteArray
    elements: int
    reduce: int
    request: MPI.Prequest | None


class BoundRound(NamedTuple):
    """One round, bound.

    begin       what to do first: wait for sends of earlier rounds whose source is written now, copy
                local sources that a fold of the round writes to, wait for copies and folds in
                memory that messages of the round read or write
    requests    all of the round, started together
    before      sends that must be complete before the first fold, which writes to what they send
    folds       in row order
    after       receives to complete at last
    """

    first_actions: list[Callable[[], object]]
    requests: list[MPI.Prequest]
    sends_before_reductions: list[MPI.Prequest]
    reductions: list[LocalReduction]
    final_receives: list[MPI.Prequest]


class PendingSend(NamedTuple):
    """A send that need not be complete yet, and the round in which it began."""

    request: MPI.Prequest
    transfer: RankTransfer
    round_number: int


class PersistentSchedule:
    """A part on one buffer.

    buffer      the user's, shape (count * itemsize,); requests refer to it by its address and do
                not keep it alive
    spare       `part.beyond` elements, which others may use between two runs
    messages    how many it sends and receives, copies within the rank counted as well
    memory      the kind that both are
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
        self._rank_schedule, self._comm, self._itemsize, self._memory = (
            rank_schedule,
            comm,
            itemsize,
            memory,
        )
        self.buffer, self.order_preserving = buffer, rank_schedule.order_preserving
        self.n_messages = sum(map(len, rank_schedule.rounds))
        self._scratch, self._arriving = np.split(
            scratch, [rank_schedule.scratch_elements * itemsize]
        )
        self._rounds = self._bind_rounds()

    def run(self, op: MPI.Op = MPI.SUM, datatype: MPI.Datatype = MPI.BYTE) -> None:
        """Start all transfers of a round, fold arrivals in row order, wait for the rest.

        An arrival is folded while later ones are on their way, unless it goes where something is
        sent from: that is the value from the start of the round. What a rank sends may be under way
        for a few rounds more, as long as nothing is written there: pipelines flow.
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
        """After a run that failed: nothing arrives any more, and no request stays active."""
        for request in self._receives:
            if not request.Get_status():
                request.Cancel()
                request.Wait()
        self.free()  # a send that is under way may complete: MPI keeps it until then
        self._rounds = self._bind_rounds()

    def _bind_rounds(self) -> list[BoundRound]:
        """All rounds, and at last a wait for what is under way and for what was folded."""
        self._receives: list[MPI.Prequest] = []
        self._pending_ranges = [ALL_MEMORY]  # the program may have begun something before a run
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
        """Fill a round; returns its sends that may take longer."""
        rank, sent, copied, moved = (
            self._rank_schedule.rank,
            list[PendingSend](),
            list[ByteArray](),
            list[ByteArray](),
        )
        written = [(r.dst_offset, r.elements) for r in transfers if r.dst == rank and r.is_deferred]
        room = 0
        for row in transfers:
            source, target = self._window(row.src_offset, row), self._window(row.dst_offset, row)
            own = self._arriving[room * self._itemsize :][: row.elements * self._itemsize]
            overwritten = row.src == rank and row.reads_from(written)
            if row.dst == rank and row.is_deferred:
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
        """Have a round wait for copies and folds in memory that its messages read or write.

        copied      what is copied before they start
        moved       what they read and write
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
        return self._scratch[start : start + nbytes]


def address_range(memory: ByteArray) -> AddressRange:
    """Return where it begins and ends, on whatever kind of memory."""
    begin = address_of(memory)
    return begin, begin + len(memory)


def overlaps(one: AddressRange, other: AddressRange) -> bool:
    """Return whether two spans have a byte in common."""
    return one[0] < other[1] and other[0] < one[1]


def reduce_local(
    reduction: LocalReduction, memory: Memory, op: MPI.Op, datatype: MPI.Datatype
) -> None:
    """MPI's Reduce_local computes `second = first op second`."""
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
    """Every rank of `comm` takes its part in `schedule`, once, in place on its `buffer`.

    buffer      contiguous, shape (count, ...): its first axis counts elements. It holds what the
                rank contributes and, afterwards, what the collective gives it; chunks that are
                neither are overwritten at will.
    datatype    of one element where numpy's own does not say (operators on derived datatypes)

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
    bound.run(op, datatype or datatype_of(buffer.dtype))
    bound.free()
