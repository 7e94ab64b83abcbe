"""Nested rings: groups of consecutive ranks, whose members pass chunks round.

One round passes a chunk per rank on to the next group; then the group passes these round, and so
on: p - 1 rounds as in a ring, but few between groups, and none that all groups must wait for.
Groups have as many ranks as requested, or the largest divisor of p below that.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tuner.algorithms import rings
from tuner.algorithms.hierarchy import even_group_size
from tuner.algorithms.registry import algorithm
from tuner.algorithms.round_columns import RotatedColumn, column
from tuner.base.arrays import Int32Array
from tuner.core.collective import Collective
from tuner.core.schedule import Round, Schedule, concat

ALLGATHER, REDUCE_SCATTER = Collective.ALLGATHER, Collective.REDUCE_SCATTER


class KRing:
    """The p ranks as a table of groups by members, with the columns that rounds share."""

    def __init__(self, p: int, group: int) -> None:
        self.group_size = even_group_size(p, group)
        self.n_groups = p // self.group_size
        ranks = np.arange(p).reshape(self.n_groups, self.group_size)
        self.ranks, _, self.no_reduction, self.reduction = rings.ring(p)
        self.next_in_group = column(np.roll(ranks, -1, axis=1).reshape(-1))
        self.next_group = column(np.roll(ranks, -1, axis=0).reshape(-1))
        self.chunk_count = column(1, p)
        self._chunks = [
            RotatedColumn(np.roll(ranks, k, axis=1).reshape(-1)) for k in range(self.group_size)
        ]

    def steps(self) -> list[tuple[int, int]]:
        """Return (group, member) per round: how far the chunks are from their owners.

        Member 0 means that chunks go on to the next group.
        """
        return [
            (group, member) for group in range(self.n_groups) for member in range(self.group_size)
        ][1:]

    def target_and_chunk(self, step: tuple[int, int]) -> tuple[Int32Array, Int32Array]:
        """Return to which rank every rank sends in a round, and which chunk."""
        group, member = step
        if member == 0:
            return self.next_group, self._chunk(group - 1, 0)
        return self.next_in_group, self._chunk(group, member - 1)

    def _chunk(self, group: int, member: int) -> Int32Array:
        """Return for each rank the chunk that is this far from its owner."""
        return self._chunks[member].at(-group * self.group_size)

    def allgather_rounds(self) -> Iterator[Round]:
        """Yield rounds in which every chunk reaches all ranks."""
        for turn in self.steps():
            dst, chunk = self.target_and_chunk(turn)
            yield Round(self.ranks, dst, chunk, chunk, self.chunk_count, self.no_reduction)

    def reduce_scatter_rounds(self) -> Iterator[Round]:
        """Yield the rounds of the allgather reversed, with reduction."""
        for turn in reversed(self.steps()):
            src, chunk = self.target_and_chunk(turn)
            yield Round(src, self.ranks, chunk, chunk, self.chunk_count, self.reduction)


@algorithm(ALLGATHER, "k_ring")
def allgather(p: int, group: int = 4) -> Schedule:
    """Pass chunks round a ring of groups, each of which is a ring itself.

    Cost: (p-1) alpha + (p-1)/p m beta, m the whole buffer; p/group - 1 rounds between groups
    Source: the k-ring of "Generalized Collective Algorithms for the Exascale Era" (CLUSTER 2023)
    """
    return Schedule(ALLGATHER, p, p, KRing(p, group).allgather_rounds)


@algorithm(REDUCE_SCATTER, "k_ring")
def reduce_scatter(p: int, group: int = 4) -> Schedule:
    """Run the k-ring allgather in reverse, with a reduction at each rank.

    Cost: (p-1) alpha + (p-1)/p m (beta + gamma), m the whole vector
    Source: the k-ring of "Generalized Collective Algorithms for the Exascale Era" (CLUSTER 2023)
    """
    return Schedule(REDUCE_SCATTER, p, p, KRing(p, group).reduce_scatter_rounds)


@algorithm(Collective.ALLREDUCE, "k_ring")
def allreduce(p: int, group: int = 4) -> Schedule:
    """Reduce-scatter, then allgather, both over the k-ring.

    Cost: 2 (p-1) alpha + (p-1)/p m (2 beta + gamma)
    Source: the k-ring of "Generalized Collective Algorithms for the Exascale Era" (CLUSTER 2023)
    """
    return concat(Collective.ALLREDUCE, reduce_scatter(p, group), allgather(p, group))
