"""Comparisons of candidates with the library default at one point: which may replace it?

Where a probe measured all candidates in the same launches, taking the best of many noisy ones
favours the luckiest (the winner's curse). So each candidate's paired gain over the default is
tested at 1 - 5 % / (number of candidates), Bonferroni's correction: the probability that a point
leaves the default although no candidate is faster is at most 5 %. Moreover the gain must exceed a
noise threshold, also at the lower bound. All samples serve both selection and test; halving them
instead would cost more power than the correction does. Elsewhere, and where an experiment design
chose what each launch measures, a posterior decides, see `tuner.select.guard`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.base.errors import InputError
from tuner.base.statistics import CONFIDENCE, NORMAL_95
from tuner.core.speedup import MIN_SAMPLES, paired_speedup
from tuner.core.table import DEFAULT, LEARNED, MEASURED, SIMULATED, AlgorithmChoice
from tuner.select.dataset import MIN_GAIN, CallPoint, Observation, group_by_point

if TYPE_CHECKING:  # SciPy, which measured comparisons do without
    from tuner.select.posterior import Posterior
    from tuner.select.selector import Selector

SamplesByLaunch = list[tuple[float, ...]]  # the samples of each launch

DEFAULT_CHOICE = AlgorithmChoice()


@dataclass(frozen=True)
class Comparison(ABC):
    """A comparison of candidates with the default at one point.

    seconds             of the default and of every candidate
    simulated_seconds   of the same; NaN without a schedule
    gains               candidate -> default time / candidate time
    winners             the candidates whose gain is significant
    """

    point: CallPoint
    seconds: Mapping[AlgorithmChoice, float]
    simulated_seconds: Mapping[AlgorithmChoice, float]
    gains: Mapping[AlgorithmChoice, float]
    winners: frozenset[AlgorithmChoice]

    @abstractmethod
    def basis(self, choice: AlgorithmChoice) -> str:
        """Return the basis of what is known of a choice, as in `Evidence`."""

    @abstractmethod
    def max_spread(self, log_gains: FloatArray) -> FloatArray:
        """Return the standard deviation below which gains of these logarithms count."""

    def slowdown_probability(self, choice: AlgorithmChoice) -> float | None:
        """Return the probability of being slower than the default by over `MIN_GAIN`.

        It is None where times were compared.
        """
        return None

    @abstractmethod
    def interval(
        self, choice: AlgorithmChoice, reference: AlgorithmChoice = DEFAULT_CHOICE
    ) -> tuple[float, float]:
        """Return the 95 % interval of the time of `reference` over that of `choice`."""


@dataclass(frozen=True)
class MeasuredComparison(Comparison):
    """A comparison of measured times.

    observations    of the default and of the candidates
    """

    observations: Mapping[AlgorithmChoice, Observation]

    def basis(self, choice: AlgorithmChoice) -> str:
        return MEASURED

    def max_spread(self, log_gains: FloatArray) -> FloatArray:
        """Return that up to which they are above `MIN_GAIN` with 95 %."""
        return np.asarray((log_gains - math.log1p(MIN_GAIN)) / NORMAL_95)

    def interval(
        self, choice: AlgorithmChoice, reference: AlgorithmChoice = DEFAULT_CHOICE
    ) -> tuple[float, float]:
        """Return the interval from the common repetitions; (0, inf) if there are none."""
        pair = _paired_samples(self.observations[reference], self.observations[choice])
        return paired_speedup(*pair)[1:] if all(pair) else (0.0, math.inf)


@dataclass(frozen=True)
class PredictedComparison(Comparison):
    """A comparison of times that a posterior expects.

    measured    the choices that were measured at the point
    nearby      the choices that were measured there or nearby
    """

    posterior: Posterior
    measured: frozenset[AlgorithmChoice]
    nearby: frozenset[AlgorithmChoice]

    def basis(self, choice: AlgorithmChoice) -> str:
        """Return MEASURED where a choice and the default were measured, LEARNED for one nearby."""
        if self.measured >= {choice, DEFAULT_CHOICE}:
            return MEASURED
        return LEARNED if choice in self.nearby else SIMULATED

    def max_spread(self, log_gains: FloatArray) -> FloatArray:
        """Return that of `tuner.select.guard`."""
        return self.posterior.guarded_spread(log_gains, len(self.measured - {DEFAULT_CHOICE}))

    def slowdown_probability(self, choice: AlgorithmChoice) -> float:
        """Return the probability by the posterior."""
        return self.posterior.slowdown_probability(choice)

    def interval(
        self, choice: AlgorithmChoice, reference: AlgorithmChoice = DEFAULT_CHOICE
    ) -> tuple[float, float]:
        """Return the interval from the joint posterior of both."""
        gain, spread = self.posterior.log_gain(choice, reference)
        half = NORMAL_95 * spread
        return math.exp(gain - half), math.exp(gain + half)


def compare_all_with_default(observations: Sequence[Observation]) -> list[Comparison]:
    """Return one comparison for each measured point."""
    return [compare_with_default(point, own) for point, own in group_by_point(observations).items()]


def compare_with_default(point: CallPoint, observations: Sequence[Observation]) -> Comparison:
    """Compare with the default every candidate measured at `point` in each of its launches.

    A candidate that is missing in a launch gave a wrong result there and is left out. Raises
    InputError when the default was not measured there.
    """
    default = next((row for row in observations if row.choice.is_default), None)
    if default is None:
        raise InputError(
            f"{point}: the library's {DEFAULT} was not measured, so no algorithm can be compared"
            " with it; probe again with the default among the algorithms"
        )
    candidates = {
        row.choice: row
        for row in observations
        if not row.choice.is_default and row.samples.keys() >= default.samples.keys()
    }
    pairs = {choice: _paired_samples(default, row) for choice, row in candidates.items()}
    gains = {choice: paired_speedup(*pair)[0] for choice, pair in pairs.items()}
    level = _bonferroni_confidence(len(candidates))
    winners = frozenset(
        choice
        for choice, (slow, fast) in pairs.items()
        if gains[choice] > 1 + MIN_GAIN
        and min(map(len, slow)) >= MIN_SAMPLES
        and paired_speedup(slow, fast, level)[1] > 1 + MIN_GAIN
    )
    known = {AlgorithmChoice(): default, **candidates}
    return MeasuredComparison(
        point,
        {choice: row.seconds for choice, row in known.items()},
        {choice: row.simulated_seconds for choice, row in known.items()},
        gains,
        winners,
        known,
    )


def needs_more_launches(comparison: Comparison) -> bool:
    """Return whether twice as many launches could make a gain significant.

    This is so if no gain is significant yet, a candidate was faster beyond noise in every one of
    several launches, and repeating these launches with the same results would suffice. The interval
    of a few launches is that of Student's t alone, so two of them must be very similar.
    """
    if not isinstance(comparison, MeasuredComparison) or comparison.winners:
        return False
    level = _bonferroni_confidence(len(comparison.gains))
    default = comparison.observations[DEFAULT_CHOICE]
    pairs = [_paired_samples(default, comparison.observations[one]) for one in comparison.gains]
    return any(
        len(slow) > 1
        and min(map(len, slow)) >= MIN_SAMPLES
        and all(paired_speedup([s], [f])[0] > 1 + MIN_GAIN for s, f in zip(slow, fast, strict=True))
        and paired_speedup(2 * slow, 2 * fast, level)[1] > 1 + MIN_GAIN
        for slow, fast in pairs
    )


def predict_comparison(
    point: CallPoint, selector: Selector, choices: Collection[AlgorithmChoice]
) -> Comparison | None:
    """Return the comparison at a point that a posterior expects.

    It contains the covered choices among `choices`, and is None if there are none or the default
    was never measured. Winners are those of `Selector.guarded_winners`.
    """
    candidates = selector.guarded_candidates(point, choices)
    if AlgorithmChoice() not in candidates:
        return None
    belief = selector.posterior(point, candidates)
    seconds = dict(zip(candidates, map(float, np.exp(belief.mean)), strict=True))
    gains = {choice: seconds[AlgorithmChoice()] / own for choice, own in seconds.items()}
    del gains[AlgorithmChoice()]
    simulated = {choice: selector.simulated_seconds(point, choice) for choice in candidates}
    nearby = frozenset(one for one in candidates if selector.is_measured_nearby(point, one))
    measured = selector.coverage.measured_choices(point)
    winners = selector.guarded_winners(point, candidates)
    return PredictedComparison(point, seconds, simulated, gains, winners, belief, measured, nearby)


def _bonferroni_confidence(n_candidates: int) -> float:
    """Return the confidence level for each of `n_candidates` tests."""
    return 1 - (1 - CONFIDENCE) / max(n_candidates, 1)


def has_repetitions(observation: Observation) -> bool:
    """Return whether there are enough samples to show their spread, unlike single averages."""
    return sum(map(len, observation.samples.values())) >= MIN_SAMPLES


def _paired_samples(
    slower: Observation, faster: Observation
) -> tuple[SamplesByLaunch, SamplesByLaunch]:
    """Return the repetitions that both have, by launch; a series may have been cut short."""
    slow, fast = SamplesByLaunch(), SamplesByLaunch()
    for launch in sorted(slower.samples.keys() & faster.samples.keys()):
        pairs = min(len(slower.samples[launch]), len(faster.samples[launch]))
        slow.append(slower.samples[launch][:pairs])
        fast.append(faster.samples[launch][:pairs])
    return slow, fast
