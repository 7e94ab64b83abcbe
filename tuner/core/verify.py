"""Symbolic replay of a schedule, which checks that it is correct for every input.

The state of a slot (rank, chunk) is its origin chunk and the ranks that contributed to it: a run of
ranks in operand order, x2 op x3 op x4, or, where operands are out of order, a set.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tuner.base.arrays import BoolArray, IntArray
from tuner.base.errors import ScheduleError
from tuner.core.collective import Held
from tuner.core.schedule import ARRIVING_OP_DST, NO_REDUCTION, Round, Schedule


@dataclass(frozen=True)
class ScheduleProperties:
    """Properties of a verified schedule that a table can rely on.

    order_preserving    operands are combined in rank order: safe for non-commutative operators
    min_count           with fewer elements than this some chunks are empty (still correct)
    even_chunks_only    a chunk moves to a slot of another index, so count % n_chunks must be 0
    uses_scratch        the executor must provide scratch
    n_rounds            number of rounds
    n_transfers         number of transfers
    """

    order_preserving: bool
    min_count: int
    even_chunks_only: bool
    uses_scratch: bool
    n_rounds: int
    n_transfers: int


class _ContributorSets:
    """An encoding of the ranks that contributed to a value as a number.

    The ranks lo..hi-1 combined in this order, a run, are the number lo (p + 1) + hi. Anything else
    can never become a run of all ranks, because nothing is ever put between two operands; only its
    set of ranks counts, and sets get numbers from (p + 1)^2 on.

    once    whether a rank may contribute only once to a value
    """

    def __init__(self, p: int, *, once: bool) -> None:
        self.base, self.once = p + 1, once
        self.bitmasks: list[int] = []  # bit r says whether rank r is in the set
        self._codes: dict[int, int] = {}
        self._unions: dict[tuple[int, int], int] = {}

    def encode_range(self, lo: IntArray, hi: IntArray) -> IntArray:
        """Return the numbers of the runs lo..hi-1."""
        return lo * self.base + hi

    def is_complete(self, number: int) -> bool:
        """Return whether all ranks have contributed."""
        return self._bitmask(number) == (1 << self.base - 1) - 1

    def combine(self, left: IntArray, right: IntArray) -> IntArray:
        """Return the numbers of `left op right`; -1 for a rank in both that may be in one only."""
        first, meeting = np.divmod(left, self.base)
        after, last = np.divmod(right, self.base)
        result = self.encode_range(first, last)
        odd = np.flatnonzero((meeting != after) | (np.maximum(first, after) >= self.base))
        if len(odd):
            pairs = zip(left[odd].tolist(), right[odd].tolist(), strict=True)
            result[odd] = [self._union(pair) for pair in pairs]
        return result

    def _union(self, pair: tuple[int, int]) -> int:
        if pair not in self._unions:
            a, b = map(self._bitmask, pair)
            twice = self.once and a & b
            self._unions[pair] = -1 if twice else self._code_of_bitmask(a | b)
        return self._unions[pair]

    def _code_of_bitmask(self, ranks: int) -> int:
        number = self._codes.setdefault(ranks, self.base**2 + len(self.bitmasks))
        if number == self.base**2 + len(self.bitmasks):
            self.bitmasks.append(ranks)
        return number

    def _bitmask(self, number: int) -> int:
        lo, hi = divmod(number, self.base)
        return self.bitmasks[number - self.base**2] if lo >= self.base else (1 << hi) - (1 << lo)


class _Replay:
    """A replay of a schedule, with the state of all slots as flat arrays of p * slots."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.slots = schedule.slots
        self.gives_in_scratch = schedule.collective.gives_in_scratch
        self.contributor_sets = _ContributorSets(schedule.p, once=schedule.collective.has_data)
        self.origin = np.full(schedule.p * self.slots, -1, dtype=np.int64)
        self.contributors_of = np.full(schedule.p * self.slots, -1, dtype=np.int64)
        self.last_sent_round = np.full(
            schedule.p * self.slots, -1, dtype=np.int64
        )  # the last round in which a slot was sent
        self.last_writer = np.zeros(
            schedule.p * self.slots, dtype=np.int64
        )  # the last row of a round that writes a slot
        self.round = -1
        self.changes_chunk_index = self.uses_scratch = False
        self.transfers = 0
        rank, chunk = np.nonzero(_held(schedule, schedule.collective.spec.before))
        held = rank * self.slots + chunk + self.gives_in_scratch * schedule.n_chunks
        self.origin[held] = chunk
        self.contributors_of[held] = self.contributor_sets.encode_range(rank, rank + 1)

    def make_error(self, reason: str) -> ScheduleError:
        return ScheduleError(f"{self.schedule}, round {self.round}: {reason}")

    def describe(self, slot: int) -> str:
        rank, chunk = divmod(int(slot), self.slots)
        return f"chunk {chunk} of rank {rank}"

    def apply_round(self, r: Round) -> None:
        self.round += 1
        self.transfers += len(r)
        try:
            r = r.consecutive()
        except ScheduleError as reason:
            raise self.make_error(str(reason)) from None
        self._check_ranges(r)
        read, written, reduce = self._slots(r)
        origin = self.origin[read]
        if origin.min() < 0:
            raise self.make_error(f"{self.describe(read[origin < 0][0])} is sent but not held")
        if self.gives_in_scratch:
            given = written % self.slots // self.schedule.n_chunks == 1
            if given.any():
                raise self.make_error(
                    f"{self.describe(written[given][0])}, which is given, is written"
                )
        plain = reduce == NO_REDUCTION
        self._check_hazards(read, written, plain)
        who = self.contributors_of[read]
        if not plain.all():
            folds = np.flatnonzero(~plain)
            self._reduce(written[folds], reduce[folds], origin[folds], who[folds])
        self.origin[written[plain]] = origin[plain]
        self.contributors_of[written[plain]] = who[plain]

    def _check_ranges(self, r: Round) -> None:
        n, p, slots = self.schedule.n_chunks, self.schedule.p, self.slots
        if min(r.src.min(), r.dst.min()) < 0 or max(r.src.max(), r.dst.max()) >= p:
            raise self.make_error(f"a transfer names a rank outside 0..{p - 1}")
        if r.count.min() < 1 or r.reduce.min() < NO_REDUCTION or r.reduce.max() > ARRIVING_OP_DST:
            raise self.make_error("a transfer has no chunks or an unknown kind of reduction")
        for start in (r.src_chunk, r.dst_chunk)[: 1 if r.dst_chunk is r.src_chunk else 2]:
            last = start.astype(np.int64) + r.count - 1
            borders = (n, 2 * n) if self.gives_in_scratch else (n,)
            straddles = any(((start < border) != (last < border)).any() for border in borders)
            if start.min() < 0 or last.max() >= slots or straddles:
                raise self.make_error(
                    "a transfer leaves the buffer or straddles buffer and scratch"
                )
        self.changes_chunk_index |= r.dst_chunk is not r.src_chunk and bool(
            ((r.src_chunk - r.dst_chunk) % n).any()
        )
        self.uses_scratch |= bool(max(r.src_chunk.max(), r.dst_chunk.max()) >= n)

    def _slots(self, r: Round) -> tuple[IntArray, IntArray, IntArray]:
        """Return slots read, slots written and kind of reduction, for every chunk of every row."""
        read, written = (
            rank.astype(np.int64) * self.slots + start
            for rank, start in ((r.src, r.src_chunk), (r.dst, r.dst_chunk))
        )
        if r.count.max() == 1:
            return read, written, r.reduce.astype(np.int64)
        row = np.repeat(np.arange(len(r)), r.count)
        within = np.arange(len(row)) - np.repeat(np.cumsum(r.count) - r.count, r.count)
        return read[row] + within, written[row] + within, r.reduce[row].astype(np.int64)

    def _check_hazards(self, read: IntArray, written: IntArray, plain: BoolArray) -> None:
        row = np.arange(len(written))
        self.last_writer[written] = row
        again = self.last_writer[written] != row  # all but the last write to a slot
        if again.any():
            clash = plain & np.isin(written, written[again])
            if clash.any():
                raise self.make_error(
                    f"{self.describe(written[clash][0])} is written more than once"
                )
        self.last_sent_round[read] = self.round
        clash = plain & (self.last_sent_round[written] == self.round)
        if clash.any():
            raise self.make_error(
                f"{self.describe(written[clash][0])} is overwritten while it is sent"
            )

    def _reduce(self, slot: IntArray, reduce: IntArray, origin: IntArray, who: IntArray) -> None:
        """Fold arrivals into their slots in row order: all first arrivals, then all second ones."""
        if (self.origin[slot] != origin).any():
            wrong = slot[self.origin[slot] != origin][0]
            raise self.make_error(f"{self.describe(wrong)} is reduced with another chunk's value")
        turn = _previous_occurrences(slot)
        order = np.argsort(turn, kind="stable")
        bounds = np.searchsorted(turn[order], np.arange(turn.max() + 2)).tolist()
        for first, end in pairwise(bounds):
            now = order[first:end]
            here, arriving = self.contributors_of[slot[now]], who[now]
            swapped = reduce[now] == ARRIVING_OP_DST
            result = self.contributor_sets.combine(
                np.where(swapped, arriving, here), np.where(swapped, here, arriving)
            )
            if result.min() < 0:
                twice = slot[now][result < 0][0]
                raise self.make_error(f"{self.describe(twice)} takes a contribution twice")
            self.contributors_of[slot[now]] = result

    def check_result(self) -> bool:
        """Return whether operands were combined in rank order.

        Raises ScheduleError when the postcondition of the collective is not met.
        """
        schedule = self.schedule
        rank, chunk = np.nonzero(_held(schedule, schedule.collective.spec.after))
        slot, origin = rank * self.slots + chunk, _origin(schedule, rank, chunk)
        if (self.origin[slot] != origin).any():
            missing = slot[self.origin[slot] != origin][0]
            raise self.make_error(f"at the end {self.describe(missing)} is not there")
        reduces = schedule.collective.is_reduction
        if schedule.collective.has_data and not reduces:
            self._check_sources(slot, chunk)
            return True
        numbers = np.unique(self.contributors_of[slot])
        for number in numbers.tolist():
            if not self.contributor_sets.is_complete(number):
                lacking = slot[self.contributors_of[slot] == number][0]
                raise self.make_error(f"at the end {self.describe(lacking)} lacks contributions")
        return not reduces or bool((numbers == schedule.p).all())  # the run from 0 to p

    def _check_sources(self, slot: IntArray, chunk: IntArray) -> None:
        """Raise ScheduleError unless data that is only moved comes from the rank that owns it."""
        schedule = self.schedule
        from_owner = schedule.collective.spec.before in (Held.BLOCK, Held.FOR_EACH)
        source = schedule.owner(chunk) if from_owner else np.full_like(chunk, schedule.root)
        wrong = self.contributors_of[slot] != self.contributor_sets.encode_range(source, source + 1)
        if wrong.any():
            raise self.make_error(
                f"at the end {self.describe(slot[wrong][0])} is from a wrong rank"
            )


def _previous_occurrences(values: IntArray) -> IntArray:
    """Return, for each element, how often its value occurs before it."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    place = np.arange(len(values))
    new = np.ones(len(values), dtype=bool)
    new[1:] = ordered[1:] != ordered[:-1]
    before = np.empty_like(place)
    before[order] = place - np.maximum.accumulate(np.where(new, place, 0))
    return before


def _held(schedule: Schedule, held: Held) -> BoolArray:
    """Return which rank holds which chunks of the buffer, shape (p, n_chunks)."""
    if held is Held.BLOCK:
        owner = schedule.owner(np.arange(schedule.n_chunks))
        mine: BoolArray = owner == np.arange(schedule.p)[:, None]
        return mine
    mask = np.full((schedule.p, schedule.n_chunks), held is not Held.WHOLE_AT_ROOT)
    mask[schedule.root] = True
    return mask


def _origin(schedule: Schedule, rank: IntArray, chunk: IntArray) -> IntArray:
    """Return the chunk of its source that belongs into each chunk of each rank in the end."""
    if schedule.collective.spec.after is not Held.FROM_EACH:
        return chunk
    per_rank = schedule.n_chunks // schedule.p
    return rank * per_rank + chunk % per_rank


def verify(schedule: Schedule) -> ScheduleProperties:
    """Replay all rounds and return the properties of the schedule.

    Raises ScheduleError with round, rank and chunk of the first mistake.
    """
    replay = _Replay(schedule)
    for r in schedule.rounds():
        replay.apply_round(r)
    return ScheduleProperties(
        order_preserving=replay.check_result(),
        min_count=schedule.n_chunks,
        even_chunks_only=replay.changes_chunk_index,
        uses_scratch=replay.uses_scratch,
        n_rounds=replay.round + 1,
        n_transfers=replay.transfers,
    )
