"""Two levels: groups of consecutive ranks that share a node, and the leaders of the groups.

The last group may be smaller. A root leads its own group.

Ranks are numbered by role here: the groups one after the other from the root's on, each with its
leader first; `relabel` gives the roles to the real ranks in the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Reversible
from dataclasses import dataclass, replace
from functools import cache
from itertools import count, islice

import numpy as np
from numpy.typing import ArrayLike

from tuner.algorithms import trees
from tuner.algorithms.round_columns import merge_rounds
from tuner.base.arrays import IntArray
from tuner.base.errors import InputError
from tuner.core.schedule import Round, Schedule, relabel

MAX_ROUND_TRANSFERS = 1 << 22  # transfers of one round, which is held in memory


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """The roles of p ranks in groups.

    start, size     first role (the leader) and number of roles of each group, shape (groups,)
    rank_of         the rank that plays each role, shape (p,)
    """

    leader_roles: IntArray
    group_sizes: IntArray
    rank_of_role: IntArray

    @classmethod
    def of(cls, p: int, group: int, root: int = 0) -> Hierarchy:
        """Groups of `group` ranks, or one of all; the root's, the first, begins with the root."""
        bounds = np.append(np.arange(0, p, min(group, p)), p)
        home = root // group
        ranks = np.arange(p)
        ranks[bounds[home] : bounds[home + 1]] = np.roll(
            ranks[bounds[home] : bounds[home + 1]], bounds[home] - root
        )
        size = np.roll(np.diff(bounds), -home)
        return cls(np.cumsum(size) - size, size, np.roll(ranks, -bounds[home]))

    @property
    def p(self) -> int:
        """Number of ranks."""
        return len(self.rank_of_role)

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.leader_roles)

    @property
    def max_group_size(self) -> int:
        """Ranks of the largest group."""
        return int(self.group_sizes.max())

    def check_round_size(self, parts: int) -> None:
        """InputError when rounds in which every rank exchanges `parts` parts are too long."""
        if self.p * parts > MAX_ROUND_TRANSFERS:
            raise InputError(
                f"{self.p} ranks in groups of {self.max_group_size} would exchange {self.p * parts}"
                " messages at once: use smaller groups"
            )

    def group_of(self, role: ArrayLike) -> IntArray:
        """The number of the group that a role belongs to."""
        group: IntArray = np.searchsorted(self.leader_roles, role, side="right") - 1
        return group

    def among_leaders(self, part: Schedule) -> Schedule:
        """One level up: `part` runs on the leaders."""
        return relabel(part, self.leader_roles, p=self.p)

    def in_each_group(self, part: Schedule) -> Schedule:
        """One level down: all groups at once do what `part` says for the largest of them.

        A smaller group leaves out the ranks that it lacks, which are the highest: no rank may hang
        on a higher one. In chains and binomial trees none does.
        """

        def make() -> Iterator[Round]:
            for r in part.rounds():
                group, row = np.nonzero(np.maximum(r.src, r.dst) < self.group_sizes[:, None])
                start, own = self.leader_roles[group], r.select(row)
                yield Round.of(start + own.src, start + own.dst, *own.columns[2:])

        return Schedule(part.collective, self.p, part.n_chunks, make)

    def pipeline_segments(self, whole: Schedule, n_segments: int) -> Schedule:
        """`whole` for `number` equal segments, each one round behind the segment before it.

        Messages between groups go before others: who waits for a port waits for the network.
        """
        if n_segments == 1:
            return whole

        def make() -> Iterator[Round]:
            source = enumerate(whole.rounds())
            under_way: deque[tuple[int, Round]] = deque()  # with the number of each round
            made, of_round = Round.of([], [], []), -1
            for t in count():
                come = list(islice(source, 1))
                gone = bool(under_way) and t - under_way[0][0] == n_segments
                under_way.extend(come)
                if gone:
                    under_way.popleft()
                if not under_way:
                    return
                if come or gone:
                    made, of_round = (
                        self._overlap_rounds(under_way, t, n_segments, whole.n_chunks),
                        t,
                    )
                yield _shift_chunks(made, (t - of_round) * whole.n_chunks)

        return Schedule(
            whole.collective,
            self.p,
            n_segments * whole.n_chunks,
            make,
            staged=whole.staged,
            in_network=whole.in_network,
        )

    def _overlap_rounds(
        self, under_way: Reversible[tuple[int, Round]], t: int, n_segments: int, n_chunks: int
    ) -> Round:
        """Round s of the only segment becomes that of segment t - s of several, for all s."""
        rounds = [*reversed(under_way)]
        both = merge_rounds([r for _, r in rounds])
        inside = self.group_of(both.src) == self.group_of(both.dst)
        segment = np.repeat([t - s for s, _ in rounds], [len(r) for _, r in rounds])
        first, into = (
            chunk + (segment + np.where(chunk >= n_chunks, n_segments - 1, 0)) * n_chunks
            for chunk in (both.src_chunk, both.dst_chunk)
        )
        made = Round.of(both.src, both.dst, first, into, both.count, both.reduce)
        return made.select(np.argsort(inside, kind="stable"))

    def tree(self, leaders: trees.Tree, inside: Callable[[int], trees.Tree]) -> trees.Tree:
        """The tree `leaders` of leaders; each serves its children there first, then its group.

        inside      the tree of a group of so many ranks
        """
        tree_of = cache(inside)
        children: list[list[int]] = []
        for start, size in zip(self.leader_roles.tolist(), self.group_sizes.tolist(), strict=True):
            children += [[start + c for c in served] for served in tree_of(size)]
        for start, served in zip(self.leader_roles.tolist(), leaders, strict=True):
            children[start] = [*self.leader_roles[list(served)].tolist(), *children[start]]
        return children


def split_chunks(part: Schedule, pieces_per_chunk: int) -> Schedule:
    """The same with every chunk cut into `pieces`, which travel together."""

    def make() -> Iterator[Round]:
        for r in part.rounds():
            yield Round.of(
                r.src,
                r.dst,
                r.src_chunk * pieces_per_chunk,
                r.dst_chunk * pieces_per_chunk,
                r.count * pieces_per_chunk,
                r.reduce,
            )

    return replace(part, n_chunks=part.n_chunks * pieces_per_chunk, make_rounds=make)


def _shift_chunks(r: Round, chunks: int) -> Round:
    """The same with chunks so many further on; the columns that stay are the very same ones."""
    if not chunks:
        return r
    further = np.int64(chunks)
    return Round.of(r.src, r.dst, r.src_chunk + further, r.dst_chunk + further, r.count, r.reduce)
