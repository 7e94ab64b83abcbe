"""The transfers of one rank in a schedule, in chunks and in elements."""

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
    """One transfer of one rank, in elements; offsets from the count on are in scratch memory.

    reduce  code of the reduction on arrival, or NO_REDUCTION
    tag     tag of the message; collectives have distinct tags (see `_tags`)
    """

    src: int
    dst: int
    src_offset: int
    dst_offset: int
    elements: int
    reduce: int
    tag: int

    def reads_from(self, written: Sequence[tuple[int, int]]) -> bool:
        """Return whether its source overlaps any of these ranges (offset, length) of elements."""
        end = self.src_offset + self.elements
        return any(self.src_offset < into + length and into < end for into, length in written)


@dataclass(frozen=True)
class RankSchedule:
    """The transfers of one rank by round, for buffers of `count` elements.

    order_preserving    whether operands stay in rank order, as the verifier found
    """

    rank: int
    count: int
    order_preserving: bool
    rounds: tuple[tuple[RankTransfer, ...], ...]

    @classmethod
    def from_schedule(cls, schedule: Schedule, rank: int, count: int) -> RankSchedule:
        """Return the transfers of a rank.

        Raises ScheduleError when the count is not divisible as the schedule needs.
        """
        return RankScheduleTemplate.from_schedule(schedule, rank).with_count(count)

    @property
    def extra_elements(self) -> int:
        """The number of elements needed beyond the buffer: scratch, then arrivals."""
        return self.scratch_elements + max(map(self._arriving_elements, self.rounds), default=0)

    @property
    def scratch_elements(self) -> int:
        """The number of scratch elements that transfers use, rounded up to multiples of `count`."""
        ends = (
            max(row.src_offset, row.dst_offset) + row.elements
            for rows in self.rounds
            for row in rows
        )
        return max(0, -(-max(ends, default=0) // max(self.count, 1)) - 1) * self.count

    def _arriving_elements(self, transfers: tuple[RankTransfer, ...]) -> int:
        """Return the number of elements that are reduced in a round."""
        return sum(
            row.elements for row in transfers if row.dst == self.rank and row.reduce != NO_REDUCTION
        )


@dataclass(frozen=True, eq=False)
class RankScheduleTemplate:
    """The transfers of one rank in a schedule, in chunks, for any number of elements.

    schedule            the schedule without its rounds
    transfers           this rank's transfers of all rounds, shape (7, transfers): the columns of a
                        Round, then the tags
    round_ends          0, then the number of transfers up to the end of each round
    message_chunks      chunks of the longest message of any rank
    has_shifted_chunks  whether some rank moves a chunk to a slot of another index. It is the same
                        on all ranks, so all refuse the same counts and none waits for another
    """

    schedule: Schedule
    rank: int
    order_preserving: bool
    transfers: IntArray
    round_ends: tuple[int, ...]
    message_chunks: int
    has_shifted_chunks: bool

    @classmethod
    def from_schedule(cls, schedule: Schedule, rank: int) -> RankScheduleTemplate:
        """Collect the transfers of a rank from all rounds of a schedule."""
        parts, ends, shifts, longest = [np.empty((7, 0), np.int64)], [0], False, 0
        for r in schedule.rounds():
            own = r.select((r.src == rank) | (r.dst == rank)).consecutive().columns
            parts.append(np.array([*own, _tags(schedule.collective, own[0], own[1])], np.int64))
            ends.append(ends[-1] + len(own[0]))
            longest = max(longest, int(r.count[r.src != r.dst].max(initial=0)))
            shifts |= r.has_runs or bool(((r.src_chunk - r.dst_chunk) % schedule.n_chunks).any())
        ordered = (
            schedule.collective.is_reduction and schedule_properties(schedule).order_preserving
        )
        rows, bare = np.concatenate(parts, axis=1), replace(schedule, make_rounds=tuple)
        return cls(bare, rank, ordered, rows, tuple(ends), longest, shifts)

    def with_count(self, count: int, itemsize: int = 1) -> RankSchedule:
        """Convert chunks to elements for buffers of `count` elements of `itemsize` bytes.

        Raises ScheduleError for a count that is not divisible as needed.
        """
        n_chunks, offsets = self.schedule.n_chunks, self.schedule.offsets(count, itemsize)
        if not self.schedule.fits(count * itemsize, self.message_chunks):
            raise ScheduleError(f"{self.schedule}: {count * itemsize} bytes are too many")
        if self.has_shifted_chunks and (np.diff(offsets) * n_chunks != count).any():
            raise ScheduleError(f"{self.schedule}: the count must be a multiple of its chunks")
        src, dst, *chunks, length, reduce, tag = self.transfers
        halves, insides = np.divmod(chunks, n_chunks)
        first, into = offsets[insides] + halves * count
        elements = self.schedule.elements(chunks[0], length, count, itemsize)
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
    """Return the tag of each transfer, distinct between the collectives.

    A tag encodes the number of earlier transfers between the same two ranks and the collective. So
    a message that was never received, because a rank's arguments were refused, does not match a
    receive of another collective. MPI has at least 32768 tags.
    """
    seen, tags = Counter[tuple[int, int]](), list[int]()
    for ends in zip(src.tolist(), dst.tolist(), strict=True):
        tags.append(seen[ends] * len(_COLLECTIVES) + _COLLECTIVES.index(collective))
        seen[ends] += 1
    return tags
