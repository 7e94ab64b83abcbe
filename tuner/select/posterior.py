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
from tuner.core.measurement import MIN_SAMPLE_S
from tuner.core.speedup import mean_over_launches
from tuner.core.table import AlgorithmConfig
from tuner.select.dataset import CallPoint, Observation, PointConfig, SimulateFunction
from tuner.select.extrapolation import BASE_MODE, ExtrapolationMode, is_power_of_two
from tuner.select.hockney_baseline import design_row, fit_per_algorithm, fit_pooled
from tuner.select.regressor import AlgorithmKernel, ResidualGP

_MAX_OBSERVATIONS = 800  # rows of one regressor: it inverts a matrix of as many rows
_PRIOR_KERNEL = AlgorithmKernel(
    shared_sd=1.0, offset_sd=0.3, algorithm_sd=(0.2,)
)  # how wrong simulations are that nothing was held against
_POWER_OF_TWO_DISTANCE = math.log(2)  # how far powers of two are from other numbers of ranks
# Deviation by which the ratio of two choices strays from the simulated one over an octave without
# measurements: large exchanges really take 1.3 to 1.7 times as long as a few octaves below.
_DRIFT_PER_OCTAVE = 0.05
_PRIOR_SD = 1.0  # deviation of what is neither simulated nor measured


@dataclass(frozen=True)
class Posterior:
    """Of the logarithms of the seconds of `choices`: their means (k,) and covariance (k, k)."""

    configs: tuple[AlgorithmConfig, ...]
    mean: FloatArray
    covariance: FloatArray

    def log_gain(self, choice: AlgorithmConfig, reference: AlgorithmConfig) -> tuple[float, float]:
        """Expected logarithm of the time of `device_array` over that of `choice`, and its
        deviation.
        """
        i, j = self.configs.index(choice), self.configs.index(reference)
        c = self.covariance
        return float(self.mean[j] - self.mean[i]), standard_deviation(
            c[i, i] + c[j, j] - 2 * c[i, j]
        )

    @property
    def fastest(self) -> AlgorithmConfig:
        """Of the least expected time."""
        return self.configs[int(self.mean.argmin())]


def standard_deviation(variance: float) -> float:
    """Its root; rounding may have left it below 0."""
    return math.sqrt(max(variance, 0.0))


def log_time_variance(observation: Observation) -> float:
    """Of the logarithm of a measured time.

    Of several launches it is what single ones are uncertain by, or if that is more, what they are
    apart: a handful of launches alone would say little about how far they are.
    """
    launches = [mean_over_launches([samples]) for samples in observation.samples.values()]
    if len(launches) < 2:
        return _variance_from_interval(observation.low, observation.high)
    single = np.mean([_variance_from_interval(low, high) for _, low, high in launches])
    apart = np.var(np.log([typical for typical, _, _ in launches]), ddof=1)
    return float(max(single, apart)) / len(launches)


def _variance_from_interval(low: float, high: float) -> float:
    """Of a 95 % interval's logarithm."""
    return (math.log(high / low) / (2 * NORMAL_95)) ** 2


class PosteriorModel:
    """Of calls of one kind, from all their rows.

    Where there are many, a regressor is fitted to those of the shapes nearest to the one in
    question.

    way     how calls are compared
    """

    def __init__(
        self,
        observations: Sequence[Observation],
        simulate: SimulateFunction,
        mode: ExtrapolationMode = BASE_MODE,
    ) -> None:
        self._simulate = simulate
        self._mode = mode
        self._observations: dict[tuple[int, int], list[tuple[Observation, float]]] = defaultdict(
            list
        )
        for row in observations:
            self._observations[row.point.nodes, row.point.ppn].append((row, log_time_variance(row)))
        self.configs = tuple(dict.fromkeys(row.config for row in observations))
        self._indices = {choice: number for number, choice in enumerate(self.configs)}
        self._references = _references(observations)
        self._pooled_fit = fit_pooled(observations)
        self._regressors: dict[tuple[tuple[int, int], ...], ResidualGP] = {}

    def predict_joint(self, pairs: Sequence[PointConfig]) -> tuple[FloatArray, FloatArray]:
        """Means and covariance of the logarithms of the seconds of pairs of one shape."""
        for _, choice in pairs:
            self._indices.setdefault(choice, len(self._indices))
        if not self._observations:
            return self._prior_only(pairs)
        regressor = self._regressor(pairs[0][0])
        mean, covariance = regressor.predict_joint([self._features(*pair) for pair in pairs])
        return mean, covariance

    def log_size(self, point: CallPoint) -> float:
        """By which it is compared with other calls."""
        size = math.log(max(point.nbytes, 1))
        return size - math.log(point.nodes) if self._mode.size_per_node else size

    def coordinates(self, point: CallPoint) -> list[float]:
        """Where a call is, in logarithms: distances tell how alike calls are."""
        told = self._mode.distinguish_powers_of_two and is_power_of_two(point.p)
        return [
            self.log_size(point),
            math.log(point.nodes),
            math.log(point.ppn),
            _POWER_OF_TWO_DISTANCE * told,
        ]

    def posterior(self, point: CallPoint, choices: Sequence[AlgorithmConfig]) -> Posterior:
        """Of these choices at one point. Each of them may have strayed since its nearest measured
        call, however well all measured ones agree with their simulations.
        """
        mean, covariance = self.predict_joint([(point, choice) for choice in choices])
        place = self.coordinates(point)
        strayed = [
            _DRIFT_PER_OCTAVE**2 / 2 * self._octaves_to_nearest(place, choice) for choice in choices
        ]
        return Posterior(tuple(choices), mean, covariance + np.diag(strayed))

    def _octaves_to_nearest(self, coordinates: Sequence[float], choice: AlgorithmConfig) -> float:
        """To the nearest call at which it was measured; 0 where it never was: nothing is known of
        it then, and that is said elsewhere.
        """
        if choice not in self._measured_coordinates:
            return 0.0
        return float(
            np.abs(self._measured_coordinates[choice] - coordinates).sum(axis=1).min() / math.log(2)
        )

    @cached_property
    def _measured_coordinates(self) -> Mapping[AlgorithmConfig, FloatArray]:
        """Where each choice was, (rows, 4)."""
        places: dict[AlgorithmConfig, list[list[float]]] = defaultdict(list)
        for rows in self._observations.values():
            for row, _ in rows:
                places[row.config].append(self.coordinates(row.point))
        return {choice: np.array(own) for choice, own in places.items()}

    def _prior_only(self, pairs: Sequence[PointConfig]) -> tuple[FloatArray, FloatArray]:
        """Of simulations alone; what they do not say is as fast as what they say, typically."""
        features = np.array([self._features(*pair) for pair in pairs])
        simulated = np.array([self._simulate(*pair) for pair in pairs])
        known = np.isfinite(simulated)
        mean = np.full(len(pairs), np.log(np.median(simulated[known])) if known.any() else 0.0)
        mean[known] = np.log(np.maximum(simulated[known], MIN_SAMPLE_S))
        return mean, _PRIOR_KERNEL(features[:, :-1]) + np.diag(np.where(known, 0.0, _PRIOR_SD**2))

    def _regressor(self, point: CallPoint) -> ResidualGP:
        shapes = self._nearest_shapes(point)
        if shapes not in self._regressors:
            rows = [row for shape in shapes for row in self._observations[shape]]
            self._regressors[shapes] = self._fit(rows)
        return self._regressors[shapes]

    def _nearest_shapes(self, point: CallPoint) -> tuple[tuple[int, int], ...]:
        def far(shape: tuple[int, int]) -> float:
            nodes, ppn = shape
            return abs(math.log(nodes / point.nodes)) + abs(math.log(ppn / point.ppn))

        ordered = sorted(self._observations, key=far)
        total = np.cumsum([len(self._observations[shape]) for shape in ordered])
        enough = max(int(np.searchsorted(total, _MAX_OBSERVATIONS, side="right")), 1)
        return tuple(sorted(ordered[:enough]))

    def _fit(self, observations: Sequence[tuple[Observation, float]]) -> ResidualGP:
        regressor = ResidualGP()
        features = [self._features(row.point, row.config) for row, _ in observations]
        weights = [
            regressor.noise_variance / max(uncertain, regressor.noise_variance)
            for _, uncertain in observations
        ]
        return regressor.fit(features, [math.log(row.seconds) for row, _ in observations], weights)

    def _features(self, point: CallPoint, choice: AlgorithmConfig) -> list[float]:
        """The arm's number, the call's place, the logarithm of the seconds to start from."""
        start = math.log(self.prior_seconds(point, choice))
        return [float(self._indices[choice]), *self.coordinates(point), start]

    def prior_seconds(self, point: CallPoint, choice: AlgorithmConfig) -> float:
        """Simulated seconds, of the choice or of what it follows best; else of a plain line, which
        is its own where calls are compared so.
        """
        for known in (choice, self._references.get(choice, self._default_reference)):
            seconds = math.nan if known is None else self._simulate(point, known)
            if not math.isnan(seconds):
                return max(seconds, MIN_SAMPLE_S)
        line = self._per_algorithm_fits.get(choice, self._pooled_fit)
        return max(float(design_row(point) @ line), MIN_SAMPLE_S)

    @cached_property
    def _per_algorithm_fits(self) -> Mapping[AlgorithmConfig, FloatArray]:
        if not self._mode.per_algorithm_baseline:
            return {}
        return fit_per_algorithm(
            [row for rows in self._observations.values() for row, _ in rows], self._pooled_fit
        )

    @cached_property
    def _default_reference(self) -> AlgorithmConfig | None:
        """What a choice follows that was never measured and is not simulated."""
        return self._references.get(AlgorithmConfig())


def _references(
    observations: Sequence[Observation],
) -> Mapping[AlgorithmConfig, AlgorithmConfig | None]:
    """For each choice that no schedule describes everywhere the simulated one that it follows best.

    The default follows others, not they it: it jumps where it changes its algorithm.
    """
    groups: dict[AlgorithmConfig, list[Observation]] = defaultdict(list)
    for row in observations:
        groups[row.config].append(row)
    simulated = {
        choice: own
        for choice, own in groups.items()
        if not choice.is_default and not any(math.isnan(row.simulated_seconds) for row in own)
    }
    return {
        choice: _best_reference(own, simulated)
        for choice, own in groups.items()
        if choice not in simulated
    }


def _best_reference(
    own: Sequence[Observation], simulated: Mapping[AlgorithmConfig, list[Observation]]
) -> AlgorithmConfig | None:
    times = {row.point: row.seconds for row in own}

    def spread(candidate: AlgorithmConfig) -> tuple[int, float]:
        """Few common points first of all, then how unsteady the ratio is."""
        ratios = [
            math.log(times[row.point] / max(row.simulated_seconds, MIN_SAMPLE_S))
            for row in simulated[candidate]
            if row.point in times
        ]
        return (-len(ratios), float(np.std(ratios)) if ratios else math.inf)

    return min(simulated, key=spread, default=None)


def check_not_empty(observations: Sequence[Observation]) -> None:
    """Raises InputError without any."""
    if not observations:
        raise InputError("there is no measured collective to learn from; run the probe")
