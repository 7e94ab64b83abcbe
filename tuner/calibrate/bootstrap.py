"""Confidence intervals by the bootstrap: each number is computed from the data and from resamples.

A resampled quantity is an array of shape (1 + RESAMPLES,): its value, then its value in each
resample. Consecutive samples are correlated, so blocks of them are drawn (Künsch, Annals of
Statistics 17, 1989), and launches differ, so of several launches some are drawn.
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
MAX_BATCH_SAMPLES = 1 << 22  # samples that are drawn at once; a file may have series of millions
SEED = 20240301
MIN_TIME_S = 1e-9  # s; a lower bound of all times
NORMAL_IQR = 1.349  # interquartile range of a normal distribution in standard deviations


@dataclass(frozen=True)
class Bootstrap:
    """A bootstrap of medians and midmeans of series.

    drift   relative standard deviation by which the machine drifted while it was probed, beyond
            what the samples of a series show; common to all series of one resample
    """

    drift: float = 0.0

    def median(self, launches: Sequence[Measurement]) -> FloatArray:
        """Return the seconds of one point, the geometric mean of the launches' medians, resampled.

        Student's t widens the spread of few samples or launches.
        """
        return self._resample_launches(launches, _resampled_logs(launches))

    def midmean(self, launches: Sequence[Measurement]) -> FloatArray:
        """Return the same as `median` of means of the middle half of the samples.

        Where only a few times are possible and chance decides among them, a median is one of them
        and a mean lies between.
        """
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
        """Return the relative standard error of that median, from the samples within launches.

        It is computed from quartiles, since of a handful of samples with one outlier some
        resamples are far off.
        """
        low, high = np.quantile(_resampled_logs(launches)[:, 1:], [0.25, 0.75], axis=1)
        return float(np.sqrt(np.sum(((high - low) / NORMAL_IQR) ** 2)) / len(launches))

    @property
    def drift_log_factors(self) -> FloatArray:
        """The logarithm of how much slower everything was in each resample."""
        return np.random.default_rng(SEED).normal(0.0, self.drift, RESAMPLES)

    def add_noise(self, times: FloatArray, relative_sd: FloatArray, name: str) -> FloatArray:
        """Return resampled times with noise; `times` (1 + RESAMPLES, k), `relative_sd` (k,)."""
        generator = np.random.default_rng([SEED, crc32(name.encode())])
        noise = np.exp(relative_sd * generator.standard_normal((RESAMPLES, len(relative_sd))))
        return np.concatenate([times[:1], times[1:] * noise])


def estimate_drift(sentinels: Sequence[Sequence[Measurement]]) -> float:
    """Return the relative standard deviation between repetitions of the same point.

    sentinels   for each point the list of its repetitions

    The variance that the samples of each repetition explain is subtracted.
    """
    beyond = []
    for repeated in sentinels:
        logs = np.log([max(float(np.median(one.samples)), MIN_TIME_S) for one in repeated])
        within = [Bootstrap().relative_standard_error([one]) ** 2 for one in repeated]
        if len(logs) > 1:
            beyond.append(float(logs.var(ddof=1)) - float(np.mean(within)))
    return math.sqrt(max(float(np.mean(beyond)), 0.0)) if beyond else 0.0


def interval_estimate(resampled: FloatArray) -> Estimate:
    """Return the value with the middle 95 % of the resamples, widened to contain it."""
    value = float(resampled[0])
    low, high = np.quantile(resampled[1:], [0.025, 0.975])
    return Estimate(value, float(min(value, low)), float(max(value, high)))


def _median(samples: FloatArray) -> FloatArray:
    return np.asarray(np.median(samples, axis=-1))


def _resampled_logs(
    launches: Sequence[Measurement], statistic: Callable[[FloatArray], FloatArray] = _median
) -> FloatArray:
    """Return the logarithms of the medians of a point, shape (launches, 1 + RESAMPLES).

    The seed depends on the point only, so that the result is reproducible.
    """
    *point, _placement = launches[0].point  # left out, to keep the seeds
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
    """Return the statistic of the samples and of RESAMPLES circular block resamples."""
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
    """Return the launches that each resample takes.

    They are the same for all series: a slow launch is slow in all.
    """
    generator = np.random.default_rng([SEED, count])
    return generator.integers(0, count, (RESAMPLES, count))
