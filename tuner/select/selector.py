"""The selector: predicts the time of every candidate at any size and chooses among those that
were measured near it.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.collective import Collective
from tuner.errors import InputError
from tuner.select.dataset import Point, Row, Simulate, ladders
from tuner.select.regressor import ResidualRegressor
from tuner.table import Choice, Key

_NORMAL_95 = 1.959963984540054  # two-sided 95 % quantile of the standard normal distribution
_LONE_GAP = 2.0  # how far a single probed size speaks for others


@dataclass(frozen=True)
class Arm:
    """One candidate of one collective.

    reference   the choice whose simulated time is the starting point: itself, or for what no
                schedule describes the simulated choice that its measured times follow best;
                None when nothing of this collective can be simulated
    """

    regressor: ResidualRegressor
    reference: Choice | None
    measured: frozenset[Point]


class Selector:
    """Made by `train`."""

    def __init__(
        self,
        arms: Mapping[tuple[Collective, Choice], Arm],
        probed: Mapping[Key, Sequence[int]],
        simulate: Simulate,
    ) -> None:
        self._arms = arms
        self._probed = probed
        self._simulate = simulate

    def covers(self, point: Point, choice: Choice) -> bool:
        """This choice was measured, on these ranks, at a probed size next to `point`.

        Between two probed sizes either will do; beyond the last, no further than one ladder gap.
        """
        sizes = self._probed.get(point.key(), ())
        arm = self._arms.get((point.collective, choice))
        if arm is None:
            return False
        return any(point.at(size) in arm.measured for size in _neighbours(sizes, point.nbytes))

    def seconds(self, point: Point, choice: Choice) -> tuple[float, float, float]:
        """Expected median time and its 95 % interval. Raises InputError for an unknown choice."""
        arm = self._arms.get((point.collective, choice))
        if arm is None:
            raise InputError(f"{choice} was never measured for {point.collective}")
        features = _features(point, arm.reference, self._simulate)
        expected, deviation = arm.regressor.predict_interval([features])
        centre, spread = float(expected[0]), _NORMAL_95 * float(deviation[0])
        return math.exp(centre), math.exp(centre - spread), math.exp(centre + spread)

    def choose(self, point: Point, allowed: Collection[Choice] | None = None) -> Choice:
        """The covered choice with the least expected time; the default is always a candidate.

        `allowed` restricts the others. Where nothing is covered the library decides.
        """
        candidates = [
            choice for collective, choice in self._arms
            if collective == point.collective and self.covers(point, choice)
            and (choice.is_default or allowed is None or choice in allowed)
        ]  # fmt: skip
        return min(candidates, key=lambda arm: self.seconds(point, arm)[0], default=Choice())


def train(rows: Sequence[Row], simulate: Simulate) -> Selector:
    """Fit one regressor per (collective, choice). Raises InputError without rows."""
    if not rows:
        raise InputError("there is no measured collective to learn from; run the probe")
    groups: dict[tuple[Collective, Choice], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.point.collective, row.choice].append(row)
    simulated = {arm: own for arm, own in groups.items() if not math.isnan(own[0].simulated)}
    arms = {
        (collective, choice): _arm(own, _reference(choice, own, simulated), simulate)
        for (collective, choice), own in groups.items()
    }
    return Selector(arms, ladders(rows), simulate)


def gap_above(sizes: Sequence[int]) -> float:
    """Ratio of the two largest probed sizes."""
    return sizes[-1] / max(sizes[-2], 1) if len(sizes) > 1 else _LONE_GAP


def gap_below(sizes: Sequence[int]) -> float:
    """Ratio of the two smallest probed sizes."""
    return sizes[1] / max(sizes[0], 1) if len(sizes) > 1 else _LONE_GAP


def _neighbours(sizes: Sequence[int], nbytes: int) -> Sequence[int]:
    if not sizes or nbytes > sizes[-1] * gap_above(sizes) or nbytes < sizes[0] / gap_below(sizes):
        return ()
    above = bisect.bisect_left(sizes, nbytes)
    if above < len(sizes) and sizes[above] == nbytes:
        return (nbytes,)
    return sizes[max(above - 1, 0) : above + 1]


def _reference(
    choice: Choice, own: Sequence[Row], simulated: Mapping[tuple[Collective, Choice], list[Row]]
) -> Choice | None:
    collective = own[0].point.collective
    if (collective, choice) in simulated:
        return choice
    times = {row.point: row.median for row in own}

    def spread(candidate: Choice) -> tuple[int, float]:
        """Few common points first of all, then how unsteady the ratio is."""
        ratios = [
            math.log(times[row.point] / row.simulated)
            for row in simulated[collective, candidate] if row.point in times
        ]  # fmt: skip
        return (-len(ratios), float(np.std(ratios)) if ratios else math.inf)

    return min((arm for where, arm in simulated if where == collective), key=spread, default=None)


def _arm(own: Sequence[Row], reference: Choice | None, simulate: Simulate) -> Arm:
    regressor = ResidualRegressor()
    features = [_features(row.point, reference, simulate) for row in own]
    variances = [(math.log(row.high / row.low) / (2 * _NORMAL_95)) ** 2 for row in own]
    weights = [regressor.noise / max(variance, regressor.noise) for variance in variances]
    regressor.fit(features, [math.log(row.median) for row in own], weights)
    return Arm(regressor, reference, frozenset(row.point for row in own))


def _features(point: Point, reference: Choice | None, simulate: Simulate) -> list[float]:
    """Logarithms of nbytes, p, nodes, ppn and the simulated seconds (1 s without a reference)."""
    seconds = 1.0 if reference is None else simulate(point, reference)
    return [
        math.log(max(point.nbytes, 1)), math.log(point.p), math.log(point.nodes),
        math.log(point.ppn), math.log(max(seconds, 1e-12)),
    ]  # fmt: skip
