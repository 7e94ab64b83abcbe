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
from tuner.algorithms.round_columns import together
from tuner.base.arrays import IntArray
from tuner.base.errors import InputError
from tuner.core.schedule import Round, Schedule, relabel

MOST_AT_ONCE = 1 << 22  # transfers of one round, which is held in memory


@dataclass(frozen=True, eq=False)
class Levels:
    """The roles of p ranks in groups.

    start, size     first role (the leader) and number of roles of each group, shape (groups,)
    rank_of         the rank that plays each role, shape (p,)
    """

    start: IntArray
    size: IntArray
    rank_of: IntArray

    @classmethod
    def of(cls, p: int, group: int, root: int = 0) -> Levels:
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
        return len(self.rank_of)

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.start)

    @property
    def largest(self) -> int:
        """Ranks of the largest group."""
        return int(self.size.max())

    def require_few(self, parts: int) -> None:
        """InputError when rounds in which every rank exchanges `parts` parts are too long."""
        if self.p * parts > MOST_AT_ONCE:
            raise InputError(
                f"{self.p} ranks in groups of {self.largest} would exchange {self.p * parts}"
                " messages at once: use smaller groups"
            )

    def group_of(self, role: ArrayLike) -> IntArray:
        """The number of the group that a role belongs to."""
        group: IntArray = np.searchsorted(self.start, role, side="right") - 1
        return group

    def among_leaders(self, part: Schedule) -> Schedule:
        """One level up: `part` runs on the leaders."""
        return relabel(part, self.start, p=self.p)

    def in_each(self, part: Schedule) -> Schedule:
        """One level down: all groups at once do what `part` says for the largest of them.

        A smaller group leaves out the ranks that it lacks, which are the highest: no rank may hang
        on a higher one. In chains and binomial trees none does.
        """

        def make() -> Iterator[Round]:
            for r in part.rounds():
                group, row = np.nonzero(np.maximum(r.src, r.dst) < self.size[:, None])
                start, own = self.start[group], r.take(row)
                yield Round.of(start + own.src, start + own.dst, *own.columns[2:])

        return Schedule(part.collective, self.p, part.n_chunks, make)

    def overlapped(self, whole: Schedule, number: int) -> Schedule:
        """`whole` for `number` equal segments, each one round behind the segment before it.

        Messages between groups go before others: who waits for a port waits for the network.
        """
        if number == 1:
            return whole

        def make() -> Iterator[Round]:
            source = enumerate(whole.rounds())
            under_way: deque[tuple[int, Round]] = deque()  # with the number of each round
            made, of_round = Round.of([], [], []), -1
            for t in count():
                come = list(islice(source, 1))
                gone = bool(under_way) and t - under_way[0][0] == number
                under_way.extend(come)
                if gone:
                    under_way.popleft()
                if not under_way:
                    return
                if come or gone:
                    made, of_round = self._at_once(under_way, t, number, whole.n_chunks), t
                yield _later(made, (t - of_round) * whole.n_chunks)

        return Schedule(
            whole.collective,
            self.p,
            number * whole.n_chunks,
            make,
            staged=whole.staged,
            in_network=whole.in_network,
        )

    def _at_once(
        self, under_way: Reversible[tuple[int, Round]], t: int, number: int, n_chunks: int
    ) -> Round:
        """Round s of the only segment becomes that of segment t - s of several, for all s."""
        rounds = [*reversed(under_way)]
        both = together([r for _, r in rounds])
        inside = self.group_of(both.src) == self.group_of(both.dst)
        segment = np.repeat([t - s for s, _ in rounds], [len(r) for _, r in rounds])
        first, into = (
            chunk + (segment + np.where(chunk >= n_chunks, number - 1, 0)) * n_chunks
            for chunk in (both.first, both.into)
        )
        made = Round.of(both.src, both.dst, first, into, both.count, both.reduce)
        return made.take(np.argsort(inside, kind="stable"))

    def tree(self, leaders: trees.Tree, inside: Callable[[int], trees.Tree]) -> trees.Tree:
        """The tree `leaders` of leaders; each serves its children there first, then its group.

        inside      the tree of a group of so many ranks
        """
        tree_of = cache(inside)
        children: list[list[int]] = []
        for start, size in zip(self.start.tolist(), self.size.tolist(), strict=True):
            children += [[start + c for c in served] for served in tree_of(size)]
        for start, served in zip(self.start.tolist(), leaders, strict=True):
            children[start] = [*self.start[list(served)].tolist(), *children[start]]
        return children


def finer(part: Schedule, pieces: int) -> Schedule:
    """The same with every chunk cut into `pieces`, which travel together."""

    def make() -> Iterator[Round]:
        for r in part.rounds():
            yield Round.of(
                r.src, r.dst, r.first * pieces, r.into * pieces, r.count * pieces, r.reduce
            )

    return replace(part, n_chunks=part.n_chunks * pieces, make=make)


def _later(r: Round, chunks: int) -> Round:
    """The same with chunks so many further on; the columns that stay are the very same ones."""
    if not chunks:
        return r
    further = np.int64(chunks)
    return Round.of(r.src, r.dst, r.first + further, r.into + further, r.count, r.reduce)
