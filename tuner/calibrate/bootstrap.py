"""Intervals by the bootstrap: every number is computed once from what was measured and many times
from what might have been measured instead.

A drawn quantity is an array of shape (1 + RESAMPLES,): its value, then its value in each resample.
Samples that follow one another are alike, so runs of them are drawn (Künsch, Annals of Statistics
17, 1989), and launches differ, so of several launches some are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from tuner.base.arrays import FloatArray, IntArray
from tuner.base.statistics import midmean
from tuner.core.calibration import Estimate
from tuner.core.measurement import Measurement
from tuner.core.speedup import small_sample_factor

RESAMPLES = 400
MAX_BATCH_SAMPLES = 1 << 22  # samples that are drawn together; a file may have series of millions
SEED = 20240301
MIN_TIME_S = 1e-9  # s; no message is faster
NORMAL_IQR = 1.349  # standard deviations between those of a normal distribution


@dataclass(frozen=True)
class Bootstrap:
    """Draws medians and midmeans of series.

    drift   relative standard deviation by which the machine wandered while it was probed, beyond
            what the samples of a series show; common to all series of one resample
    """

    drift: float = 0.0

    def median(self, launches: Sequence[Measurement]) -> FloatArray:
        """Of one point: seconds, the geometric mean of the launches' medians.

        Student's t widens what is drawn of few samples or launches.
        """
        return self._resample_launches(launches, _resampled_logs(launches))

    def midmean(self, launches: Sequence[Measurement]) -> FloatArray:
        """The same of the means of the middle half of the samples: where a few times are possible
        and chance decides among them, a median is one of them and a mean lies between."""
        return self._resample_launches(launches, _resampled_logs(launches, midmean))

    def _resample_launches(self, launches: Sequence[Measurement], logs: FloatArray) -> FloatArray:
        value = float(logs[:, 0].mean())
        if len(launches) > 1:
            chosen = _resampled_launch_indices(len(launches))
            drawn = logs[chosen, np.arange(1, RESAMPLES + 1)[:, None]].mean(axis=1)
            drawn = value + (drawn - value) * small_sample_factor(len(launches))
        else:
            drawn = value + (logs[0, 1:] - value) * small_sample_factor(len(launches[0].samples))
        seconds: FloatArray = np.exp(np.concatenate([[value], drawn + self.drift_log_factors]))
        return seconds

    def relative_standard_error(self, launches: Sequence[Measurement]) -> float:
        """Relative standard error of that median, as far as the samples within launches tell.

        From the quartiles: of a handful of samples with one outlier some resamples are far off.
        """
        low, high = np.quantile(_resampled_logs(launches)[:, 1:], [0.25, 0.75], axis=1)
        return float(np.sqrt(np.sum(((high - low) / NORMAL_IQR) ** 2)) / len(launches))

    @property
    def drift_log_factors(self) -> FloatArray:
        """Logarithm of how much slower everything was in each resample."""
        return np.random.default_rng(SEED).normal(0.0, self.drift, RESAMPLES)

    def add_noise(self, times: FloatArray, relative_sd: FloatArray, name: str) -> FloatArray:
        """Resamples of shape (1 + RESAMPLES, k) with `scatter`, shape (k,), on top; relative."""
        generator = np.random.default_rng([SEED, crc32(name.encode())])
        noise = np.exp(relative_sd * generator.standard_normal((RESAMPLES, len(relative_sd))))
        return np.concatenate([times[:1], times[1:] * noise])


def estimate_drift(sentinels: Sequence[Sequence[Measurement]]) -> float:
    """Relative standard deviation between repetitions of the same point, each list one of them.

    What the samples of each repetition make of it by themselves is taken off.
    """
    beyond = []
    for repeated in sentinels:
        logs = np.log([max(float(np.median(one.samples)), MIN_TIME_S) for one in repeated])
        within = [Bootstrap().relative_standard_error([one]) ** 2 for one in repeated]
        if len(logs) > 1:
            beyond.append(float(logs.var(ddof=1)) - float(np.mean(within)))
    return math.sqrt(max(float(np.mean(beyond)), 0.0)) if beyond else 0.0


def interval_estimate(resampled: FloatArray) -> Estimate:
    """The value and the middle 95 % of the resamples, which it is always within."""
    value = float(resampled[0])
    low, high = np.quantile(resampled[1:], [0.025, 0.975])
    return Estimate(value, float(min(value, low)), float(max(value, high)))


def _median(samples: FloatArray) -> FloatArray:
    return np.asarray(np.median(samples, axis=-1))


def _resampled_logs(
    launches: Sequence[Measurement], statistic: Callable[[FloatArray], FloatArray] = _median
) -> FloatArray:
    """Logarithms of the medians of a point, shape (launches, 1 + RESAMPLES); always the same."""
    *point, _placement = launches[0].point  # messages have none, and keep their seeds
    seed = crc32(repr(tuple(point)).encode())
    seed ^= crc32(repr(sorted(launches[0].params.items())).encode())
    generator = np.random.default_rng([SEED, seed])
    each = np.array([_block_bootstrap(one.samples, generator, statistic) for one in launches])
    logs: FloatArray = np.log(np.maximum(each, MIN_TIME_S))
    return logs


def _block_bootstrap(
    samples: Sequence[float],
    generator: np.random.Generator,
    statistic: Callable[[FloatArray], FloatArray],
) -> FloatArray:
    """What is typical of the samples and of RESAMPLES draws of runs of them, which wrap round."""
    taken = np.asarray(samples, dtype=float)
    count = len(taken)
    length = max(1, round(count ** (1 / 3)))
    begin = generator.integers(0, count, (RESAMPLES, -(-count // length)))
    found = [statistic(taken[None])]
    for some in np.array_split(begin, min(RESAMPLES, 1 + RESAMPLES * count // MAX_BATCH_SAMPLES)):
        chosen = (some[:, :, None] + np.arange(length)).reshape(len(some), -1)[:, :count] % count
        found.append(statistic(taken[chosen]))
    return np.concatenate(found)


def _resampled_launch_indices(count: int) -> IntArray:
    """Which launches each resample takes, the same for all series: a slow launch is slow in all."""
    generator = np.random.default_rng([SEED, count])
    return generator.integers(0, count, (RESAMPLES, count))
