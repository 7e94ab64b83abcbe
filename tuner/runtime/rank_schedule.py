"""What one rank does in a schedule, for one number of elements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tuner.algorithms import schedule_properties
from tuner.base.arrays import Int32Array, IntArray
from tuner.base.errors import ScheduleError
from tuner.core.collective import Collective
from tuner.core.schedule import NO_REDUCTION, Schedule

_COLLECTIVES = tuple(Collective)


class RankTransfer(NamedTuple):
    """One transfer as one rank sees it, in elements; places beyond the count are scratch.

    tag     of the message: other collectives have others (`_tags`)
    """

    src: int
    dst: int
    src_offset: int
    dst_offset: int
    elements: int
    reduce: int
    tag: int

    @property
    def is_deferred(self) -> bool:
        """Its target changes with the folds of the round, not on arrival."""
        return self.src == self.dst or self.reduce != NO_REDUCTION

    def reads_from(self, written: Sequence[tuple[int, int]]) -> bool:
        """Whether what it sends is among these runs of elements (place, length)."""
        end = self.src_offset + self.elements
        return any(self.src_offset < into + length and into < end for into, length in written)


@dataclass(frozen=True)
class RankSchedule:
    """One rank's rows of a schedule, round by round, for buffers of `count` elements.

    order_preserving    operands stay in rank order, as the verifier found
    """

    rank: int
    count: int
    order_preserving: bool
    rounds: tuple[tuple[RankTransfer, ...], ...]

    @classmethod
    def from_schedule(cls, schedule: Schedule, rank: int, count: int) -> RankSchedule:
        """Raises ScheduleError when the count is not divisible as the schedule needs."""
        return RankScheduleTemplate.from_schedule(schedule, rank).with_count(count)

    @property
    def extra_elements(self) -> int:
        """How many elements beyond the buffer's own are needed: scratch, then arrivals."""
        return self.scratch_elements + max(map(self._arriving_elements, self.rounds), default=0)

    @property
    def scratch_elements(self) -> int:
        """Elements of scratch: as many as the buffer has, or none."""
        places = (max(row.src_offset, row.dst_offset) for rows in self.rounds for row in rows)
        return self.count if any(place >= self.count for place in places) else 0

    def _arriving_elements(self, transfers: tuple[RankTransfer, ...]) -> int:
        """Elements that are folded in a round."""
        return sum(row.elements for row in transfers if row.dst == self.rank and row.is_deferred)


@dataclass(frozen=True, eq=False)
class RankScheduleTemplate:
    """What one rank does in a schedule, in chunks: for any number of elements.

    schedule    without its rounds
    rows        this rank's of all rounds: the columns of a Round, then their tags; (7, rows)
    ends        after how many rows each round ends, from 0 on
    shifts      a chunk goes to a slot of another index, on whatever rank: so all ranks refuse the
                same counts, and none waits for another
    """

    schedule: Schedule
    rank: int
    order_preserving: bool
    transfers: IntArray
    round_ends: tuple[int, ...]
    has_shifted_chunks: bool

    @classmethod
    def from_schedule(cls, schedule: Schedule, rank: int) -> RankScheduleTemplate:
        """Looks at every row."""
        parts, ends, shifts = [np.empty((7, 0), np.int64)], [0], False
        for r in schedule.rounds():
            mine = np.flatnonzero((r.src == rank) | (r.dst == rank))
            own = [column[mine] for column in r.columns]
            parts.append(np.array([*own, _tags(schedule.collective, own[0], own[1])], np.int64))
            ends.append(ends[-1] + len(mine))
            shifts |= bool(((r.src_chunk - r.dst_chunk) % schedule.n_chunks).any())
        ordered = (
            schedule.collective.is_reduction and schedule_properties(schedule).order_preserving
        )
        rows, bare = np.concatenate(parts, axis=1), replace(schedule, make_rounds=tuple)
        return cls(bare, rank, ordered, rows, tuple(ends), shifts)

    def with_count(self, count: int) -> RankSchedule:
        """The same in elements. Raises ScheduleError for a count that does not divide as needed."""
        n_chunks, offsets = self.schedule.n_chunks, self.schedule.offsets(count)
        if self.has_shifted_chunks and count % n_chunks:
            raise ScheduleError(f"{self.schedule}: the count must be a multiple of its chunks")
        src, dst, *chunks, length, reduce, tag = self.transfers
        halves, insides = np.divmod(chunks, n_chunks)
        first, into = offsets[insides] + halves * count
        elements = offsets[insides[0] + length] - offsets[insides[0]]
        columns = (src, dst, first, into, elements, reduce, tag)
        rows = list(
            map(RankTransfer._make, zip(*(column.tolist() for column in columns), strict=True))
        )
        rounds = (
            tuple(row for row in rows[begin:end] if row.elements)
            for begin, end in pairwise(self.round_ends)
        )
        return RankSchedule(self.rank, count, self.order_preserving, tuple(filter(None, rounds)))


def _tags(collective: Collective, src: Int32Array, dst: Int32Array) -> list[int]:
    """How many rows between the same two ranks come before each, as tags that this collective alone
    uses: a message that nobody received, since a rank's arguments were refused, is not taken for
    one of another. MPI has 32768 tags at least.
    """
    seen, tags = Counter[tuple[int, int]](), list[int]()
    for ends in zip(src.tolist(), dst.tolist(), strict=True):
        tags.append(seen[ends] * len(_COLLECTIVES) + _COLLECTIVES.index(collective))
        seen[ends] += 1
    return tags
