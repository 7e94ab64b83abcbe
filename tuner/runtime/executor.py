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
from tuner.runtime.buffers import Bytes, address_of, datatype_of
from tuner.runtime.memory import HOST_MEMORY, Memory
from tuner.runtime.rank_schedule import Part, Row

Span = tuple[float, float]
EVERYWHERE: Span = (-math.inf, math.inf)
LOOKAHEAD = 8  # rounds that a send may last before its rank waits for it


class Fold(NamedTuple):
    """`source`, local or arrived once `request` is complete, is folded into `target`."""

    source: Bytes
    target: Bytes
    elements: int
    reduce: int
    request: MPI.Prequest | None


class Play(NamedTuple):
    """One round, bound.

    begin       what to do first: wait for sends of earlier rounds whose source is written now, copy
                local sources that a fold of the round writes to, wait for copies and folds in
                memory that messages of the round read or write
    requests    all of the round, started together
    before      sends that must be complete before the first fold, which writes to what they send
    folds       in row order
    after       receives to complete at last
    """

    begin: list[Callable[[], object]]
    requests: list[MPI.Prequest]
    before: list[MPI.Prequest]
    folds: list[Fold]
    after: list[MPI.Prequest]


class Sent(NamedTuple):
    """A send that need not be complete yet, and the round in which it began."""

    request: MPI.Prequest
    row: Row
    round: int


class Bound:
    """A part on one buffer.

    buffer      the user's, shape (count * itemsize,); requests refer to it by its address and do
                not keep it alive
    spare       `part.beyond` elements, which others may use between two runs
    messages    how many it sends and receives, copies within the rank counted as well
    memory      the kind that both are
    """

    def __init__(
        self,
        part: Part,
        comm: MPI.Intracomm,
        buffer: Bytes,
        spare: Bytes,
        itemsize: int,
        memory: Memory = HOST_MEMORY,
    ) -> None:
        self._part, self._comm, self._itemsize, self._memory = part, comm, itemsize, memory
        self.buffer, self.order_preserving = buffer, part.order_preserving
        self.messages = sum(map(len, part.rounds))
        self._scratch, self._arriving = np.split(spare, [part.scratch * itemsize])
        self._rounds = self._plays()

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
                    carry_out(fold, memory, op, datatype)
                for request in after:
                    request.Wait()
            complete = True
        finally:
            if not complete:
                self._start_over()

    def free(self) -> None:
        """Free the requests; none is active between two runs."""
        for play in self._rounds:
            for request in play.requests:
                request.Free()

    def _start_over(self) -> None:
        """After a run that failed: nothing arrives any more, and no request stays active."""
        for request in self._receives:
            if not request.Get_status():
                request.Cancel()
                request.Wait()
        self.free()  # a send that is under way may complete: MPI keeps it until then
        self._rounds = self._plays()

    def _plays(self) -> list[Play]:
        """All rounds, and at last a wait for what is under way and for what was folded."""
        self._receives: list[MPI.Prequest] = []
        self._under_way = [EVERYWHERE]  # the program may have begun something before a run
        plays, sent = list[Play](), list[Sent]()
        for number, rows in enumerate(self._part.rounds):
            written = [(row.into, row.elements) for row in rows if row.dst == self._part.rank]
            due, on_their_way = list[Sent](), list[Sent]()
            for send in sent:
                late = number - send.round > LOOKAHEAD or send.row.reads(written)
                (due if late else on_their_way).append(send)
            begin: list[Callable[[], object]] = [send.request.Wait for send in due]
            play = Play(begin, [], [], [], [])
            sent = [*on_their_way, *self._bind(play, rows, number)]
            plays.append(play)
        ending: list[Callable[[], object]] = [send.request.Wait for send in sent]
        if self._under_way:
            ending += self._memory.waits
        return [*plays, Play(ending, [], [], [], [])]

    def _bind(self, play: Play, rows: tuple[Row, ...], number: int) -> list[Sent]:
        """Fill a round; returns its sends that may take longer."""
        rank, sent, copied, moved = self._part.rank, list[Sent](), list[Bytes](), list[Bytes]()
        written = [(r.into, r.elements) for r in rows if r.dst == rank and r.folds]
        room = 0
        for row in rows:
            source, target = self._window(row.first, row), self._window(row.into, row)
            own = self._arriving[room * self._itemsize :][: row.elements * self._itemsize]
            overwritten = row.src == rank and row.reads(written)
            if row.dst == rank and row.folds:
                room += row.elements
            if row.src == row.dst:
                if overwritten:
                    play.begin.append(partial(self._memory.copy, source, own))
                    copied += [source, own]
                kept = own if overwritten else source
                play.folds.append(Fold(kept, target, row.elements, row.reduce, None))
            elif row.src == rank:
                request = self._comm.Send_init([source, MPI.BYTE], row.dst, row.tag)
                play.requests.append(request)
                moved.append(source)
                if overwritten:
                    play.before.append(request)
                else:
                    sent.append(Sent(request, row, number))
            elif row.reduce == NO_REDUCTION:
                play.after.append(self._receive(target, row))
                moved.append(target)
            else:
                request = self._receive(own, row)
                moved.append(own)
                play.requests.append(request)
                play.folds.append(Fold(own, target, row.elements, row.reduce, request))
        play.requests.extend(play.after)
        if self._memory.waits:
            self._wait_before(play, copied, moved)
        return sent

    def _wait_before(self, play: Play, copied: list[Bytes], moved: list[Bytes]) -> None:
        """Have a round wait for copies and folds in memory that its messages read or write.

        copied      what is copied before they start
        moved       what they read and write
        """
        self._under_way += map(span, copied)
        if any(meet(span(part), one) for part in moved for one in self._under_way):
            play.begin.extend(self._memory.waits)
            self._under_way.clear()
        folded = (part for fold in play.folds for part in (fold.source, fold.target))
        self._under_way += map(span, folded)

    def _receive(self, target: Bytes, row: Row) -> MPI.Prequest:
        self._receives.append(self._comm.Recv_init([target, MPI.BYTE], row.src, row.tag))
        return self._receives[-1]

    def _window(self, place: int, row: Row) -> Bytes:
        start, nbytes = place * self._itemsize, row.elements * self._itemsize
        if start < len(self.buffer):
            return self.buffer[start : start + nbytes]
        start -= len(self.buffer)
        return self._scratch[start : start + nbytes]


def span(part: Bytes) -> Span:
    """Return where it begins and ends, on whatever kind of memory."""
    begin = address_of(part)
    return begin, begin + len(part)


def meet(one: Span, other: Span) -> bool:
    """Return whether two spans have a byte in common."""
    return one[0] < other[1] and other[0] < one[1]


def carry_out(fold: Fold, memory: Memory, op: MPI.Op, datatype: MPI.Datatype) -> None:
    """MPI's Reduce_local computes `second = first op second`."""
    source, target, elements, reduce, _ = fold
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
    part = Part.of(schedule, comm.rank, len(buffer))
    content = buffer.reshape(-1).view(np.uint8)
    itemsize = len(content) // max(len(buffer), 1)
    bound = Bound(part, comm, content, np.empty(part.beyond * itemsize, np.uint8), itemsize)
    bound.run(op, datatype or datatype_of(buffer.dtype))
    bound.free()
