"""Symbolic replay of a schedule: does it do what its collective promises, for every input?

The state of a slot (rank, chunk) is its origin chunk and the ranks that contributed to it, as an
ordered tuple of intervals in operand order: ((2, 4), (0, 2)) is x2 op x3 op x0 op x1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tuner.collective import Collective
from tuner.errors import ScheduleError
from tuner.schedule import ARRIVING_OP_DST, NO_REDUCTION, Round, Schedule

Intervals = tuple[tuple[int, int], ...]
Array = NDArray[np.int64]


@dataclass(frozen=True)
class Facts:
    """What a verified schedule lets a table rely on.

    order_preserving    operands are combined in rank order: safe for non-commutative operators
    min_count           with fewer elements than this some chunks are empty (still correct)
    even_chunks_only    a chunk moves to a slot of another index, so count % n_chunks must be 0
    uses_scratch        the executor must provide scratch
    rounds, transfers   how much there is
    """

    order_preserving: bool
    min_count: int
    even_chunks_only: bool
    uses_scratch: bool
    rounds: int
    transfers: int


class _Contributors:
    """Ordered interval tuples, interned: equal tuples have equal numbers."""

    def __init__(self) -> None:
        self._numbers: dict[Intervals, int] = {}
        self.intervals: list[Intervals] = []

    def number(self, intervals: Intervals) -> int:
        number = self._numbers.setdefault(intervals, len(self.intervals))
        if number == len(self.intervals):
            self.intervals.append(intervals)
        return number

    def combine(self, left: int, right: int) -> int:
        """The number of `left op right`; -1 when a rank would contribute twice."""
        joined = [*self.intervals[left]]
        for interval in self.intervals[right]:
            if joined[-1][1] == interval[0]:
                joined[-1] = (joined[-1][0], interval[1])
            else:
                joined.append(interval)
        ordered = sorted(joined)
        if any(a[1] > b[0] for a, b in pairwise(ordered)):
            return -1
        return self.number(tuple(joined))


class _Replay:
    """The state of all slots, shape (p, 2 n_chunks), while the rounds go by."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.slots = 2 * schedule.n_chunks
        self.contributors = _Contributors()
        self.combine = lru_cache(maxsize=None)(self.contributors.combine)
        self.origin = np.full(schedule.p * self.slots, -1, dtype=np.int64)
        self.who = np.full(schedule.p * self.slots, -1, dtype=np.int64)
        self.round = -1
        self.moved = self.scratch = False
        self.transfers = 0
        for rank in range(schedule.p):
            held = rank * self.slots + _initially_held(schedule, rank)
            self.origin[held] = held - rank * self.slots
            self.who[held] = self.contributors.number(((rank, rank + 1),))

    def reject(self, reason: str) -> ScheduleError:
        return ScheduleError(f"{self.schedule}, round {self.round}: {reason}")

    def describe(self, slot: int) -> str:
        rank, chunk = divmod(int(slot), self.slots)
        return f"chunk {chunk} of rank {rank}"

    def play(self, r: Round) -> None:
        self.round += 1
        self.transfers += len(r)
        self._check_ranges(r)
        row = np.repeat(np.arange(len(r)), r.count)
        within = np.arange(len(row)) - np.repeat(np.cumsum(r.count) - r.count, r.count)
        read = r.src[row].astype(np.int64) * self.slots + r.first[row] + within
        written = r.dst[row].astype(np.int64) * self.slots + r.into[row] + within
        reduce = r.reduce[row].astype(np.int64)
        if (self.origin[read] < 0).any():
            slot = read[self.origin[read] < 0][0]
            raise self.reject(f"{self.describe(slot)} is sent but not held")
        self._check_hazards(read, written, reduce == NO_REDUCTION)
        self._apply(written, reduce, self.origin[read], self.who[read])

    def _check_ranges(self, r: Round) -> None:
        n, p = self.schedule.n_chunks, self.schedule.p
        if min(r.src.min(), r.dst.min()) < 0 or max(r.src.max(), r.dst.max()) >= p:
            raise self.reject(f"a transfer names a rank outside 0..{p - 1}")
        if (r.count < 1).any() or not np.isin(r.reduce, (0, 1, 2)).all():
            raise self.reject("a transfer has no chunks or an unknown kind of reduction")
        for start in (r.first, r.into):
            end = start.astype(np.int64) + r.count
            if (start < 0).any() or (end > 2 * n).any() or ((start < n) & (end > n)).any():
                raise self.reject("a transfer leaves the buffer or straddles buffer and scratch")
        self.moved |= bool(((r.first - r.into) % n).any())
        self.scratch |= bool((r.first >= n).any() or (r.into >= n).any())

    def _check_hazards(self, read: Array, written: Array, plain: NDArray[np.bool_]) -> None:
        writes = np.bincount(written, minlength=len(self.origin))
        clash = plain & (writes[written] > 1)
        if clash.any():
            raise self.reject(f"{self.describe(written[clash][0])} is written more than once")
        being_sent = np.zeros(len(self.origin), dtype=bool)
        being_sent[read] = True
        clash = plain & being_sent[written]
        if clash.any():
            raise self.reject(f"{self.describe(written[clash][0])} is overwritten while it is sent")

    def _apply(self, written: Array, reduce: Array, origin: Array, who: Array) -> None:
        plain = reduce == NO_REDUCTION
        left = np.flatnonzero(~plain)
        while len(left):  # the first arrival of every slot, then the second, ...: row order
            _, earliest = np.unique(written[left], return_index=True)
            now = left[earliest]
            self._reduce(written[now], reduce[now], origin[now], who[now])
            left = np.delete(left, earliest)
        self.origin[written[plain]] = origin[plain]
        self.who[written[plain]] = who[plain]

    def _reduce(self, slot: Array, reduce: Array, origin: Array, who: Array) -> None:
        if (self.origin[slot] != origin).any():
            wrong = slot[self.origin[slot] != origin][0]
            raise self.reject(f"{self.describe(wrong)} is reduced with another chunk's value")
        arriving_first = reduce == ARRIVING_OP_DST
        left = np.where(arriving_first, who, self.who[slot])
        right = np.where(arriving_first, self.who[slot], who)
        pairs, inverse = np.unique(np.stack([left, right]), axis=1, return_inverse=True)
        combined = np.array([self.combine(int(a), int(b)) for a, b in pairs.T], dtype=np.int64)
        result = combined[inverse.reshape(-1)]
        if (result < 0).any():
            raise self.reject(f"{self.describe(slot[result < 0][0])} takes a contribution twice")
        self.who[slot] = result

    def order_preserving(self) -> bool:
        """Checks the postcondition of the collective; raises ScheduleError when it is unmet."""
        schedule = self.schedule
        chunks = [_finally_held(schedule, rank) for rank in range(schedule.p)]
        chunk = np.concatenate(chunks)
        slot = np.repeat(np.arange(schedule.p), [len(c) for c in chunks]) * self.slots + chunk
        if (self.origin[slot] != chunk).any():
            missing = slot[self.origin[slot] != chunk][0]
            raise self.reject(f"at the end {self.describe(missing)} is not there")
        if not schedule.collective.reduces:
            self._check_sources(slot, chunk)
            return True
        numbers = np.unique(self.who[slot])
        held = [self.contributors.intervals[number] for number in numbers]
        for number, intervals in zip(numbers, held, strict=True):
            if sum(hi - lo for lo, hi in intervals) != schedule.p:
                lacking = slot[self.who[slot] == number][0]
                raise self.reject(f"at the end {self.describe(lacking)} lacks contributions")
        return held == [((0, schedule.p),)]

    def _check_sources(self, slot: Array, chunk: Array) -> None:
        """Data that is only moved must come from the rank whose data it is."""
        schedule = self.schedule
        from_owner = schedule.collective in (Collective.ALLGATHER, Collective.GATHER)
        source = schedule.owner(chunk) if from_owner else np.full_like(chunk, schedule.root)
        holder = np.array([intervals[0][0] for intervals in self.contributors.intervals])
        if (holder[self.who[slot]] != source).any():
            wrong = slot[holder[self.who[slot]] != source][0]
            raise self.reject(f"at the end {self.describe(wrong)} is from a wrong rank")


def _owned(schedule: Schedule, rank: int) -> Array:
    share = schedule.n_chunks // schedule.p
    return np.arange(rank * share, (rank + 1) * share)


def _initially_held(schedule: Schedule, rank: int) -> Array:
    if schedule.collective in (Collective.ALLGATHER, Collective.GATHER):
        return _owned(schedule, rank)
    if schedule.collective.reduces or rank == schedule.root:
        return np.arange(schedule.n_chunks)
    return np.arange(0)


def _finally_held(schedule: Schedule, rank: int) -> Array:
    if schedule.collective in (Collective.SCATTER, Collective.REDUCE_SCATTER):
        return _owned(schedule, rank)
    if schedule.collective in (Collective.REDUCE, Collective.GATHER) and rank != schedule.root:
        return np.arange(0)
    return np.arange(schedule.n_chunks)


def verify(schedule: Schedule) -> Facts:
    """Replay all rounds; raises ScheduleError with round, rank and chunk of the first mistake."""
    replay = _Replay(schedule)
    for r in schedule.rounds():
        replay.play(r)
    return Facts(
        order_preserving=replay.order_preserving(),
        min_count=schedule.n_chunks,
        even_chunks_only=replay.moved,
        uses_scratch=replay.scratch,
        rounds=replay.round + 1,
        transfers=replay.transfers,
    )
