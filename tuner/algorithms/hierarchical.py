"""Two levels: groups of consecutive ranks that share a node, and the leaders of the groups.

Messages between nodes pass between leaders alone, so that a node's network port carries each byte
once however many ranks it hosts. The last group may be smaller. A root leads its own group.

Ranks are numbered by role here: the groups one after the other from the root's on, each with its
leader first; `relabel` gives the roles to the real ranks in the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tuner.algorithms import allreduce, bcast, reduce, trees
from tuner.algorithms.registry import algorithm, segments
from tuner.collective import Collective
from tuner.schedule import Round, Schedule, concat, relabel

BCAST, ALLREDUCE = Collective.BCAST, Collective.ALLREDUCE
Ranks = NDArray[np.int64]


@dataclass(frozen=True)
class _Levels:
    """The roles of p ranks in groups.

    start, size     first role (the leader) and number of roles of each group, shape (groups,)
    rank_of         the rank that plays each role, shape (p,)
    """

    start: Ranks
    size: Ranks
    rank_of: Ranks

    @classmethod
    def of(cls, p: int, group: int, root: int = 0) -> _Levels:
        bounds = np.append(np.arange(0, p, group), p)
        home = root // group
        ranks = np.arange(p)
        ranks[bounds[home] : bounds[home + 1]] = np.roll(
            ranks[bounds[home] : bounds[home + 1]], bounds[home] - root
        )
        size = np.roll(np.diff(bounds), -home)
        return cls(np.cumsum(size) - size, size, np.roll(ranks, -bounds[home]))

    @property
    def p(self) -> int:
        return len(self.rank_of)

    @property
    def largest(self) -> int:
        return int(self.size.max())

    def among_leaders(self, part: Schedule) -> Schedule:
        """One level up: `part` runs on the leaders."""
        return relabel(part, self.start, p=self.p)

    def in_each(self, part: Schedule) -> Schedule:
        """One level down: all groups at once do what `part` says for the largest of them.

        A smaller group leaves out the ranks that it lacks, which are the highest: no rank may hang
        on a higher one. In binomial trees none does.
        """

        def make() -> Iterator[Round]:
            for r in part.rounds():
                group, row = np.nonzero(np.maximum(r.src, r.dst) < self.size[:, None])
                start, own = self.start[group], r.take(row)
                yield Round.of(start + own.src, start + own.dst, *own.columns[2:])

        return Schedule(part.collective, self.p, part.n_chunks, make)

    def overlapped(self, whole: Schedule, number: int) -> Schedule:
        """`whole`, a schedule of one chunk, for `number` chunks, each one round behind the last.

        Leaders serve each other before their groups: who waits for a port waits for the network.
        """

        def make() -> Iterator[Round]:
            rounds = list(whole.rounds())
            for t in range(number + len(rounds) - 1 if rounds else 0):
                under_way = range(max(0, t - len(rounds) + 1), min(t + 1, number))
                both = _joined([_of_chunk(rounds[t - chunk], chunk) for chunk in under_way])
                inside = ~np.isin(both.src, self.start) | ~np.isin(both.dst, self.start)
                yield both.take(np.argsort(inside, kind="stable"))

        return Schedule(whole.collective, self.p, number, make)

    def tree(self) -> trees.Tree:
        """A line of leaders; each serves the next one first, then a binomial tree of its group."""
        children: list[list[int]] = []
        for start, size in zip(self.start.tolist(), self.size.tolist(), strict=True):
            children += [[start + c for c in served] for served in trees.binomial(size)]
        for leader, following in pairwise(self.start.tolist()):
            children[leader].insert(0, following)
        return children


@algorithm(BCAST, "hierarchical")
def broadcast(p: int, root: int, nbytes: int, group: int = 4, segment: int = 0) -> Schedule:
    """Binomial over the leaders of groups of consecutive ranks, then binomial inside each group.

    Segmented, segments flow down a line of leaders, and a leader hands one on inside its group
    while the next one arrives.

    Cost: at most (ceil(log2 G) + ceil(log2 g)) (alpha + m beta) unsegmented,
    (G + ceil(log2 g) + S - 2) (alpha + (1 + ceil(log2 g)) m/S beta) segmented,
    with groups of g ranks, G of them
    Source: hierarchical broadcast of MVAPICH2-GDR (arXiv 1707.09414), Open MPI coll_han_bcast.c;
    docs/cost-formulas.md
    """
    levels = _Levels.of(p, group, root)
    if segment > 0:
        both = trees.broadcast(levels.tree(), segments(nbytes, segment))
    else:
        both = concat(
            BCAST,
            levels.among_leaders(bcast.binomial(len(levels.start), 0, 0)),
            levels.in_each(bcast.binomial(levels.largest, 0, 0)),
        )
    return relabel(both, levels.rank_of, root=root)


@algorithm(ALLREDUCE, "hierarchical")
def combine(p: int, nbytes: int, group: int = 4, segment: int = 0) -> Schedule:
    """Binomial reduce to the leader of each group, recursive doubling of leaders, binomial bcast.

    Segmented, a segment is reduced inside the groups while the one before it travels between the
    leaders, and so on.

    Cost: (2 log2 g + log2 G) (alpha + m beta) + (log2 g (log2 g + 1)/2 + log2 G) m gamma,
    unsegmented, groups of g ranks, G of them, both powers of two
    Source: Open MPI coll_han_allreduce.c; SALaR (CLUSTER 2018) for the overlap;
    docs/cost-formulas.md
    """
    levels = _Levels.of(p, group)
    whole = concat(
        ALLREDUCE,
        levels.in_each(reduce.binomial(levels.largest, 0, 0)),
        levels.among_leaders(allreduce.recursive_doubling(len(levels.start))),
        levels.in_each(bcast.binomial(levels.largest, 0, 0)),
    )
    return levels.overlapped(whole, segments(nbytes, segment))


def _of_chunk(r: Round, chunk: int) -> Round:
    return Round.of(r.src, r.dst, chunk, reduce=r.reduce)


def _joined(rounds: list[Round]) -> Round:
    columns = zip(*(r.columns for r in rounds), strict=True)
    return Round.of(*(np.concatenate(column) for column in columns))
