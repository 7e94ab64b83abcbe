"""A schedule carried out by real ranks over point-to-point messages.

A `Part` is what one rank does in one call shape; a `Bound` is a part on memory at fixed addresses,
with a persistent request for every message, to be run any number of times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from tuner.algorithms import facts_of
from tuner.errors import ScheduleError
from tuner.runtime.buffers import Bytes, datatype_of
from tuner.runtime.memory import HOST_MEMORY, Memory
from tuner.schedule import DST_OP_ARRIVING, NO_REDUCTION, Round, Schedule


class Row(NamedTuple):
    """One transfer as one rank sees it, in elements; places beyond the count are scratch.

    turn    how many transfers of the same round go between the same two ranks before this one
    """

    src: int
    dst: int
    first: int
    into: int
    elements: int
    reduce: int
    turn: int


@dataclass(frozen=True)
class Part:
    """One rank's rows of a schedule, round by round, for buffers of `count` elements.

    order_preserving    operands stay in rank order, as the verifier found
    """

    rank: int
    count: int
    order_preserving: bool
    rounds: tuple[tuple[Row, ...], ...]

    @classmethod
    def of(cls, schedule: Schedule, rank: int, count: int) -> Part:
        """Raises ScheduleError when the count is not divisible as the schedule needs.

        Every rank looks at every row: all refuse together, and none waits for another.
        """
        offsets = schedule.offsets(count)
        rounds = (tuple(_rows(schedule, r, rank, offsets)) for r in schedule.rounds())
        ordered = schedule.collective.reduces and facts_of(schedule).order_preserving
        return cls(rank, count, ordered, tuple(rows for rows in rounds if rows))

    @property
    def beyond(self) -> int:
        """How many elements beyond the buffer's own are needed: scratch, then arrivals."""
        return self.scratch + max(map(self._arriving, self.rounds), default=0)

    @property
    def scratch(self) -> int:
        """Elements of scratch: as many as the buffer has, or none."""
        places = (max(row.first, row.into) for rows in self.rounds for row in rows)
        return self.count if any(place >= self.count for place in places) else 0

    def _arriving(self, rows: tuple[Row, ...]) -> int:
        """Elements that are folded in a round."""
        return sum(row.elements for row in rows if row.dst == self.rank and _folds(row))


def _rows(schedule: Schedule, r: Round, rank: int, offsets: NDArray[np.int64]) -> Iterator[Row]:
    first, into = (_places(schedule, chunk, offsets) for chunk in (r.first, r.into))
    inside = r.first % schedule.n_chunks
    elements = offsets[inside + r.count] - offsets[inside]
    inside = r.into % schedule.n_chunks
    if (elements != offsets[inside + r.count] - offsets[inside]).any():
        raise ScheduleError(f"{schedule}: the count must be a multiple of its chunks")
    mine = np.flatnonzero(((r.src == rank) | (r.dst == rank)) & (elements > 0))
    turns: Counter[tuple[int, int]] = Counter()
    columns = (r.src, r.dst, first, into, elements, r.reduce)
    for row in zip(*(column[mine].tolist() for column in columns), strict=True):
        ends = (row[0], row[1])
        yield Row._make((*row, turns[ends]))
        turns[ends] += 1


def _places(
    schedule: Schedule, chunk: NDArray[np.int32], offsets: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The first element of each chunk."""
    half, inside = np.divmod(chunk, schedule.n_chunks)
    places: NDArray[np.int64] = offsets[inside] + half * offsets[-1]
    return places


class Fold(NamedTuple):
    """`source`, local or arrived once `request` is complete, is folded into `target`."""

    source: Bytes
    target: Bytes
    elements: int
    reduce: int
    request: MPI.Prequest | None


class Play(NamedTuple):
    """One round, bound.

    begin       what to do first: copy local sources that a fold of the round writes to, wait
    requests    all of the round, started together
    before      those that must be complete before the first fold, which writes to what they send
    folds       in row order
    after       those to complete at last
    """

    begin: list[Callable[[], None]]
    requests: list[MPI.Prequest]
    before: list[MPI.Prequest]
    folds: list[Fold]
    after: list[MPI.Prequest]


class Bound:
    """A part on one buffer.

    buffer      the user's, shape (count * itemsize,); requests refer to it by its address and do
                not keep it alive
    spare       `part.beyond` elements, which others may use between two runs
    memory      the kind that both are
    """

    def __init__(
        self, part: Part, comm: MPI.Intracomm, buffer: Bytes, spare: Bytes, itemsize: int,
        memory: Memory = HOST_MEMORY,
    ) -> None:  # fmt: skip
        self._part, self._comm, self._itemsize, self._memory = part, comm, itemsize, memory
        self.buffer, self.order_preserving = buffer, part.order_preserving
        self._scratch, self._arriving = np.split(spare, [part.scratch * itemsize])
        self._rounds = self._plays()

    def run(self, op: MPI.Op = MPI.SUM, datatype: MPI.Datatype = MPI.BYTE) -> None:
        """Start all transfers of a round, fold arrivals in row order, wait for the rest.

        An arrival is folded while later ones are on their way, unless it goes where something is
        sent from: that is the value from the start of the round.
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
        """All rounds, and at last a wait for what was folded, where the memory asks for that."""
        self._receives: list[MPI.Prequest] = []
        plays = [self._bind(self._part.rank, rows) for rows in self._part.rounds]
        waits = list(self._memory.waits)
        return [*plays, Play(waits, [], [], [], [])] if waits else plays

    def _bind(self, rank: int, rows: tuple[Row, ...]) -> Play:
        play = Play([], [], [], [], [])
        written = [(r.into, r.elements) for r in rows if r.dst == rank and _folds(r)]
        room = 0
        for row in rows:
            source, target = self._window(row.first, row), self._window(row.into, row)
            own = self._arriving[room * self._itemsize :][: row.elements * self._itemsize]
            overwritten = row.src == rank and _meets(row, written)
            if row.dst == rank and _folds(row):
                room += row.elements
            if row.src == row.dst:
                if overwritten:
                    play.begin.append(partial(self._memory.copy, source, own))
                kept = own if overwritten else source
                play.folds.append(Fold(kept, target, row.elements, row.reduce, None))
            elif row.src == rank:
                request = self._comm.Send_init([source, MPI.BYTE], row.dst, row.turn)
                (play.before if overwritten else play.after).append(request)
            elif row.reduce == NO_REDUCTION:
                play.after.append(self._receive(target, row))
            else:
                request = self._receive(own, row)
                play.requests.append(request)
                play.folds.append(Fold(own, target, row.elements, row.reduce, request))
        play.requests.extend((*play.before, *play.after))
        play.begin.extend(self._memory.waits)
        return play

    def _receive(self, target: Bytes, row: Row) -> MPI.Prequest:
        self._receives.append(self._comm.Recv_init([target, MPI.BYTE], row.src, row.turn))
        return self._receives[-1]

    def _window(self, place: int, row: Row) -> Bytes:
        start, nbytes = place * self._itemsize, row.elements * self._itemsize
        if start < len(self.buffer):
            return self.buffer[start : start + nbytes]
        start -= len(self.buffer)
        return self._scratch[start : start + nbytes]


def _folds(row: Row) -> bool:
    """Its target changes with the folds, not on arrival."""
    return row.src == row.dst or row.reduce != NO_REDUCTION


def _meets(row: Row, written: list[tuple[int, int]]) -> bool:
    """Whether what it sends is among what the folds of the round write."""
    end = row.first + row.elements
    return any(row.first < into + elements and into < end for into, elements in written)


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
