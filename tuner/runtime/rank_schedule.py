"""What one rank does in a schedule, for one number of elements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tuner.algorithms import facts_of
from tuner.base.arrays import Int32Array, IntArray
from tuner.base.errors import ScheduleError
from tuner.core.collective import Collective
from tuner.core.schedule import NO_REDUCTION, Schedule

_COLLECTIVES = tuple(Collective)


class Row(NamedTuple):
    """One transfer as one rank sees it, in elements; places beyond the count are scratch.

    tag     of the message: other collectives have others (`_tags`)
    """

    src: int
    dst: int
    first: int
    into: int
    elements: int
    reduce: int
    tag: int

    @property
    def folds(self) -> bool:
        """Its target changes with the folds of the round, not on arrival."""
        return self.src == self.dst or self.reduce != NO_REDUCTION

    def reads(self, written: Sequence[tuple[int, int]]) -> bool:
        """Whether what it sends is among these runs of elements (place, length)."""
        end = self.first + self.elements
        return any(self.first < into + length and into < end for into, length in written)


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
        """Raises ScheduleError when the count is not divisible as the schedule needs."""
        return Outline.of(schedule, rank).part(count)

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
        return sum(row.elements for row in rows if row.dst == self.rank and row.folds)


@dataclass(frozen=True, eq=False)
class Outline:
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
    rows: IntArray
    ends: tuple[int, ...]
    shifts: bool

    @classmethod
    def of(cls, schedule: Schedule, rank: int) -> Outline:
        """Looks at every row."""
        parts, ends, shifts = [np.empty((7, 0), np.int64)], [0], False
        for r in schedule.rounds():
            mine = np.flatnonzero((r.src == rank) | (r.dst == rank))
            own = [column[mine] for column in r.columns]
            parts.append(np.array([*own, _tags(schedule.collective, own[0], own[1])], np.int64))
            ends.append(ends[-1] + len(mine))
            shifts |= bool(((r.first - r.into) % schedule.n_chunks).any())
        ordered = schedule.collective.reduces and facts_of(schedule).order_preserving
        rows, bare = np.concatenate(parts, axis=1), replace(schedule, make=tuple)
        return cls(bare, rank, ordered, rows, tuple(ends), shifts)

    def part(self, count: int) -> Part:
        """The same in elements. Raises ScheduleError for a count that does not divide as needed."""
        n_chunks, offsets = self.schedule.n_chunks, self.schedule.offsets(count)
        if self.shifts and count % n_chunks:
            raise ScheduleError(f"{self.schedule}: the count must be a multiple of its chunks")
        src, dst, *chunks, length, reduce, tag = self.rows
        halves, insides = np.divmod(chunks, n_chunks)
        first, into = offsets[insides] + halves * count
        elements = offsets[insides[0] + length] - offsets[insides[0]]
        columns = (src, dst, first, into, elements, reduce, tag)
        rows = list(map(Row._make, zip(*(column.tolist() for column in columns), strict=True)))
        rounds = (
            tuple(row for row in rows[begin:end] if row.elements)
            for begin, end in pairwise(self.ends)
        )
        return Part(self.rank, count, self.order_preserving, tuple(filter(None, rounds)))


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
