"""Times and speedups over several launches, with confidence intervals.

Where the ranks of a launch are placed is settled when it starts, and no number of repetitions
within it predicts the next one (Hunold and Carpen-Amarie, IEEE TPDS 27(12), 2016). So the launch is
the unit of the intervals: each gives one number, and Student's t, on logarithms, says how far a few
numbers can be trusted. A single launch cannot show how far others would be off, so its interval is
widened by the usual variation between launches.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from tuner.base.arrays import FloatArray
from tuner.base.statistics import CONFIDENCE, midmean

# Relative standard deviation between launches, of times and speedups alike. Measured on emulated
# clusters: two launches of the same calls differ by 1 % in the median and by 1 to 3 % where nothing
# is left to chance within them (`python -m tests.bench.intervals`).
LAUNCH_RELATIVE_SD = 0.015
RESAMPLES = 1000
MIN_SAMPLES = 3  # of a launch; fewer do not show their spread
_MIN_BOOTSTRAP_SAMPLES = 6
MAX_LAUNCHES = 10_000  # more than are ever started to show one difference
_CACHE_SIZE = 512  # series; those of one call are compared in all pairs
SEED = 20240229  # intervals of the same samples are the same on every run

LaunchSamples = Sequence[Sequence[float]]  # the samples of each launch


def mean_over_launches(launches: LaunchSamples) -> tuple[float, float, float]:
    """Return the typical time and its interval: the geometric mean of the launches' midmeans."""
    if len(launches) == 1:
        mean = _single_launch_mean(tuple(launches[0]), CONFIDENCE)
        return _with_launch_variance(*mean, CONFIDENCE)
    logs = np.log([float(midmean(samples)) for samples in launches])
    return _geometric_mean_interval(logs, CONFIDENCE)


def paired_speedup(
    default: LaunchSamples, chosen: LaunchSamples, level: float = CONFIDENCE
) -> tuple[float, float, float]:
    """Return how many times faster `chosen` is than `default`, with its interval.

    default, chosen     samples of each launch; sample i of both in one launch was taken in the
                        same repetition

    The speedup of a launch is the ratio of midmeans, the result their geometric mean. The interval
    of a single launch combines that of its repetitions, a percentile bootstrap (Efron and
    Tibshirani, 1993) that resamples both series together, so that a disturbance of both cancels,
    and the variation between launches; three to five repetitions have Student's interval. Raises
    ValueError for series that are not paired or have no samples.
    """
    if [len(s) for s in default] != [len(s) for s in chosen] or not all(map(len, default)):
        raise ValueError("samples are not paired: launches or repetitions are missing")
    if not default:
        raise ValueError("samples are not paired: there are none")
    logs = np.array(
        [math.log(midmean(d) / midmean(c)) for d, c in zip(default, chosen, strict=True)]
    )
    if len(logs) > 1:
        return _geometric_mean_interval(logs, level)
    return _with_launch_variance(*_one_launch_speedup(default[0], chosen[0], level), level)


def _one_launch_speedup(
    default: Sequence[float], chosen: Sequence[float], level: float
) -> tuple[float, float, float]:
    """Return a launch's speedup and its interval but for what launches differ by."""
    ratio = float(midmean(default) / midmean(chosen))
    if MIN_SAMPLES <= len(default) < _MIN_BOOTSTRAP_SAMPLES:
        return _student_around(ratio, np.log(default) - np.log(chosen), level)
    drawn = np.log(_resampled_midmeans(tuple(default)) / _resampled_midmeans(tuple(chosen)))
    return _bootstrap_interval(math.log(ratio), drawn, len(default), level)


def not_slower_p_value(default: Sequence[float], chosen: Sequence[float]) -> float:
    """Return the p-value of "chosen is not slower than default".

    It is that of Student's one-sided t-test on the logarithms of their ratios.

    default, chosen     one time for each launch, of the same launches

    Raises ValueError for fewer than two launches.
    """
    logs = np.log(default) - np.log(chosen)
    if len(logs) < 2:
        raise ValueError("a test needs two launches at least")
    from scipy.special import stdtr

    error = logs.std(ddof=1) / math.sqrt(len(logs))
    return (
        float(stdtr(len(logs) - 1, logs.mean() / error)) if error > 0 else float(logs.mean() >= 0)
    )


def holm(p_values: Sequence[float]) -> list[bool]:
    """Return which hypotheses Holm's step-down procedure rejects.

    With probability CONFIDENCE no true one is among them (Holm, Scandinavian Journal of Statistics
    6, 1979).

    p_values    p-value of each hypothesis
    """
    rejected = [False] * len(p_values)
    for rank, number in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[number] > (1 - CONFIDENCE) / (len(p_values) - rank):
            break
        rejected[number] = True
    return rejected


def launches_to_show(default: Sequence[float], chosen: Sequence[float]) -> int | None:
    """Return from how many launches on the interval of their speedup would leave out 1.

    That is if mean and spread remained those of these launches; None where it would take more than
    `MAX_LAUNCHES`.

    default, chosen     one time for each launch, of the same launches
    """
    logs = np.log(default) - np.log(chosen)
    seen, spread = abs(float(logs.mean())), float(logs.std(ddof=1))

    def is_shown(count: int) -> bool:
        return student_quantile(count - 1, CONFIDENCE) * spread / math.sqrt(count) < seen

    count = 2 + bisect_left(range(2, MAX_LAUNCHES + 1), True, key=is_shown)
    return count if count <= MAX_LAUNCHES else None


def small_sample_factor(count: int, level: float = CONFIDENCE) -> float:
    """Return the factor by which a bootstrap interval of `count` samples is too narrow.

    The variance of a sample is too small by (count - 1) / count, and Student's t distribution is
    wider than the normal one.
    """
    if count < 2:
        return 1.0
    student = student_quantile(count - 1, level)
    return student / _normal_quantile(level) * math.sqrt(count / (count - 1))


def _single_launch_mean(samples: tuple[float, ...], level: float) -> tuple[float, float, float]:
    """Return midmean and interval of one launch.

    The interval of a few samples is Student's, that of one or two their range.
    """
    value = float(midmean(samples))
    if len(samples) < MIN_SAMPLES:
        return value, min(samples), max(samples)
    if len(samples) < _MIN_BOOTSTRAP_SAMPLES:
        return _student_around(value, np.log(samples), level)
    return _bootstrap_interval(
        math.log(value), np.log(_resampled_midmeans(samples)), len(samples), level
    )


def _student_around(value: float, logs: FloatArray, level: float) -> tuple[float, float, float]:
    """Return a value with an interval as wide as Student's of the mean of logarithms."""
    mean, low, high = _geometric_mean_interval(logs, level)
    return value, value * low / mean, value * high / mean


def _bootstrap_interval(
    value: float, resampled: FloatArray, count: int, level: float
) -> tuple[float, float, float]:
    """Return a value and its interval from its logarithm and resamples of `count` samples.

    value       logarithm of the value
    resampled   logarithms of the resamples
    """
    ordered, wider = np.sort(resampled) - value, small_sample_factor(count, level)
    low, high = (
        _sorted_quantile(ordered, end) * wider for end in ((1 - level) / 2, (1 + level) / 2)
    )
    low, high = min(low, 0.0), max(high, 0.0)
    return math.exp(value), math.exp(value + low), math.exp(value + high)


def _sorted_quantile(ordered: FloatArray, share: float) -> float:
    """Return the quantile of sorted numbers; numpy's `quantile` takes six times as long."""
    at = share * (len(ordered) - 1)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (at - below) * (ordered[above] - ordered[below]))


def _geometric_mean_interval(logs: FloatArray, level: float) -> tuple[float, float, float]:
    """Return geometric mean and Student's interval of numbers given by their logarithms."""
    spread = logs.std(ddof=1) / math.sqrt(len(logs))
    half = float(student_quantile(len(logs) - 1, level) * spread)
    centre = float(logs.mean())
    return math.exp(centre), math.exp(centre - half), math.exp(centre + half)


def _with_launch_variance(
    value: float, low: float, high: float, level: float
) -> tuple[float, float, float]:
    """Widen an interval by the variation between launches.

    Both are independent, so their squares add up.
    """
    apart = _normal_quantile(level) * LAUNCH_RELATIVE_SD
    down, up = (math.hypot(math.log(value / low), apart), math.hypot(math.log(high / value), apart))
    return value, value * math.exp(-down), value * math.exp(up)


@cache
def student_quantile(freedom: int, level: float) -> float:
    """Return the quantile of Student's distribution for a two-sided interval."""
    from scipy.special import stdtrit  # slow to import, which would delay a service

    return float(stdtrit(freedom, (1 + level) / 2))


@cache
def _normal_quantile(level: float) -> float:
    """Return the quantile of the normal distribution for a two-sided interval."""
    from scipy.special import ndtri

    return float(ndtri((1 + level) / 2))


@lru_cache(_CACHE_SIZE)
def _resampled_midmeans(samples: tuple[float, ...]) -> FloatArray:
    """Return the midmeans of all resamples, (RESAMPLES,), with the same indices for each length."""
    return midmean(np.asarray(samples)[_resample_indices(len(samples))])


@lru_cache(8)
def _resample_indices(size: int) -> NDArray[np.intp]:
    """Return the indices of the samples in each resample, (RESAMPLES, size)."""
    return np.random.default_rng(SEED).integers(0, size, (RESAMPLES, size))
