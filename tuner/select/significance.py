"""Which candidates really beat the library's default at one point.

Looking for the best of many noisy candidates favours the luckiest (the winner's curse). So each
candidate's paired gain over the default is tested at 1 - 5 % / (number of candidates), Bonferroni's
correction: that a point leaves the default although no candidate is faster has at most 5 %
probability. Moreover the gain must exceed a noise threshold, also at the lower bound. All samples
serve both choice and test; halving them instead would cost more power than the correction does.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tuner.base.errors import InputError
from tuner.base.statistics import CONFIDENCE, NORMAL_95
from tuner.core.speedup import launch_sd_ratio, paired_speedup, pooled_speedup, unpaired_speedup
from tuner.core.table import DEFAULT, LEARNED, MEASURED, SIMULATED, AlgorithmConfig
from tuner.select.dataset import MIN_GAIN, CallPoint, Observation, group_by_point
from tuner.select.posterior import Posterior
from tuner.select.selector import Selector

LaunchSdRatio = (
    float | None
)  # `tuner.core.speedup.launch_sd_ratio`; None where no design chose the launches

SamplesByLaunch = list[tuple[float, ...]]  # of each launch

DEFAULT_CONFIG = AlgorithmConfig()
_MIN_SAMPLES = 6  # samples of each launch: fewer cannot show how far they spread


@dataclass(frozen=True)
class Comparison(ABC):
    """One point.

    seconds     of the default and of every candidate
    simulated   likewise; NaN where no schedule says it
    gains       candidate -> default time / candidate time
    winners     the candidates whose gain is beyond doubt
    """

    point: CallPoint
    seconds: Mapping[AlgorithmConfig, float]
    simulated_seconds: Mapping[AlgorithmConfig, float]
    gains: Mapping[AlgorithmConfig, float]
    winners: frozenset[AlgorithmConfig]
    min_gain: float

    @abstractmethod
    def basis(self, choice: AlgorithmConfig) -> str:
        """What is known of a choice rests on this, as in `Evidence`."""

    @abstractmethod
    def interval(
        self, choice: AlgorithmConfig, reference: AlgorithmConfig = DEFAULT_CONFIG
    ) -> tuple[float, float]:
        """The 95 % interval of the time of `device_array` over that of a candidate."""


@dataclass(frozen=True)
class MeasuredComparison(Comparison):
    """Of what was measured there: `rows` of the default and of the candidates."""

    observations: Mapping[AlgorithmConfig, Observation]
    launch_sd_ratio: LaunchSdRatio

    def basis(self, choice: AlgorithmConfig) -> str:
        """What was measured."""
        return MEASURED

    def interval(
        self, choice: AlgorithmConfig, reference: AlgorithmConfig = DEFAULT_CONFIG
    ) -> tuple[float, float]:
        """From the repetitions that both have; anything is possible when there are none."""
        slower, faster = self.observations[reference], self.observations[choice]
        if not slower.samples.keys() & faster.samples.keys():
            return 0.0, math.inf
        return _speedup_interval(slower, faster, CONFIDENCE, self.launch_sd_ratio)


@dataclass(frozen=True)
class PredictedComparison(Comparison):
    """Of what is believed of a point that was not measured.

    supported   the choices that were measured nearby
    """

    posterior: Posterior
    supported: frozenset[AlgorithmConfig]

    def basis(self, choice: AlgorithmConfig) -> str:
        """Measurements nearby, or only a simulation."""
        return LEARNED if choice in self.supported else SIMULATED

    def interval(
        self, choice: AlgorithmConfig, reference: AlgorithmConfig = DEFAULT_CONFIG
    ) -> tuple[float, float]:
        """From the joint belief of both."""
        gain, spread = self.posterior.log_gain(choice, reference)
        half = NORMAL_95 * spread
        return math.exp(gain - half), math.exp(gain + half)


def compare_all_with_default(
    observations: Sequence[Observation], min_gain: float = MIN_GAIN, adaptive: bool = False
) -> list[Comparison]:
    """One contest for each point that was measured."""
    return [
        compare_with_default(point, own, min_gain, adaptive)
        for point, own in group_by_point(observations).items()
    ]


def compare_with_default(
    point: CallPoint,
    observations: Sequence[Observation],
    min_gain: float = MIN_GAIN,
    adaptive: bool = False,
) -> Comparison:
    """Compare with the default every candidate measured at `point` in each of its launches.

    A launch that lacks one is a launch in which its result was wrong: it is no candidate at all.
    Unless a design chose what each launch measures: then those count that both were in.
    Raises InputError when the default was not measured there.
    """
    default = next((row for row in observations if row.config.is_default), None)
    if default is None:
        raise InputError(
            f"{point}: the library's {DEFAULT} was not measured, so no algorithm can be compared"
            " with it; probe again with the default among the algorithms"
        )
    candidates = {
        row.config: row
        for row in observations
        if not row.config.is_default and _is_comparable(default, row, adaptive)
    }
    pairs = [_paired_samples(default, row) for row in candidates.values()]
    apart = launch_sd_ratio(pairs) if adaptive else None
    gains = {choice: _gain(default, row, apart) for choice, row in candidates.items()}
    level = _bonferroni_confidence(len(candidates))
    winners = frozenset(
        choice
        for choice, row in candidates.items()
        if gains[choice] > 1 + min_gain
        and _n_paired_samples(default, row, adaptive) >= _MIN_SAMPLES
        and _speedup_interval(default, row, level, apart)[0] > 1 + min_gain
    )
    known = {AlgorithmConfig(): default, **candidates}
    return MeasuredComparison(
        point,
        {choice: row.seconds for choice, row in known.items()},
        {choice: row.simulated_seconds for choice, row in known.items()},
        gains,
        winners,
        min_gain,
        known,
        apart,
    )


def needs_more_launches(comparison: Comparison) -> bool:
    """Whether something was faster beyond noise in every launch of several, nothing is so beyond
    doubt, and as many launches again like these would have shown it.

    A mean of few launches is known by Student's t alone, which asks two of them to be alike.
    """
    if (
        not isinstance(comparison, MeasuredComparison)
        or comparison.launch_sd_ratio is not None
        or comparison.winners
    ):
        return False
    level = _bonferroni_confidence(len(comparison.gains))
    return any(
        len(slow) > 1
        and min(map(len, slow)) >= _MIN_SAMPLES
        and all(
            paired_speedup([s], [f])[0] > 1 + comparison.min_gain
            for s, f in zip(slow, fast, strict=True)
        )
        and paired_speedup(2 * slow, 2 * fast, level)[1] > 1 + comparison.min_gain
        for choice in comparison.gains
        for slow, fast in [
            _paired_samples(
                comparison.observations[DEFAULT_CONFIG], comparison.observations[choice]
            )
        ]
    )


def predict_comparison(
    point: CallPoint,
    selector: Selector,
    choices: Collection[AlgorithmConfig],
    min_gain: float = MIN_GAIN,
) -> Comparison | None:
    """What is believed of those of `choices` that are believed in at a point without measurements;
    None where the default is not among them, so that the library decides.

    A belief wins as `Selector.significant_winners` says. There is no luck to correct for:
    expectations are drawn towards what is usual.
    """
    candidates = selector.candidates(point, choices, max_extrapolation=1.0)
    if AlgorithmConfig() not in candidates:
        return None
    belief = selector.posterior(point, candidates)
    seconds = dict(zip(candidates, map(float, np.exp(belief.mean)), strict=True))
    gains = {choice: seconds[AlgorithmConfig()] / own for choice, own in seconds.items()}
    del gains[AlgorithmConfig()]
    simulated = {choice: selector.simulated_seconds(point, choice) for choice in candidates}
    supported = frozenset(filter(partial(selector.coverage.covers, point), candidates))
    winners = selector.significant_winners(point, candidates, min_gain)
    return PredictedComparison(
        point, seconds, simulated, gains, winners, min_gain, belief, supported
    )


def _bonferroni_confidence(n_candidates: int) -> float:
    """Of confidence, for one of so many."""
    return 1 - (1 - CONFIDENCE) / max(n_candidates, 1)


def has_repetitions(observation: Observation) -> bool:
    """Whether its samples can show how far they spread; single averages say nothing of that."""
    return sum(map(len, observation.samples.values())) >= _MIN_SAMPLES


def _is_comparable(default: Observation, observation: Observation, adaptive: bool) -> bool:
    if adaptive:
        return bool(observation.samples.keys() & default.samples.keys())
    return observation.samples.keys() >= default.samples.keys()


def _paired_samples(
    slower: Observation, faster: Observation
) -> tuple[SamplesByLaunch, SamplesByLaunch]:
    """The repetitions that both have: a series may have been cut short."""
    slow, fast = SamplesByLaunch(), SamplesByLaunch()
    for launch in sorted(slower.samples.keys() & faster.samples.keys()):
        pairs = min(len(slower.samples[launch]), len(faster.samples[launch]))
        slow.append(slower.samples[launch][:pairs])
        fast.append(faster.samples[launch][:pairs])
    return slow, fast


def _n_paired_samples(slower: Observation, faster: Observation, adaptive: bool) -> int:
    """Samples of a launch that both have; of a design, of all launches."""
    slow, _ = _paired_samples(slower, faster)
    return sum(map(len, slow)) if adaptive else min(map(len, slow))


def _speedup(
    slower: Observation, faster: Observation, level: float, sd_ratio: LaunchSdRatio
) -> tuple[float, float, float]:
    """How many times slower the one is, and the interval.

    A design repeats a call in another launch to have more of the same, and not to know how launches
    differ. Where less than half of one's samples have others at their side, all of both count:
    chance may have made those few alike. Otherwise side by side, so that what hit both cancels.
    """
    slow, fast = _paired_samples(slower, faster)
    if sd_ratio is None:
        return paired_speedup(slow, fast, level)
    most = max(sum(map(len, row.samples.values())) for row in (slower, faster))
    if 2 * sum(map(len, slow)) < most:
        return unpaired_speedup(
            [*slower.samples.values()], [*faster.samples.values()], level, sd_ratio
        )
    return pooled_speedup(slow, fast, level, sd_ratio)


def _gain(slower: Observation, faster: Observation, sd_ratio: LaunchSdRatio) -> float:
    """Geometric mean over the launches that both have; 1 when there are none."""
    if not slower.samples.keys() & faster.samples.keys():
        return 1.0
    return _speedup(slower, faster, CONFIDENCE, sd_ratio)[0]


def _speedup_interval(
    slower: Observation, faster: Observation, level: float, sd_ratio: LaunchSdRatio
) -> tuple[float, float]:
    _, low, high = _speedup(slower, faster, level, sd_ratio)
    return low, high
