"""Which choice is expected to be the fastest at a call."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.core.table import Choice
from tuner.select.coverage import Support
from tuner.select.dataset import NOISE, Point, Row, by_point
from tuner.select.extrapolation import Way
from tuner.select.posterior import Beliefs

_LONE = 0.5  # gain that is believed although not all shapes around speak for the choice


class Guess:
    """Of one collective in one kind of memory.

    What won at the nearest measured call keeps its place unless another is expected to be faster
    by more than noise: beliefs that hardly differ, far from all measurements, are no reason to
    leave what is known to win next door. A choice that lacks on one of the shapes around needs much
    more, since nothing tells how it came to lack there; and of winners that tie within noise one
    that is known on all of them is taken. Nor does one replace it that loses to it on both sides.
    """

    def __init__(self, beliefs: Beliefs, rows: Sequence[Row], support: Support, way: Way) -> None:
        self._beliefs, self._support, self._way = beliefs, support, way
        self._logs = {(row.point, row.choice): math.log(row.typical) for row in rows}
        fastest = {point: _winners(own) for point, own in by_point(rows).items()}
        self._places = np.array([self._place(point) for point in fastest])
        self._winners = list(fastest.values())

    def choose(self, point: Point, candidates: Sequence[Choice]) -> Choice:
        """One of these, or the default."""
        if not self._way.trusted:
            return Choice()
        found = self._beliefs.belief(point, candidates)
        nearest = self._nearest_winner(point, candidates)
        if nearest is None:
            return found.best
        gains = {choice: found.gain(choice, nearest)[0] for choice in candidates}
        ahead = [
            choice
            for choice in candidates
            if gains[choice] > self._least(point, choice)
            and not self._beaten(point, choice, nearest)
        ]
        return max(ahead, key=gains.__getitem__, default=nearest)

    def _beaten(self, point: Point, choice: Choice, by: Choice) -> bool:
        """By more than noise both at the next smaller size and at the next larger one on the same
        shape: times of two algorithms seldom cross twice in between, however unsure a belief is.
        """
        beside = [
            self._logs[near, choice] - self._logs[near, by]
            for near in self._support.beside(point)
            if (near, choice) in self._logs and (near, by) in self._logs
        ]
        return len(beside) == 2 and min(beside) > math.log1p(NOISE)

    def _least(self, point: Point, choice: Choice) -> float:
        """Gain, as a logarithm, from which on a choice replaces the winner nearby."""
        return math.log1p(NOISE if self._support.surrounds(point, choice) else _LONE)

    def _nearest_winner(self, point: Point, candidates: Collection[Choice]) -> Choice | None:
        far = np.square(self._places - self._place(point)).sum(axis=1).round(9)
        order = np.argsort(far, kind="stable")
        ties = next((self._winners[n] for n in order if self._winners[n][0] in candidates), ())
        known = (
            choice
            for choice in ties
            if choice in candidates and self._support.surrounds(point, choice)
        )
        return next(known, ties[0] if ties else None)

    def _place(self, point: Point) -> FloatArray:
        return np.array(self._beliefs.place(point))


def _winners(rows: Sequence[Row]) -> tuple[Choice, ...]:
    """Who was the fastest at a call, then those that tie with it within noise."""
    ordered = sorted(rows, key=lambda row: row.typical)
    within = ordered[0].typical * (1 + NOISE)
    return tuple(row.choice for row in ordered if row.typical <= within)
