"""Two levels: groups of consecutive ranks that share a node, and the leaders of the groups.

The last group may be smaller. A root leads its own group.

Schedules here number ranks by role: group after group, beginning with the root's, each with its
leader first. `relabel` maps the roles to the real ranks in the end.
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
from tuner.core.schedule import MAX_ROUND_TRANSFERS, Round, Schedule, relabel


def even_group_size(p: int, group: int) -> int:
    """Return the largest divisor of p that is at most `group`."""
    return max(size for size in range(1, min(p, group) + 1) if p % size == 0)


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """The roles of p ranks in groups.

    leader_roles    first role of each group, which is its leader, shape (groups,)
    group_sizes     number of ranks of each group, shape (groups,)
    rank_of_role    rank that has each role, shape (p,)
    """

    leader_roles: IntArray
    group_sizes: IntArray
    rank_of_role: IntArray

    @classmethod
    def of(cls, p: int, group: int, root: int = 0) -> Hierarchy:
        """Return groups of `group` ranks; the root's group is first and begins with the root.

        If p is at most `group`, all ranks form one group.
        """
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
        return len(self.rank_of_role)

    @property
    def n_groups(self) -> int:
        return len(self.leader_roles)

    @property
    def max_group_size(self) -> int:
        return int(self.group_sizes.max())

    def check_round_size(self, parts: int) -> None:
        """Raise InputError when rounds in which all ranks exchange `parts` parts are too large."""
        if self.p * parts > MAX_ROUND_TRANSFERS:
            raise InputError(
                f"{self.p} ranks in groups of {self.max_group_size} would exchange {self.p * parts}"
                " messages at once: use smaller groups"
            )

    def group_of(self, role: ArrayLike) -> IntArray:
        """Return the number of the group that each role belongs to."""
        group: IntArray = np.searchsorted(self.leader_roles, role, side="right") - 1
        return group

    def among_leaders(self, part: Schedule) -> Schedule:
        """Return a schedule that runs `part` on the leaders."""
        return relabel(part, self.leader_roles, p=self.p)

    def in_each_group(self, part: Schedule) -> Schedule:
        """Return a schedule that runs `part`, made for the largest group, in all groups at once.

        A smaller group leaves out the ranks that it lacks, which are the highest, so no rank may
        depend on a higher one. This holds in chains and binomial trees.
        """

        def make() -> Iterator[Round]:
            for r in part.rounds():
                group, row = np.nonzero(np.maximum(r.src, r.dst) < self.group_sizes[:, None])
                start, own = self.leader_roles[group], r.select(row)
                yield Round.of(start + own.src, start + own.dst, *own.columns[2:])

        return Schedule(part.collective, self.p, part.n_chunks, make)

    def pipeline_segments(self, whole: Schedule, n_segments: int) -> Schedule:
        """Return `whole` repeated for equal segments, each one round behind the one before it.

        In each round, messages between groups go before others, so that a port that is waited for
        does not delay the network.
        """
        if n_segments == 1:
            return whole

        def make() -> Iterator[Round]:
            source = enumerate(whole.rounds())
            under_way: deque[tuple[int, Round]] = deque()  # with round numbers in `whole`
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
                    made = self._overlap_rounds(under_way, t, n_segments, whole.n_chunks)
                    of_round = t
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
        """Return round t of several segments: round s of `whole` for segment t - s, for all s.

        under_way   (s, round s) of the rounds that overlap
        n_chunks    number of chunks of one segment
        """
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
        """Return a tree of all roles.

        leaders     tree of the leaders; each serves its children in it first, then its group
        inside      returns the tree of a group of a given size
        """
        tree_of = cache(inside)
        children: list[list[int]] = []
        for start, size in zip(self.leader_roles.tolist(), self.group_sizes.tolist(), strict=True):
            children += [[start + c for c in served] for served in tree_of(size)]
        for start, served in zip(self.leader_roles.tolist(), leaders, strict=True):
            children[start] = [*self.leader_roles[list(served)].tolist(), *children[start]]
        return children


def split_chunks(part: Schedule, pieces_per_chunk: int) -> Schedule:
    """Return the schedule with every chunk split into pieces, which travel together."""

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
    """Return the round with its chunks moved by `chunks`; unchanged columns are not copied."""
    if not chunks:
        return r
    further = np.int64(chunks)
    return Round.of(r.src, r.dst, r.src_chunk + further, r.dst_chunk + further, r.count, r.reduce)
