"""Experiment design: the points and choices that save most regret per second of probing.

The measuring loop works in batches: `next_batch` returns one, `update` takes the observations, and
`regret_bound` bounds the regret of a table from what is known.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv

from tuner.base.arrays import FloatArray
from tuner.base.errors import InputError
from tuner.base.statistics import NORMAL_95
from tuner.core.table import AlgorithmChoice
from tuner.select.dataset import (
    CallPoint,
    DefaultRuns,
    IncorrectSet,
    Observation,
    PointConfig,
    SimulateFunction,
    is_incorrect,
    stands_for,
    unknown_default,
)
from tuner.select.disturbances import screen_launches
from tuner.select.guard import DEGREES_OF_FREEDOM
from tuner.select.posterior import PosteriorModel
from tuner.select.posterior_covariance import PosteriorCovariance
from tuner.select.selector import Selector
from tuner.select.value_of_information import MAX_REGRET, RegretEstimate

BOUND_CONFIDENCE = 0.95
REPETITIONS = 12  # of each choice
CALL_OVERHEAD_S = 1e-3  # of a repetition, besides the call itself
_N_DRAWS = 512
_OTHERS_WEIGHT = 0.3  # of what measuring a point tells of the others
_MAX_UNANSWERED = 3  # requests without a result
_TARGET_HALF_WIDTH = 0.05  # relative, to which a choice is measured
# Numbers of choices that are considered besides the one in use.
_CANDIDATE_COUNTS = (1, 2, 3, 5, 8, 13, 21)
_MIN_REGRET = 1e-6  # points with less regret are not measured


@dataclass(frozen=True)
class Experiment:
    """A point of a batch, the choices to measure there, that in use first, and its seconds."""

    point: CallPoint
    choices: tuple[AlgorithmChoice, ...]
    seconds: float


@dataclass(frozen=True)
class AcquisitionCandidate:
    """An experiment, the index of its point and the fraction of that point's regret it saves."""

    point_index: int
    experiment: Experiment
    saved_fraction: float


class AcquisitionQueue:
    """The experiments that can still be chosen; `accept` chooses one of them.

    regrets     expected regret at every point, weighted
    covariance  posterior covariance of the points; it is changed in place
    """

    def __init__(
        self,
        candidates: Sequence[AcquisitionCandidate],
        regrets: FloatArray,
        covariance: PosteriorCovariance,
    ) -> None:
        self._candidates, self._regrets, self._covariance = candidates, regrets, covariance
        self._point_indices = np.array([option.point_index for option in candidates], dtype=int)
        self._seconds = np.array([option.experiment.seconds for option in candidates])
        self._fraction_per_second = (
            np.array([option.saved_fraction for option in candidates]) / self._seconds
        )
        self._value_explained = np.zeros(len(regrets))  # regret explained by measuring each point
        for number in np.unique(self._point_indices):
            if not self._value_explained[number]:
                self._update_value_explained(number)

    def best(self, max_seconds: float) -> AcquisitionCandidate | None:
        """Return the candidate that saves most regret per second, or None if none saves any.

        max_seconds     candidates that take longer are left out
        """
        values = self._fraction_per_second * self._value_explained[self._point_indices]
        values[self._seconds > max_seconds] = 0.0
        best = int(values.argmax()) if len(values) else 0
        return self._candidates[best] if len(values) and values[best] > 0 else None

    def accept(self, candidate: AcquisitionCandidate) -> None:
        """Choose a candidate, drop the others of its point and lower the regret around it."""
        number = candidate.point_index
        fellows = self._covariance.correlated_points(candidate.point_index)
        self._regrets[fellows] *= (
            1 - candidate.saved_fraction * self._covariance.variance_explained(number)
        )
        self._covariance.condition_on(number)
        self._fraction_per_second[self._point_indices == number] = 0.0
        self._update_value_explained(number)

    def _update_value_explained(self, index: int) -> None:
        fellows = self._covariance.correlated_points(index)
        own = self._regrets[fellows]
        told = self._covariance.value_explained(index, self._regrets)
        self._value_explained[fellows] = own + _OTHERS_WEIGHT * (told - own)


@dataclass(frozen=True)
class RegretBound:
    """The expected mean regret of a table over `points` points, and its upper 95 % bound.

    Where the calls of an application are counted, the mean is weighted with their times.

    default     expected mean regret of the library's default
    """

    expected: float
    upper: float
    points: int
    default: float

    def __str__(self) -> str:
        expected, default = (
            f"{share:.1%}" if share < MAX_REGRET else f"{MAX_REGRET:.0%} or more"
            for share in (self.expected, self.default)
        )
        told = f"a mean regret of {expected} (the default: {default})"
        if self.upper >= MAX_REGRET:
            return told
        return f"{told}, with 95 % certainty below {self.upper:.1%}"


def measurement_cost(seconds: float) -> float:
    """Return the seconds to measure one choice at one point, from the seconds of one call."""
    return REPETITIONS * (seconds + CALL_OVERHEAD_S)


class ExperimentDesign:
    """A sequential experiment design, which chooses what to measure on a grid of points.

    candidates              choices at every point that the table is for; the default is added
    simulate                prior times of choices, before and besides measurements
    measurement_cost        seconds to measure one choice, from the seconds of one call
    uses_unmeasured_costs   whether the simulations of a call rest on costs that were not measured
    prior                   observations of other machines
    default_runs            the algorithm that the default runs
    counts                  how often an application makes each call, so that calls count by their
                            time; without any, all points count alike
    """

    def __init__(
        self,
        candidates: Mapping[CallPoint, Sequence[AlgorithmChoice]],
        simulate: SimulateFunction,
        measurement_cost: Callable[[float], float] = measurement_cost,
        seed: int = 1,
        uses_unmeasured_costs: Callable[[CallPoint], bool] = lambda _: False,
        prior: Sequence[Observation] = (),
        default_runs: DefaultRuns = unknown_default,
        counts: Mapping[CallPoint, int] | None = None,
    ) -> None:
        if not candidates:
            raise InputError("there is no point to probe: name collectives, shapes and sizes")
        self._candidates = dict[CallPoint, tuple[AlgorithmChoice, ...]]()
        self._simulate, self._measurement_cost = simulate, measurement_cost
        self._given: Sequence[Observation] = ()
        self._observations = dict[PointConfig, Observation]()
        self._seed, self._prior, self._counts = seed, tuple(prior), counts or {}
        self._uses_unmeasured_costs, self._default_runs = uses_unmeasured_costs, default_runs
        self._unanswered: Counter[PointConfig] = Counter()
        self._incorrect: IncorrectSet = frozenset()
        self.add_points(candidates)

    def add_points(self, candidates: Mapping[CallPoint, Sequence[AlgorithmChoice]]) -> None:
        """Add points, which count as much as the others, or not where others are counted."""
        added = {
            point: tuple(dict.fromkeys((AlgorithmChoice(), *self._others(point, choices))))
            for point, choices in candidates.items()
        }
        self._candidates = dict(sorted({**self._candidates, **added}.items()))
        self._draws = _student_t_draws(self._seed, max(map(len, self._candidates.values())))
        self.update(self._given, self._incorrect)

    def _others(
        self, point: CallPoint, choices: Sequence[AlgorithmChoice]
    ) -> list[AlgorithmChoice]:
        """Return the choices that are not what the default runs."""
        runs = self._default_runs(point)
        return [one for one in choices if runs is None or not stands_for(one, runs)]

    def update(
        self, observations: Iterable[Observation], incorrect: IncorrectSet = frozenset()
    ) -> None:
        """Replace all observations and the set of incorrect algorithms by these.

        What was measured in disturbed launches counts as not measured.
        """
        self._given = tuple(observations)
        screened = screen_launches(self._given)
        known = screened.observations
        self._selector = Selector(
            (*known, *self._prior),
            self._simulate,
            adaptive=True,
            uses_unmeasured_costs=self._uses_unmeasured_costs,
            default_runs=self._default_runs,
        )
        self._incorrect = incorrect
        self._correct_candidates = {
            point: tuple(one for one in choices if not is_incorrect((point, one), incorrect))
            for point, choices in self._candidates.items()
        }
        before = {pair: len(row.samples) for pair, row in self._observations.items()}
        self._observations = {(row.point, row.choice): row for row in known}
        for pair, row in self._observations.items():
            if len(row.samples) > before.get(pair, 0):
                self._unanswered[pair] = 0
        self._doubtful = {
            point: choices
            for point, choices in screened.doubtful.items()
            if point in self._candidates
            and self._unanswered[point, AlgorithmChoice()] < _MAX_UNANSWERED
        }
        self._update_estimates()

    def choose(self, point: CallPoint) -> AlgorithmChoice:
        """Return the choice that a table would use at `point` now."""
        return self._estimates[point].selection.choice

    @property
    def doubtful_points(self) -> Collection[CallPoint]:
        """The calls whose launches were disturbed, which are to be measured again."""
        return self._doubtful.keys()

    def regret_bound(self) -> RegretBound:
        """Return the regret bound of the table that would be made now.

        The regrets of points are correlated like their posterior. Their mean is taken to be gamma
        distributed: it is positive and has a long tail.
        """
        expected = np.array([own.selection.regret for own in self._estimates.values()])
        spread = np.array([own.selection.sd for own in self._estimates.values()])
        weights = self._weights()
        mean = max(float(weights @ expected), 0.0)
        default = float(weights @ [own.default_regret for own in self._estimates.values()])
        variance = self._covariance.variance_of_sum(weights * spread)
        if mean <= 0 or variance <= 0:
            return RegretBound(mean, mean, len(expected), default)
        upper = float(gammaincinv(mean**2 / variance, BOUND_CONFIDENCE) * variance / mean)
        return RegretBound(mean, max(upper, mean), len(expected), default)

    def next_batch(
        self, batch_seconds: float, max_seconds: float = np.inf
    ) -> tuple[Experiment, ...]:
        """Return the next batch of experiments, up to `batch_seconds` in total.

        The first experiment may take longer, up to `max_seconds` if that is larger. The batch is
        empty when nothing that fits is worth measuring. Calls whose launches were disturbed come
        first, whatever they save.
        """
        offers = self._acquisition_queue()
        batch = self._repetitions(batch_seconds, max_seconds)
        batch_seconds -= sum(task.seconds for task in batch)
        while (
            option := offers.best(batch_seconds if batch else max(batch_seconds, max_seconds))
        ) is not None:
            batch.append(option.experiment)
            batch_seconds -= option.experiment.seconds
            offers.accept(option)
        self._unanswered.update((task.point, one) for task in batch for one in task.choices)
        return tuple(batch)

    def _repetitions(self, batch_seconds: float, max_seconds: float) -> list[Experiment]:
        """Return the doubtful calls that fit into a batch, with all that was measured there."""
        batch: list[Experiment] = []
        for point, measured in sorted(self._doubtful.items()):
            correct, usable = self._correct_candidates[point], {AlgorithmChoice(), *measured}
            task = self._experiment(point, [n for n, one in enumerate(correct) if one in usable])
            if task.seconds <= (batch_seconds if batch else max(batch_seconds, max_seconds)):
                batch.append(task)
                batch_seconds -= task.seconds
        return batch

    def _experiment(self, point: CallPoint, indices: Sequence[int]) -> Experiment:
        """Return the experiment with the candidates of these indices."""
        choices = self._estimates[point].posterior.choices
        seconds = sum(self._measurement_cost(float(self._seconds(point)[n])) for n in indices)
        return Experiment(point, tuple(choices[n] for n in indices), seconds)

    def _seconds(self, point: CallPoint) -> FloatArray:
        """Return the seconds to expect of a call with each candidate, (choices,).

        A choice that is neither simulated nor measured there takes at least as long as the median
        of those that are: what it costs by byte may be known of faster networks alone.
        """
        if point not in self._expected_seconds:
            belief = self._estimates[point].posterior
            seconds = np.exp(belief.mean)
            known = np.array([self._is_known(point, one) for one in belief.choices])
            if known.any():
                floor = np.where(known, 0.0, np.median(seconds[known]))
                seconds = np.maximum(seconds, floor)
            self._expected_seconds[point] = seconds
        return self._expected_seconds[point]

    def _is_known(self, point: CallPoint, choice: AlgorithmChoice) -> bool:
        """Return whether a call with a choice was measured or simulated."""
        is_measured = (point, choice) in self._observations
        return is_measured or self._model(point).is_simulated(point, choice)

    def _update_estimates(self) -> None:
        points = list(self._candidates)
        known = {point for point, _ in self._observations}
        self._covariance = PosteriorCovariance(
            points, [n for n, p in enumerate(points) if p in known]
        )
        self._estimates = {point: self._estimate(point) for point in points}
        self._expected_seconds = dict[CallPoint, FloatArray]()

    def _estimate(self, point: CallPoint) -> RegretEstimate:
        model = self._model(point)
        return RegretEstimate(
            model.posterior(point, self._correct_candidates[point]),
            self._draws,
            frozenset(self._selector.guarded_candidates(point)),
            self._selector.coverage.measured_choices(point),
            model.launch_effects.shared,
        )

    def _acquisition_queue(self) -> AcquisitionQueue:
        regrets = np.array([own.selection.regret for own in self._estimates.values()])
        options = [
            option
            for n, point in enumerate(self._candidates)
            for option in self._acquisition_candidates(n, point)
        ]
        return AcquisitionQueue(options, self._weights() * regrets, self._covariance.copy())

    def _weights(self) -> FloatArray:
        """Return the share of each point in the default's time of all counted calls, (points,)."""
        counts = np.array([self._counts.get(point, 0) for point in self._estimates])
        if not counts.any():
            return np.full(len(counts), 1 / len(counts))
        times = counts * [own.default_seconds for own in self._estimates.values()]
        return np.asarray(times / times.sum())

    def _acquisition_candidates(self, index: int, point: CallPoint) -> list[AcquisitionCandidate]:
        """Return ways to measure a point: its choice with ever more of the likeliest winners.

        The choice is the default at first. A launch has times of both, so that what slows all of
        its calls cancels.
        """
        outlook = self._estimates[point]
        belief, regret = outlook.posterior, outlook.selection.regret
        if regret < _MIN_REGRET or point in self._doubtful:
            return []
        used = belief.choices.index(self._reference(point))
        order = [
            n
            for n in np.argsort(-outlook.win_probabilities, kind="stable")
            if n != used and self._is_informative(point, belief.choices[n])
        ]
        options = []
        for count in sorted({min(first, len(order)) for first in _CANDIDATE_COUNTS} - {0}):
            chosen = [used, *map(int, order[:count])]
            known = [self._variance(point, belief.choices[n]) for n in chosen]
            saved = outlook.expected_saving(chosen, known)
            task = self._experiment(point, chosen)
            options.append(AcquisitionCandidate(index, task, min(max(saved / regret, 0.0), 1.0)))
        return options

    def _reference(self, point: CallPoint) -> AlgorithmChoice:
        """Return the choice in use, or the default where requests for it go unanswered."""
        used = self.choose(point)
        return used if self._unanswered[point, used] < _MAX_UNANSWERED else AlgorithmChoice()

    def _variance(self, point: CallPoint, choice: AlgorithmChoice) -> float:
        """Return the variance of a further measurement: that of those before, in the mean."""
        row, model = self._observations.get((point, choice)), self._model(point)
        least = model.launch_effects.next_variance
        if row is None:
            return least
        return max(model.own_variance(row) * max(len(row.samples), 1), least)

    def _model(self, point: CallPoint) -> PosteriorModel:
        return self._selector.posterior_model(point.kind)

    def _is_informative(self, point: CallPoint, choice: AlgorithmChoice) -> bool:
        """Return whether measuring a choice at `point` would add information.

        It does if the choice was not measured, or not precisely, and requests do not go unanswered.
        """
        if self._unanswered[point, choice] >= _MAX_UNANSWERED:
            return False
        row = self._observations.get((point, choice))
        if row is None:
            return True
        half_width = NORMAL_95 * math.sqrt(self._model(point).own_variance(row))
        return half_width > _TARGET_HALF_WIDTH


def _student_t_draws(seed: int, columns: int) -> FloatArray:
    """Return draws of Student's t distribution, with one scale for each row."""
    random = np.random.default_rng(seed)
    scale = np.sqrt(DEGREES_OF_FREEDOM / random.chisquare(DEGREES_OF_FREEDOM, (_N_DRAWS, 1)))
    return np.asarray(random.standard_normal((_N_DRAWS, columns)) * scale)
