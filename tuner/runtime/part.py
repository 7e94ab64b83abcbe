"""What one rank does in a schedule, for one number of elements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuner.algorithms import facts_of
from tuner.errors import ScheduleError
from tuner.schedule import NO_REDUCTION, Round, Schedule


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
        return sum(row.elements for row in rows if row.dst == self.rank and row.folds)


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
