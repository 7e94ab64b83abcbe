"""What is believed of the time of every candidate anywhere, and how surely."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.base.errors import InputError
from tuner.base.statistics import NORMAL_95
from tuner.core.measurement import SHORTEST
from tuner.core.speedup import over_launches
from tuner.core.table import Choice
from tuner.select.dataset import Pair, Point, Row, Simulate
from tuner.select.extrapolation import PLAIN, Way, is_power
from tuner.select.hockney_baseline import common_line, own_lines, terms
from tuner.select.regressor import ArmKernel, ResidualRegressor

_MOST = 800  # rows of one regressor: it inverts a matrix of as many rows
_UNTRIED = ArmKernel(
    shared=1.0, offset=0.3, own=(0.2,)
)  # how wrong simulations are that nothing was held against
_TWICE = math.log(2)  # how far powers of two are from other numbers of ranks
# Deviation by which the ratio of two choices strays from the simulated one over an octave without
# measurements: large exchanges really take 1.3 to 1.7 times as long as a few octaves below.
_WANDER = 0.05
_UNKNOWN = 1.0  # deviation of what is neither simulated nor measured


@dataclass(frozen=True)
class Belief:
    """Of the logarithms of the seconds of `choices`: their means (k,) and covariance (k, k)."""

    choices: tuple[Choice, ...]
    mean: FloatArray
    covariance: FloatArray

    def gain(self, choice: Choice, over: Choice) -> tuple[float, float]:
        """Expected logarithm of the time of `over` over that of `choice`, and its deviation."""
        i, j = self.choices.index(choice), self.choices.index(over)
        c = self.covariance
        return float(self.mean[j] - self.mean[i]), deviation(c[i, i] + c[j, j] - 2 * c[i, j])

    @property
    def best(self) -> Choice:
        """Of the least expected time."""
        return self.choices[int(self.mean.argmin())]


def deviation(variance: float) -> float:
    """Its root; rounding may have left it below 0."""
    return math.sqrt(max(variance, 0.0))


def variance(row: Row) -> float:
    """Of the logarithm of a measured time.

    Of several launches it is what single ones are uncertain by, or if that is more, what they are
    apart: a handful of launches alone would say little about how far they are.
    """
    launches = [over_launches([samples]) for samples in row.samples.values()]
    if len(launches) < 2:
        return _squared_deviation(row.low, row.high)
    single = np.mean([_squared_deviation(low, high) for _, low, high in launches])
    apart = np.var(np.log([typical for typical, _, _ in launches]), ddof=1)
    return float(max(single, apart)) / len(launches)


def _squared_deviation(low: float, high: float) -> float:
    """Of a 95 % interval's logarithm."""
    return (math.log(high / low) / (2 * NORMAL_95)) ** 2


class Beliefs:
    """Of calls of one kind, from all their rows.

    Where there are many, a regressor is fitted to those of the shapes nearest to the one in
    question.

    way     how calls are compared
    """

    def __init__(self, rows: Sequence[Row], simulate: Simulate, way: Way = PLAIN) -> None:
        self._simulate = simulate
        self._way = way
        self._rows: dict[tuple[int, int], list[tuple[Row, float]]] = defaultdict(list)
        for row in rows:
            self._rows[row.point.nodes, row.point.ppn].append((row, variance(row)))
        self.choices = tuple(dict.fromkeys(row.choice for row in rows))
        self._numbers = {choice: number for number, choice in enumerate(self.choices)}
        self._references = _references(rows)
        self._line = common_line(rows)
        self._fitted: dict[tuple[tuple[int, int], ...], ResidualRegressor] = {}

    def joint(self, pairs: Sequence[Pair]) -> tuple[FloatArray, FloatArray]:
        """Means and covariance of the logarithms of the seconds of pairs of one shape."""
        for _, choice in pairs:
            self._numbers.setdefault(choice, len(self._numbers))
        if not self._rows:
            return self._untried(pairs)
        regressor = self._regressor(pairs[0][0])
        mean, covariance = regressor.predict_joint([self._features(*pair) for pair in pairs])
        return mean, covariance

    def log_size(self, point: Point) -> float:
        """By which it is compared with other calls."""
        size = math.log(max(point.nbytes, 1))
        return size - math.log(point.nodes) if self._way.per_node else size

    def place(self, point: Point) -> list[float]:
        """Where a call is, in logarithms: distances tell how alike calls are."""
        told = self._way.powers and is_power(point.p)
        return [self.log_size(point), math.log(point.nodes), math.log(point.ppn), _TWICE * told]

    def belief(self, point: Point, choices: Sequence[Choice]) -> Belief:
        """Of these choices at one point. Each of them may have strayed since its nearest measured
        call, however well all measured ones agree with their simulations.
        """
        mean, covariance = self.joint([(point, choice) for choice in choices])
        place = self.place(point)
        strayed = [_WANDER**2 / 2 * self._octaves(place, choice) for choice in choices]
        return Belief(tuple(choices), mean, covariance + np.diag(strayed))

    def _octaves(self, place: Sequence[float], choice: Choice) -> float:
        """To the nearest call at which it was measured; 0 where it never was: nothing is known of
        it then, and that is said elsewhere.
        """
        if choice not in self._measured:
            return 0.0
        return float(np.abs(self._measured[choice] - place).sum(axis=1).min() / math.log(2))

    @cached_property
    def _measured(self) -> Mapping[Choice, FloatArray]:
        """Where each choice was, (rows, 4)."""
        places: dict[Choice, list[list[float]]] = defaultdict(list)
        for rows in self._rows.values():
            for row, _ in rows:
                places[row.choice].append(self.place(row.point))
        return {choice: np.array(own) for choice, own in places.items()}

    def _untried(self, pairs: Sequence[Pair]) -> tuple[FloatArray, FloatArray]:
        """Of simulations alone; what they do not say is as fast as what they say, typically."""
        features = np.array([self._features(*pair) for pair in pairs])
        simulated = np.array([self._simulate(*pair) for pair in pairs])
        known = np.isfinite(simulated)
        mean = np.full(len(pairs), np.log(np.median(simulated[known])) if known.any() else 0.0)
        mean[known] = np.log(np.maximum(simulated[known], SHORTEST))
        return mean, _UNTRIED(features[:, :-1]) + np.diag(np.where(known, 0.0, _UNKNOWN**2))

    def _regressor(self, point: Point) -> ResidualRegressor:
        shapes = self._nearest(point)
        if shapes not in self._fitted:
            rows = [row for shape in shapes for row in self._rows[shape]]
            self._fitted[shapes] = self._fit(rows)
        return self._fitted[shapes]

    def _nearest(self, point: Point) -> tuple[tuple[int, int], ...]:
        def far(shape: tuple[int, int]) -> float:
            nodes, ppn = shape
            return abs(math.log(nodes / point.nodes)) + abs(math.log(ppn / point.ppn))

        ordered = sorted(self._rows, key=far)
        total = np.cumsum([len(self._rows[shape]) for shape in ordered])
        enough = max(int(np.searchsorted(total, _MOST, side="right")), 1)
        return tuple(sorted(ordered[:enough]))

    def _fit(self, rows: Sequence[tuple[Row, float]]) -> ResidualRegressor:
        regressor = ResidualRegressor()
        features = [self._features(row.point, row.choice) for row, _ in rows]
        weights = [regressor.noise / max(uncertain, regressor.noise) for _, uncertain in rows]
        return regressor.fit(features, [math.log(row.typical) for row, _ in rows], weights)

    def _features(self, point: Point, choice: Choice) -> list[float]:
        """The arm's number, the call's place, the logarithm of the seconds to start from."""
        start = math.log(self.start(point, choice))
        return [float(self._numbers[choice]), *self.place(point), start]

    def start(self, point: Point, choice: Choice) -> float:
        """Simulated seconds, of the choice or of what it follows best; else of a plain line, which
        is its own where calls are compared so.
        """
        for known in (choice, self._references.get(choice, self._steadiest)):
            seconds = math.nan if known is None else self._simulate(point, known)
            if not math.isnan(seconds):
                return max(seconds, SHORTEST)
        line = self._own_lines.get(choice, self._line)
        return max(float(terms(point) @ line), SHORTEST)

    @cached_property
    def _own_lines(self) -> Mapping[Choice, FloatArray]:
        if not self._way.lines:
            return {}
        return own_lines([row for rows in self._rows.values() for row, _ in rows], self._line)

    @cached_property
    def _steadiest(self) -> Choice | None:
        """What a choice follows that was never measured and is not simulated."""
        return self._references.get(Choice())


def _references(rows: Sequence[Row]) -> Mapping[Choice, Choice | None]:
    """For each choice that no schedule describes everywhere the simulated one that it follows best.

    The default follows others, not they it: it jumps where it changes its algorithm.
    """
    groups: dict[Choice, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.choice].append(row)
    simulated = {
        choice: own
        for choice, own in groups.items()
        if not choice.is_default and not any(math.isnan(row.simulated) for row in own)
    }
    return {
        choice: _reference(own, simulated)
        for choice, own in groups.items()
        if choice not in simulated
    }


def _reference(own: Sequence[Row], simulated: Mapping[Choice, list[Row]]) -> Choice | None:
    times = {row.point: row.typical for row in own}

    def spread(candidate: Choice) -> tuple[int, float]:
        """Few common points first of all, then how unsteady the ratio is."""
        ratios = [
            math.log(times[row.point] / max(row.simulated, SHORTEST))
            for row in simulated[candidate]
            if row.point in times
        ]
        return (-len(ratios), float(np.std(ratios)) if ratios else math.inf)

    return min(simulated, key=spread, default=None)


def require_rows(rows: Sequence[Row]) -> None:
    """Raises InputError without any."""
    if not rows:
        raise InputError("there is no measured collective to learn from; run the probe")
