"""The posterior over the time of every candidate at any call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.core.measurement import MIN_SAMPLE_S
from tuner.core.table import AlgorithmChoice
from tuner.select import guard
from tuner.select.dataset import (
    CallPoint,
    DefaultRuns,
    Observation,
    SimulateFunction,
    group_by,
    stands_for,
    unknown_default,
)
from tuner.select.launch_effects import estimate_launch_effects
from tuner.select.regressor import AlgorithmKernel, ResidualGP
from tuner.select.structured_cost import COST_SD, AlgorithmKey, StructuredCost, algorithm_key

_MAX_OBSERVATIONS = 800  # of one regressor, which factors a matrix of as many rows
_COUNT_WEIGHT = 2.0  # of distances of numbers of nodes and ranks; that of sizes is 1
_POWER_OF_TWO_DISTANCE = math.log(2)  # distance from other numbers of ranks
# Standard deviation by which the log ratio of two choices drifts from the simulated one over an
# octave without measurements: relative to simulations, large exchanges take 1.3 to 1.7 times as
# long as they do a few octaves below.
_DRIFT_PER_OCTAVE = 0.1
_SIMULATED_SD = 0.3  # of the logarithms of the costs that simulations rest on

_Shape = tuple[str, int, int]  # machine, nodes, ppn


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

    def guarded_spread(self, log_gains: FloatArray, n_measured: int) -> FloatArray:
        """Return the standard deviation below which gains of these logarithms count."""
        return guard.guarded_spread(log_gains, n_measured)

    def slowdown_probability(self, choice: AlgorithmChoice) -> float:
        """Return the probability that a choice is slower than the default by over `MIN_GAIN`."""
        return guard.slowdown_probability(*self.log_gain(choice, AlgorithmChoice()))

    @property
    def fastest(self) -> AlgorithmChoice:
        """Return the choice with the least expected log time."""
        return self.choices[int(self.mean.argmin())]


def coordinates(point: CallPoint) -> list[float]:
    """Return the logarithmic coordinates of a call, (4,); near calls are similar."""
    return [
        math.log(max(point.nbytes, 1)),
        _COUNT_WEIGHT * math.log(point.nodes),
        _COUNT_WEIGHT * math.log(point.ppn),
        _POWER_OF_TWO_DISTANCE * (point.p & (point.p - 1) == 0),
    ]


def standard_deviation(variance: float) -> float:
    """Return the square root of a variance, which may be slightly negative by rounding."""
    return math.sqrt(max(variance, 0.0))


class PosteriorModel:
    """A model of the times of calls of one kind, from all their observations.

    Where it is known what the default runs, its times are those of that algorithm; at calls where
    it is not, the default is an algorithm of its own, with all of its times. If there are
    many observations, each regressor is fitted to those of the shapes nearest to the one in
    question, on its own machine first.
    """

    def __init__(
        self,
        observations: Sequence[Observation],
        simulate: SimulateFunction,
        default_runs: DefaultRuns = unknown_default,
    ) -> None:
        self._simulate, self._default_runs = simulate, default_runs
        self.choices = tuple(dict.fromkeys(row.choice for row in observations))
        self._given, self._all = observations, [*map(self._translated, observations)]
        self.launch_effects = estimate_launch_effects(row for row in self._all if not row.machine)
        self._observations: dict[_Shape, list[Observation]] = group_by(
            self._all, lambda row: (row.machine, row.point.nodes, row.point.ppn)
        )
        machines = ("", *(row.machine for row in observations))
        self._machines = {name: n for n, name in enumerate(dict.fromkeys(machines))}
        self._numbers: dict[AlgorithmKey, int] = {}
        self._references = _references(observations)
        # That of choices that were never measured and are not simulated.
        self._default_reference = self._references.get(AlgorithmChoice())
        self._regressors: dict[tuple[_Shape, ...], ResidualGP] = {}

    def _run(self, point: CallPoint, choice: AlgorithmChoice) -> AlgorithmChoice:
        """Return the algorithm that answers a call: of the default that which it runs, if known.

        It is a choice that was measured, if one stands for it.
        """
        runs = self._default_runs(point) if choice.is_default else None
        if runs is None or runs in self.choices:
            return runs or choice
        return next((one for one in self.choices if stands_for(one, runs)), runs)

    def _translated(self, row: Observation) -> Observation:
        """Return an observation of this machine's default as one of the algorithm that it runs."""
        return row if row.machine else replace(row, choice=self._run(row.point, row.choice))

    def own_variance(self, observation: Observation) -> float:
        """Return the variance of an observed time but for what is common to its launches."""
        return self.launch_effects.own_variance(self._translated(observation))

    def _model_at(self, point: CallPoint) -> PosteriorModel:
        """Return this model, or where it is unknown what the default runs, one that never knows."""
        translates = self._default_runs is not unknown_default
        return self._without_runs if translates and self._default_runs(point) is None else self

    @cached_property
    def _without_runs(self) -> PosteriorModel:
        return PosteriorModel(self._given, self._simulate)

    def posterior(self, point: CallPoint, choices: Sequence[AlgorithmChoice]) -> Posterior:
        """Return the posterior of these choices at one point.

        The variance of each grows with the distance from its nearest measured call, however well
        all measurements agree with their simulations.
        """
        model, runs = self._model_at(point), [self._run(point, choice) for choice in choices]
        mean, covariance = model._predict_joint(point, runs)
        place = coordinates(point)
        strayed = np.array([model._octaves_to_nearest(place, choice) for choice in runs])
        alike = [[one == other for other in runs] for one in runs]
        drift = _DRIFT_PER_OCTAVE**2 / 2 * strayed * alike
        return Posterior(tuple(choices), mean, covariance + drift)

    def _predict_joint(
        self, point: CallPoint, choices: Sequence[AlgorithmChoice]
    ) -> tuple[FloatArray, FloatArray]:
        features = np.array([self._features(point, choice) for choice in choices])
        if not self._observations:
            return features[:, -1], AlgorithmKernel()(features[:, :-1])
        return self._regressor(point).predict_joint(features)

    def _octaves_to_nearest(self, place: Sequence[float], choice: AlgorithmChoice) -> float:
        """Return the octaves to the nearest call where a choice was measured; 0 if it never was.

        The uncertainty of choices without measurements is part of the prior.
        """
        if choice not in self._measured_coordinates:
            return 0.0
        return float(
            np.abs(self._measured_coordinates[choice] - place).sum(axis=1).min() / math.log(2)
        )

    @cached_property
    def _measured_coordinates(self) -> Mapping[AlgorithmChoice, FloatArray]:
        """Return the coordinates at which each choice was measured on this machine, (rows, 4)."""
        here = group_by((row for row in self._all if not row.machine), lambda row: row.choice)
        return {
            choice: np.array([coordinates(row.point) for row in own])
            for choice, own in here.items()
        }

    def _regressor(self, point: CallPoint) -> ResidualGP:
        shapes = self._nearest_shapes(point)
        if shapes not in self._regressors:
            rows = [row for shape in shapes for row in self._observations[shape]]
            self._regressors[shapes] = self._fit(rows)
        return self._regressors[shapes]

    def _nearest_shapes(self, point: CallPoint) -> tuple[_Shape, ...]:
        def far(shape: _Shape) -> tuple[bool, float]:
            machine, nodes, ppn = shape
            away = abs(math.log(nodes / point.nodes)) + abs(math.log(ppn / point.ppn))
            return bool(machine), away

        ordered = sorted(self._observations, key=far)
        total = np.cumsum([len(self._observations[shape]) for shape in ordered])
        enough = max(int(np.searchsorted(total, _MAX_OBSERVATIONS, side="right")), 1)
        return tuple(sorted(ordered[:enough]))

    def _fit(self, observations: Sequence[Observation]) -> ResidualGP:
        features = [self._features(row.point, row.choice, row.machine) for row in observations]
        return ResidualGP(np.array(features), *self.launch_effects.adjust(observations))

    def _features(
        self, point: CallPoint, choice: AlgorithmChoice, machine: str = ""
    ) -> list[float]:
        """Return the columns that `AlgorithmKernel` describes, then the log of prior seconds.

        Only this machine is simulated.
        """
        cost = self._cost.linearised(point, choice, machine)
        simulated = math.nan if machine else self._simulated_seconds(point, choice)
        known = math.isfinite(simulated)
        return [
            float(self._number(choice, machine)),
            float(self._machines[machine]),
            *coordinates(point),
            *(cost.shares * (_SIMULATED_SD if known else COST_SD)),
            cost.deviation_sd,
            math.log(simulated) if known else cost.log_seconds,
        ]

    def is_simulated(self, point: CallPoint, choice: AlgorithmChoice) -> bool:
        """Return whether a choice is simulated at a call, itself or by its best reference."""
        run = self._run(point, choice)
        return math.isfinite(self._model_at(point)._simulated_seconds(point, run))

    def prior_seconds(self, point: CallPoint, choice: AlgorithmChoice) -> float:
        """Return the simulated seconds, or those of the most probable costs."""
        model, run = self._model_at(point), self._run(point, choice)
        simulated = model._simulated_seconds(point, run)
        return simulated if math.isfinite(simulated) else model._cost.linearised(point, run).seconds

    def _number(self, choice: AlgorithmChoice, machine: str) -> int:
        return self._numbers.setdefault(algorithm_key(choice, machine), len(self._numbers))

    def _simulated_seconds(self, point: CallPoint, choice: AlgorithmChoice) -> float:
        """Return the simulated seconds of a choice or of its best reference; NaN without any."""
        for known in (choice, self._references.get(choice, self._default_reference)):
            seconds = math.nan if known is None else self._simulate(point, known)
            if not math.isnan(seconds):
                return max(seconds, MIN_SAMPLE_S)
        return math.nan

    @cached_property
    def _cost(self) -> StructuredCost:
        return StructuredCost(self._all)


def _references(
    observations: Sequence[Observation],
) -> Mapping[AlgorithmChoice, AlgorithmChoice | None]:
    """Return the best simulated reference of each choice that is not simulated everywhere.

    The default is not a reference, because its time jumps where it changes its algorithm.
    """
    groups = group_by(observations, lambda row: row.choice)
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
