"""Which choice is expected to be the fastest at a call, and how sizes of node counts compare."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from tuner.select.belief import Beliefs
from tuner.select.dataset import NOISE, Point, Row, by_point
from tuner.select.support import Support
from tuner.table import Choice

Choose = Callable[[Point, Collection[Choice]], Choice]  # one of those, or the default
Learn = Callable[[Sequence[Row], bool], Choose]  # from rows; whether sizes compare per node

_LONE = 0.5  # gain that is believed although not all shapes around speak for the choice
_MOST = 1.0  # a call that is slower than the best by more counts as by so much
_FOLDS = 5  # node counts that are left out in turn


class Guess:
    """Of one collective in one kind of memory.

    What won at the nearest measured call keeps its place unless another is expected to be faster
    by more than noise: beliefs that hardly differ, far from all measurements, are no reason to
    leave what is known to win next door. A choice that lacks on one of the shapes around needs much
    more, since nothing tells how it came to lack there; and of winners that tie within noise one
    that is known on all of them is taken.
    """

    def __init__(self, beliefs: Beliefs, rows: Sequence[Row], support: Support) -> None:
        self._beliefs, self._support = beliefs, support
        fastest = {point: _winners(own) for point, own in by_point(rows).items()}
        self._places = np.array([self._place(point) for point in fastest])
        self._winners = list(fastest.values())

    def choose(self, point: Point, candidates: Sequence[Choice]) -> Choice:
        """One of these."""
        found = self._beliefs.belief(point, candidates)
        nearest = self._nearest_winner(point, candidates)
        if nearest is None:
            return found.best
        gains = {choice: found.gain(choice, nearest)[0] for choice in candidates}
        ahead = [choice for choice in candidates if gains[choice] > self._least(point, choice)]
        return max(ahead, key=gains.__getitem__, default=nearest)

    def _least(self, point: Point, choice: Choice) -> float:
        """Gain, as a logarithm, from which on a choice replaces the winner nearby."""
        return math.log1p(NOISE if self._support.surrounds(point, choice) else _LONE)

    def _nearest_winner(self, point: Point, candidates: Collection[Choice]) -> Choice | None:
        far = np.square(self._places - self._place(point)).sum(axis=1).round(9)
        order = np.argsort(far, kind="stable")
        ties = next((self._winners[n] for n in order if self._winners[n][0] in candidates), ())
        known = (
            choice for choice in ties
            if choice in candidates and self._support.surrounds(point, choice)
        )  # fmt: skip
        return next(known, ties[0] if ties else None)

    def _place(self, point: Point) -> NDArray[np.float64]:
        nodes, ppn, _ = point.place
        return np.array([nodes, ppn, self._beliefs.log_size(point)])


def _winners(rows: Sequence[Row]) -> tuple[Choice, ...]:
    """Who was the fastest at a call, then those that tie with it within noise."""
    ordered = sorted(rows, key=lambda row: row.median)
    within = ordered[0].median * (1 + NOISE)
    return tuple(row.choice for row in ordered if row.median <= within)


def compare_per_node(rows: Sequence[Row], learn: Learn) -> bool:
    """Whether guesses at other node counts are better when sizes are compared per node.

    Where algorithms change places goes with the size on some machines, on others with what a node
    has of it. Each way is tried on the measured node counts, every one guessed from the others.
    """
    counts = sorted({row.point.nodes for row in rows})
    if len(counts) < 2:
        return False
    tested = {counts[n] for n in np.linspace(0, len(counts) - 1, _FOLDS).round().astype(int)}
    plain, per_node = (
        sum(chain.from_iterable(map(partial(_losses, rows, learn, way), sorted(tested))))
        for way in (False, True)
    )
    return per_node < plain


def _losses(rows: Sequence[Row], learn: Learn, per_node: bool, nodes: int) -> Sequence[float]:
    """Regrets at the calls on so many nodes of what is learned from the others."""
    choose = learn([row for row in rows if row.point.nodes != nodes], per_node)
    losses = []
    for point, own in by_point(row for row in rows if row.point.nodes == nodes).items():
        times = {row.choice: row.median for row in own}
        choice = choose(point, times)
        if choice in times:
            losses.append(min(times[choice] / min(times.values()) - 1, _MOST))
    return losses
