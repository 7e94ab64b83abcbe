"""Two levels with several leaders per group: the vector is cut into parts with one leader each.

Inside a group every part is reduced at its leader; leaders of the same part in all groups combine
theirs between the nodes; then they give the result back to their groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tuner.algorithms.hierarchy import Hierarchy
from tuner.algorithms.round_columns import column
from tuner.base.arrays import IntArray
from tuner.core.schedule import (
    ARRIVING_OP_DST,
    DST_OP_ARRIVING,
    NO_REDUCTION,
    ColumnMap,
    Round,
    Schedule,
)


@dataclass(frozen=True, eq=False)
class MultiLeader:
    """The leaders of `n_parts` parts of `chunks_per_part` chunks each.

    Part l is led by rank l * size // n_parts of its group: leaders are spread over the group, and
    in a group with fewer ranks than parts a rank leads several of them.
    """

    hierarchy: Hierarchy
    n_parts: int
    chunks_per_part: int = 1

    @property
    def n_chunks(self) -> int:
        return self.n_parts * self.chunks_per_part

    @cached_property
    def leaders(self) -> IntArray:
        """The role that leads each part in each group, shape (groups, parts)."""
        part = np.arange(self.n_parts)
        leader: IntArray = (
            self.hierarchy.leader_roles[:, None]
            + part * self.hierarchy.group_sizes[:, None] // self.n_parts
        )
        return leader

    def reduce_to_leaders(self) -> Round:
        """Return a round in which all ranks send each part to its leader in their group.

        The next rank is served first, then the one after it, so that no port is congested.
        """
        member, leader, part = self._pairs
        nearest = np.argsort(self._distance(member, leader), kind="stable")
        return self._transfer_parts(
            member[nearest], leader[nearest], part[nearest], DST_OP_ARRIVING
        )

    def broadcast_from_leaders(self) -> Round:
        """Return a round in which leaders send their parts to all ranks of their group."""
        member, leader, part = self._pairs
        nearest = np.argsort(self._distance(leader, member), kind="stable")
        return self._transfer_parts(leader[nearest], member[nearest], part[nearest])

    def gather_from_leaders(self) -> Round:
        """Return a round in which each group's first rank gets all parts from their leaders."""
        leader, part = self._remote_parts
        return self._transfer_parts(leader, self._first_of_group(leader), part)

    def scatter_to_leaders(self) -> Round:
        """Return a round in which each group's first rank sends all parts to their leaders."""
        leader, part = self._remote_parts
        return self._transfer_parts(self._first_of_group(leader), leader, part)

    def ring_reduce_scatter(self) -> Iterator[Round]:
        """Yield rounds in which parts travel round the ring of their group to their leaders.

        They are reduced on the way. There must be as many parts as the largest group has ranks, so
        that every rank leads some.
        """
        for t in range(self.hierarchy.max_group_size - 1):
            yield self._round_of_rings(-1 - t, t, ARRIVING_OP_DST)

    def ring_allgather(self) -> Iterator[Round]:
        """Yield rounds in which every rank passes on the parts it got last, its own first."""
        for t in range(self.hierarchy.max_group_size - 1):
            yield self._round_of_rings(-t, t, NO_REDUCTION)

    def among_leaders(self, whole: Schedule) -> Iterator[Round]:
        """Yield the rounds of `whole` among the leaders of every part at once.

        whole   schedule for as many ranks as there are groups
        """
        part = np.arange(self.n_parts) * self.chunks_per_part
        leaders = ColumnMap(lambda ranks: self.leaders[ranks].reshape(-1))
        repeated = ColumnMap(lambda values: np.repeat(values, self.n_parts))
        for r in whole.rounds():
            first = into = column((r.src_chunk[:, None] + part).reshape(-1))
            if r.dst_chunk is not r.src_chunk:
                into = column((r.dst_chunk[:, None] + part).reshape(-1))
            count, reduce = repeated(r.count), repeated(r.reduce)
            yield Round(leaders(r.src), leaders(r.dst), first, into, count, reduce)

    @cached_property
    def _pairs(self) -> tuple[IntArray, IntArray, IntArray]:
        """(member, leader, part) for every rank and every part that another rank leads.

        Raises InputError for groups whose ranks cannot all exchange at once.
        """
        self.hierarchy.check_round_size(self.n_parts)
        member = np.repeat(np.arange(self.hierarchy.p), self.n_parts)
        part = np.tile(np.arange(self.n_parts), self.hierarchy.p)
        leader = np.repeat(self.leaders, self.hierarchy.group_sizes, axis=0).reshape(-1)
        other = member != leader
        return member[other], leader[other], part[other]

    @property
    def _remote_parts(self) -> tuple[IntArray, IntArray]:
        """(leader, part) for every part that the first rank of a group does not lead."""
        group, part = np.nonzero(self.leaders != self.hierarchy.leader_roles[:, None])
        return self.leaders[group, part], part

    def _first_of_group(self, role: IntArray) -> IntArray:
        first: IntArray = self.hierarchy.leader_roles[self.hierarchy.group_of(role)]
        return first

    def _distance(self, src: IntArray, dst: IntArray) -> IntArray:
        """Return the number of ranks from `src` down to `dst`, round its group."""
        distance: IntArray = (src - dst) % self.hierarchy.group_sizes[self.hierarchy.group_of(src)]
        return distance

    def _transfer_parts(
        self, src: IntArray, dst: IntArray, part: IntArray, reduce: int = NO_REDUCTION
    ) -> Round:
        return Round.of(
            src, dst, part * self.chunks_per_part, count=self.chunks_per_part, reduce=reduce
        )

    def _round_of_rings(self, shift: int, t: int, reduce: int) -> Round:
        """Return a round in which, in groups of more than t + 1 ranks, each rank sends to the next.

        Rank i sends the parts that rank i + shift leads.
        """
        role = np.flatnonzero(
            np.repeat(self.hierarchy.group_sizes, self.hierarchy.group_sizes) > t + 1
        )
        start = self._first_of_group(role)
        size = self.hierarchy.group_sizes[self.hierarchy.group_of(role)]
        owner = (role - start + shift) % size
        begin, end = (-(-i * self.n_parts // size) for i in (owner, owner + 1))
        to = start + (role - start + 1) % size
        count = (end - begin) * self.chunks_per_part
        return Round.of(role, to, begin * self.chunks_per_part, count=count, reduce=reduce)
