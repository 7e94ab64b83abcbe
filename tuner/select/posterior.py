"""The posterior over the time of every candidate at any call."""

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
from tuner.core.table import AlgorithmChoice
from tuner.select.dataset import CallPoint, Observation, PointConfig, SimulateFunction
from tuner.select.extrapolation import BASE_MODE, ExtrapolationMode, is_power_of_two
from tuner.select.hockney_baseline import design_row, fit_per_algorithm, fit_pooled
from tuner.select.regressor import AlgorithmKernel, ResidualGP

_MAX_OBSERVATIONS = 800  # of one regressor, which factors a matrix of as many rows
_PRIOR_KERNEL = AlgorithmKernel(
    shared_sd=1.0, offset_sd=0.3, algorithm_sd=(0.2,)
)  # error of simulations without any measurement
_POWER_OF_TWO_DISTANCE = math.log(2)  # distance from other numbers of ranks
# Standard deviation by which the log ratio of two choices drifts from the simulated one over an
# octave without measurements: relative to simulations, large exchanges take 1.3 to 1.7 times as
# long as they do a few octaves below.
_DRIFT_PER_OCTAVE = 0.05
_PRIOR_SD = 1.0  # of choices that are neither simulated nor measured


@dataclass(frozen=True)
class Posterior:
    """A joint normal posterior of the log-seconds of k choices: mean (k,) and covariance (k, k)."""

    choices: tuple[AlgorithmChoice, ...]
    mean: FloatArray
    covariance: FloatArray

    def log_gain(self, choice: AlgorithmChoice, reference: AlgorithmChoice) -> tuple[float, float]:
        """Return mean and standard deviation of log(time of `reference` / time of `choice`)."""
        i, j = self.choices.index(choice), self.choices.index(reference)
        c = self.covariance
        return float(self.mean[j] - self.mean[i]), standard_deviation(
            c[i, i] + c[j, j] - 2 * c[i, j]
        )

    @property
    def fastest(self) -> AlgorithmChoice:
        """Return the choice with the least expected log time."""
        return self.choices[int(self.mean.argmin())]


def standard_deviation(variance: float) -> float:
    """Return the square root of a variance, which may be slightly negative by rounding."""
    return math.sqrt(max(variance, 0.0))


def log_time_variance(observation: Observation) -> float:
    """Return the variance of the logarithm of a measured time.

    For several launches it is their mean variance or, if larger, the variance between them, over
    their number: a few launches alone do not estimate the variance between them well.
    """
    launches = [mean_over_launches([samples]) for samples in observation.samples.values()]
    if len(launches) < 2:
        return _variance_from_interval(observation.low, observation.high)
    single = np.mean([_variance_from_interval(low, high) for _, low, high in launches])
    apart = np.var(np.log([typical for typical, _, _ in launches]), ddof=1)
    return float(max(single, apart)) / len(launches)


def _variance_from_interval(low: float, high: float) -> float:
    """Return the variance of the logarithm from a 95 % interval."""
    return (math.log(high / low) / (2 * NORMAL_95)) ** 2


class PosteriorModel:
    """A model of the times of calls of one kind, from all their observations.

    If there are many, each regressor is fitted to those of the shapes nearest to the one in
    question.

    mode    how calls are compared
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
        self.choices = tuple(dict.fromkeys(row.choice for row in observations))
        self._indices = {choice: number for number, choice in enumerate(self.choices)}
        self._references = _references(observations)
        self._pooled_fit = fit_pooled(observations)
        self._regressors: dict[tuple[tuple[int, int], ...], ResidualGP] = {}

    def predict_joint(self, pairs: Sequence[PointConfig]) -> tuple[FloatArray, FloatArray]:
        """Return means and covariance of the log-seconds of pairs of one shape."""
        for _, choice in pairs:
            self._indices.setdefault(choice, len(self._indices))
        if not self._observations:
            return self._prior_only(pairs)
        regressor = self._regressor(pairs[0][0])
        mean, covariance = regressor.predict_joint([self._features(*pair) for pair in pairs])
        return mean, covariance

    def log_size(self, point: CallPoint) -> float:
        """Return the log size by which calls are compared, per node if the mode says so."""
        size = math.log(max(point.nbytes, 1))
        return size - math.log(point.nodes) if self._mode.size_per_node else size

    def coordinates(self, point: CallPoint) -> list[float]:
        """Return the logarithmic coordinates of a call; near calls are similar."""
        told = self._mode.distinguish_powers_of_two and is_power_of_two(point.p)
        return [
            self.log_size(point),
            math.log(point.nodes),
            math.log(point.ppn),
            _POWER_OF_TWO_DISTANCE * told,
        ]

    def posterior(self, point: CallPoint, choices: Sequence[AlgorithmChoice]) -> Posterior:
        """Return the posterior of these choices at one point.

        The variance of each grows with the distance from its nearest measured call, however well
        all measurements agree with their simulations.
        """
        mean, covariance = self.predict_joint([(point, choice) for choice in choices])
        place = self.coordinates(point)
        strayed = [
            _DRIFT_PER_OCTAVE**2 / 2 * self._octaves_to_nearest(place, choice) for choice in choices
        ]
        return Posterior(tuple(choices), mean, covariance + np.diag(strayed))

    def _octaves_to_nearest(self, coordinates: Sequence[float], choice: AlgorithmChoice) -> float:
        """Return the octaves to the nearest call at which a choice was measured; 0 if it never was.

        The uncertainty of choices without measurements is part of the prior.
        """
        if choice not in self._measured_coordinates:
            return 0.0
        return float(
            np.abs(self._measured_coordinates[choice] - coordinates).sum(axis=1).min() / math.log(2)
        )

    @cached_property
    def _measured_coordinates(self) -> Mapping[AlgorithmChoice, FloatArray]:
        """Return the coordinates at which each choice was measured, (rows, 4)."""
        places: dict[AlgorithmChoice, list[list[float]]] = defaultdict(list)
        for rows in self._observations.values():
            for row, _ in rows:
                places[row.choice].append(self.coordinates(row.point))
        return {choice: np.array(own) for choice, own in places.items()}

    def _prior_only(self, pairs: Sequence[PointConfig]) -> tuple[FloatArray, FloatArray]:
        """Return mean and covariance without any measurement.

        Pairs that are not simulated get the median of those that are, or else the rough line.
        """
        features = np.array([self._features(*pair) for pair in pairs])
        simulated = np.array([self._simulate(*pair) for pair in pairs])
        known = np.isfinite(simulated)
        rough = [self.prior_seconds(*pair) for pair in pairs]
        usual = np.median(simulated[known]) if known.any() else np.array(rough)
        mean = np.log(np.maximum(np.where(known, simulated, usual), MIN_SAMPLE_S))
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
        features = [self._features(row.point, row.choice) for row, _ in observations]
        weights = [
            regressor.noise_variance / max(uncertain, regressor.noise_variance)
            for _, uncertain in observations
        ]
        return regressor.fit(features, [math.log(row.seconds) for row, _ in observations], weights)

    def _features(self, point: CallPoint, choice: AlgorithmChoice) -> list[float]:
        """Return the choice's number, the call's coordinates and the log of its prior seconds."""
        start = math.log(self.prior_seconds(point, choice))
        return [float(self._indices[choice]), *self.coordinates(point), start]

    def prior_seconds(self, point: CallPoint, choice: AlgorithmChoice) -> float:
        """Return the prior mean: simulated seconds of the choice or of its best reference.

        If there are none, it is a fitted Hockney line, of this choice alone if the mode says so.
        """
        for known in (choice, self._references.get(choice, self._default_reference)):
            seconds = math.nan if known is None else self._simulate(point, known)
            if not math.isnan(seconds):
                return max(seconds, MIN_SAMPLE_S)
        line = self._per_algorithm_fits.get(choice, self._pooled_fit)
        return max(float(design_row(point) @ line), MIN_SAMPLE_S)

    @cached_property
    def _per_algorithm_fits(self) -> Mapping[AlgorithmChoice, FloatArray]:
        if not self._mode.per_algorithm_baseline:
            return {}
        return fit_per_algorithm(
            [row for rows in self._observations.values() for row, _ in rows], self._pooled_fit
        )

    @cached_property
    def _default_reference(self) -> AlgorithmChoice | None:
        """Return the reference of choices that were never measured and are not simulated."""
        return self._references.get(AlgorithmChoice())


def _references(
    observations: Sequence[Observation],
) -> Mapping[AlgorithmChoice, AlgorithmChoice | None]:
    """Return the best simulated reference of each choice that is not simulated everywhere.

    The default is not a reference, because its time jumps where it changes its algorithm.
    """
    groups: dict[AlgorithmChoice, list[Observation]] = defaultdict(list)
    for row in observations:
        groups[row.choice].append(row)
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
    own: Sequence[Observation], simulated: Mapping[AlgorithmChoice, list[Observation]]
) -> AlgorithmChoice | None:
    times = {row.point: row.seconds for row in own}

    def spread(candidate: AlgorithmChoice) -> tuple[int, float]:
        """Return a sort key: most common points first, then the steadiest ratio."""
        ratios = [
            math.log(times[row.point] / max(row.simulated_seconds, MIN_SAMPLE_S))
            for row in simulated[candidate]
            if row.point in times
        ]
        return (-len(ratios), float(np.std(ratios)) if ratios else math.inf)

    return min(simulated, key=spread, default=None)


def check_not_empty(observations: Sequence[Observation]) -> None:
    """Raise InputError if there are no observations."""
    if not observations:
        raise InputError("there is no measured collective to learn from; run the probe")
