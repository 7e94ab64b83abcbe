"""The selector: believes how long every candidate takes at any call and chooses among those that
measurements speak for.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tuner.errors import InputError
from tuner.select import worth
from tuner.select.belief import NORMAL_95, Belief, Beliefs, deviation, require_rows
from tuner.select.dataset import NOISE, Point, Row, Simulate, by_point
from tuner.select.support import REACH, Support
from tuner.table import Choice

_LONE = 0.5  # gain that is believed although not all shapes around speak for the choice


class Selector:
    """Made by `train`."""

    def __init__(self, rows: Sequence[Row], simulate: Simulate, designed: bool) -> None:
        self.support = Support(rows)
        self._simulate = simulate
        self._designed = designed
        groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in rows:
            groups[row.point.collective, row.point.memory].append(row)
        self._beliefs = {kind: Beliefs(own, simulate) for kind, own in groups.items()}
        self._winners = {kind: _winners(own) for kind, own in groups.items()}
        self._gains: dict[Point, Mapping[Choice, float]] = {}

    def covers(self, point: Point, choice: Choice, reach: float = REACH) -> bool:
        """Measurements next to `point` speak for this choice; or for any, while a simulation
        carries this one there. It was measured elsewhere, so that it is known how right that is;
        and it does not lack at `point` because it was wrong there.
        """
        if self.support.covers(point, choice, reach):
            return True
        known = self._beliefs.get((point.collective, point.memory))
        if known is None or choice not in known.choices:
            return False
        if self.support.measured(point) and not self._designed:
            return False
        return self.support.within(point, reach) and not math.isnan(self.simulated(point, choice))

    def candidates(
        self, point: Point, allowed: Collection[Choice] | None = None, reach: float = REACH
    ) -> tuple[Choice, ...]:
        """The covered choices; `allowed` restricts others than the default."""
        known = self._beliefs.get((point.collective, point.memory))
        return tuple(
            choice for choice in (known.choices if known else ())
            if (choice.is_default or allowed is None or choice in allowed)
            and self.covers(point, choice, reach)
        )  # fmt: skip

    def simulated(self, point: Point, choice: Choice) -> float:
        """Seconds; NaN for the default and where no schedule says it."""
        return math.nan if choice.is_default else self._simulate(point, choice)

    def belief(self, point: Point, choices: Sequence[Choice]) -> Belief:
        """What is believed of their times. Raises InputError for a choice that is unknown."""
        known = self._beliefs.get((point.collective, point.memory))
        for choice in choices:
            if known is None or choice not in known.choices:
                raise InputError(f"{choice} was never measured for {point.collective}")
        return self._beliefs[point.collective, point.memory].belief(point, choices)

    def seconds(self, point: Point, choice: Choice) -> tuple[float, float, float]:
        """Expected median time and its 95 % interval. Raises InputError for an unknown choice."""
        found = self.belief(point, [choice])
        centre, spread = float(found.mean[0]), NORMAL_95 * deviation(found.covariance[0, 0])
        return math.exp(centre), math.exp(centre - spread), math.exp(centre + spread)

    def choose(self, point: Point, allowed: Collection[Choice] | None = None) -> Choice:
        """What is expected to be the fastest of the covered choices and the default.

        What won at the nearest measured call keeps its place unless another is expected to be
        faster by more than noise: beliefs that hardly differ, far from all measurements, are no
        reason to leave what is known to win next door. A choice that lacks on one of the shapes
        around needs much more, since nothing tells how it came to lack there. Where nothing is
        covered the library decides.
        """
        candidates = self.candidates(point, allowed)
        if not candidates:
            return Choice()
        found = self.belief(point, candidates)
        nearest = self._nearest_winner(point, candidates)
        if nearest is None:
            return found.best
        gains = {choice: found.gain(choice, nearest)[0] for choice in candidates}
        ahead = [choice for choice in candidates if gains[choice] > self._least(point, choice)]
        return max(ahead, key=gains.__getitem__, default=nearest)

    def _least(self, point: Point, choice: Choice) -> float:
        """Gain, as a logarithm, from which on a choice replaces the winner nearby."""
        return math.log1p(NOISE if self.support.surrounds(point, choice) else _LONE)

    def choose_surely(
        self, point: Point, allowed: Collection[Choice] | None = None, noise: float = NOISE
    ) -> Choice:
        """As `choose`, of the choices that are surely faster; the default where there is none."""
        candidates = self.candidates(point, allowed, reach=1.0)
        ahead = self.sure(point, candidates, noise)
        return self.choose(point, ahead) if ahead else Choice()

    def sure(
        self, point: Point, choices: Sequence[Choice], noise: float = NOISE
    ) -> frozenset[Choice]:
        """Those that may replace the default: with 95 % believed to beat it, by more than noise.

        Elsewhere than on a measured shape by more than noise on each of the shapes around, too. The
        default changes its algorithm with the number of ranks, and nobody tells where: what beats
        it on one side alone need not do so in between, however sure a smooth belief is. A choice
        has to be known on each of them: measured, or carried there by its simulation.
        """
        if Choice() not in choices:
            return frozenset()
        ahead = worth.sure(self.belief(point, choices), noise)
        around = [near for near in self.support.around(point) if near != point]
        if not around or not ahead:
            return ahead
        kept = [choice for choice in ahead if self._known_around(point, choice)]
        gains = [self._gains_over_default(near) for near in around]
        return frozenset(c for c in kept if all(own[c] > math.log1p(noise) for own in gains))

    def _known_around(self, point: Point, choice: Choice) -> bool:
        carried = not math.isnan(self.simulated(point, choice))
        return carried or self.support.surrounds(point, choice)

    def _gains_over_default(self, point: Point) -> Mapping[Choice, float]:
        """Expected, as logarithms, of everything that was measured of the collective anywhere."""
        if point not in self._gains:
            known = self._beliefs[point.collective, point.memory].choices
            found = self.belief(point, known)
            default = found.mean[known.index(Choice())]
            self._gains[point] = dict(zip(known, map(float, default - found.mean), strict=True))
        return self._gains[point]

    def _nearest_winner(self, point: Point, candidates: Collection[Choice]) -> Choice | None:
        """Of those that tie within noise with the fastest one that is known on all sides."""
        places, winners = self._winners[point.collective, point.memory]
        far = np.square(places - point.place).sum(axis=1).round(9)
        order = np.argsort(far, kind="stable")
        ties = next((winners[n] for n in order if winners[n][0] in candidates), ())
        known = (
            choice for choice in ties
            if choice in candidates and self.support.surrounds(point, choice)
        )  # fmt: skip
        return next(known, ties[0] if ties else None)


def train(rows: Sequence[Row], simulate: Simulate, designed: bool = False) -> Selector:
    """Learn from measured rows. Raises InputError without any.

    designed    a design chose what was measured: a choice that lacks at a point was not wrong there
    """
    require_rows(rows)
    return Selector(rows, simulate, designed)


Winners = tuple[np.ndarray[tuple[int, int]], list[tuple[Choice, ...]]]


def _winners(rows: Sequence[Row]) -> Winners:
    """Where it was measured, and who was the fastest there, then those that tie within noise."""
    fastest = {}
    for point, own in by_point(rows).items():
        ordered = sorted(own, key=lambda row: row.median)
        within = ordered[0].median * (1 + NOISE)
        fastest[point] = tuple(row.choice for row in ordered if row.median <= within)
    return np.array([point.place for point in fastest]), list(fastest.values())
