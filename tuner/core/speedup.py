"""Times and gains over several launches, with intervals.

Where the ranks of a launch are placed is settled when it starts, and no number of repetitions
within it tells what the next one will be like (Hunold and Carpen-Amarie, IEEE TPDS 27(12), 2016).
So the launch is the unit that intervals count: each gives one number, and Student's t, on
logarithms, says how far a handful of numbers can be trusted. A single launch cannot show how far
others would be off, so its interval is widened by what launches usually are apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit

from tuner.base.arrays import FloatArray
from tuner.base.statistics import CONFIDENCE, NORMAL_95, midmean

# Relative standard deviation of what a launch measures, times and gains alike. Measured on emulated
# clusters: two launches of the same calls differ by 1 % in the median and by 1 to 3 % where nothing
# is left to chance within them (`python -m tests.bench.intervals`).
LAUNCH_RELATIVE_SD = 0.015
_PRIOR_LAUNCHES = 2.0  # launches that this counts as beside those that were measured
RESAMPLES = 1000
_MIN_BOOTSTRAP_SAMPLES = 6  # samples
_CACHE_SIZE = 512  # series: those of one call are held against one another in all pairs
SEED = 20240229  # intervals of the same samples are the same on every run

LaunchSamples = Sequence[Sequence[float]]  # samples of each


def mean_over_launches(
    launches: LaunchSamples, level: float = CONFIDENCE
) -> tuple[float, float, float]:
    """Typical time, the geometric mean of what is typical of each launch, and its interval."""
    if len(launches) == 1:
        return _with_launch_variance(*_single_launch_mean(tuple(launches[0]), level), level)
    return _geometric_mean_interval(
        np.log([float(midmean(samples)) for samples in launches]), level
    )


def paired_speedup(
    default: LaunchSamples, chosen: LaunchSamples, level: float = CONFIDENCE
) -> tuple[float, float, float]:
    """How many times faster `measure_chosen` is than `default`, with its interval; above 1 is
    faster.

    default, chosen     samples of each launch; sample i of both in one launch was taken in the
                        same repetition

    The gain of a launch is the ratio of typical times, the gain their geometric mean. The interval
    of a single launch is that of its repetitions, a percentile bootstrap (Efron and Tibshirani,
    1993) that resamples both series together, so that a disturbance that hit both cancels, and of
    what launches are apart. Raises ValueError for series that are not paired or without samples.
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
    drawn = np.log(_resampled_midmeans(tuple(default[0])) / _resampled_midmeans(tuple(chosen[0])))
    return _with_launch_variance(
        *_bootstrap_interval(logs[0], drawn, len(default[0]), level), level
    )


def not_slower_p_value(default: Sequence[float], chosen: Sequence[float]) -> float:
    """Return the p-value of "chosen is not slower than default".

    It is that of Student's one-sided t-test on the logarithms of their ratios.

    default, chosen     one time for each launch, of the same launches

    Raises ValueError for fewer than two launches.
    """
    logs = np.log(default) - np.log(chosen)
    if len(logs) < 2:
        raise ValueError("a test needs two launches at least")
    error = logs.std(ddof=1) / math.sqrt(len(logs))
    return (
        float(stdtr(len(logs) - 1, logs.mean() / error)) if error > 0 else float(logs.mean() >= 0)
    )


def holm(p_values: Sequence[float], level: float = CONFIDENCE) -> list[bool]:
    """Return which of several hypotheses are rejected so that with probability `level` no true one
    is among them (Holm, Scandinavian Journal of Statistics 6, 1979).

    chances     p-value of each
    """
    rejected = [False] * len(p_values)
    for rank, number in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[number] > (1 - level) / (len(p_values) - rank):
            break
        rejected[number] = True
    return rejected


def pooled_speedup(
    default: LaunchSamples, chosen: LaunchSamples, level: float = CONFIDENCE, sd_ratio: float = 1.0
) -> tuple[float, float, float]:
    """As `paired_speedup`, where there are several launches only to have more repetitions: all of
    them are taken as of one launch.

    apart   how many times further apart than usual launches are
    """
    value, low, high = paired_speedup([tuple(chain(*default))], [tuple(chain(*chosen))], level)
    return value, value * (low / value) ** sd_ratio, value * (high / value) ** sd_ratio


def launch_sd_ratio(pairs: Iterable[tuple[LaunchSamples, LaunchSamples]]) -> float:
    """How many times further apart than usual the launches of one call are, 1 at least; from
    samples of each launch of two choices at a time.

    Two or three launches of one pair say little, those of many pairs more; what is usual counts as
    `_USUAL` of them.
    """
    strayed, count = _PRIOR_LAUNCHES, _PRIOR_LAUNCHES
    for slow, fast in pairs:
        number = len(slow)
        if number < 2:
            continue
        logs = [math.log(midmean(s) / midmean(f)) for s, f in zip(slow, fast, strict=True)]
        _, low, high = paired_speedup([tuple(chain(*slow))], [tuple(chain(*fast))])
        within = (math.log(high / low) / (2 * NORMAL_95)) ** 2 - LAUNCH_RELATIVE_SD**2
        usual = max(within, 0.0) * number + LAUNCH_RELATIVE_SD**2
        strayed += float(np.var(logs)) * number / usual
        count += number - 1
    return math.sqrt(max(strayed / count, 1.0))


def unpaired_speedup(
    default: LaunchSamples, chosen: LaunchSamples, level: float = CONFIDENCE, sd_ratio: float = 1.0
) -> tuple[float, float, float]:
    """The same of samples that were not taken side by side, or not all of them.

    The ratio of what is typical of all samples, with the percentile bootstrap of both apart, and
    with what their launches are apart. Raises ValueError for series without samples.
    """
    slow, fast = (tuple(chain(*launches)) for launches in (default, chosen))
    if not slow or not fast:
        raise ValueError("there are no samples to compare")
    # of as many samples both would be drawn alike
    drawn = np.log(_resampled_midmeans(slow) / np.roll(_resampled_midmeans(fast), 1))
    value = math.log(midmean(slow) / midmean(fast))
    found = _bootstrap_interval(value, drawn, min(len(slow), len(fast)), level)
    return _with_launch_variance(
        *found, level, sd_ratio * math.sqrt(1 / len(default) + 1 / len(chosen))
    )


def small_sample_factor(count: int, level: float = CONFIDENCE) -> float:
    """By how much resamples of `count` numbers spread too little to hold the truth: the variance of
    a sample is that much smaller, and Student's t so much wider than the normal distribution.
    """
    if count < 2:
        return 1.0
    student = float(stdtrit(count - 1, (1 + level) / 2))
    return student / _normal_quantile(level) * math.sqrt(count / (count - 1))


def _single_launch_mean(samples: tuple[float, ...], level: float) -> tuple[float, float, float]:
    """Of one launch; few samples cannot show how far they spread: their whole range."""
    value = float(midmean(samples))
    if len(samples) < _MIN_BOOTSTRAP_SAMPLES:
        return value, min(samples), max(samples)
    return _bootstrap_interval(
        math.log(value), np.log(_resampled_midmeans(samples)), len(samples), level
    )


def _bootstrap_interval(
    value: float, resampled: FloatArray, count: int, level: float
) -> tuple[float, float, float]:
    """A number given by its logarithm, and the interval of its resamples of `count` samples."""
    ordered, wider = np.sort(resampled) - value, small_sample_factor(count, level)
    low, high = (
        _sorted_quantile(ordered, end) * wider for end in ((1 - level) / 2, (1 + level) / 2)
    )
    low, high = min(low, 0.0), max(high, 0.0)
    return math.exp(value), math.exp(value + low), math.exp(value + high)


def _sorted_quantile(ordered: FloatArray, share: float) -> float:
    """As `numpy_version.quantile`, which takes six times as long."""
    at = share * (len(ordered) - 1)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (at - below) * (ordered[above] - ordered[below]))


def _geometric_mean_interval(logs: FloatArray, level: float) -> tuple[float, float, float]:
    """Geometric mean and Student's interval of numbers given by their logarithms."""
    spread = logs.std(ddof=1) / math.sqrt(len(logs))
    half = float(stdtrit(len(logs) - 1, (1 + level) / 2) * spread)
    centre = float(logs.mean())
    return math.exp(centre), math.exp(centre - half), math.exp(centre + half)


def _with_launch_variance(
    value: float, low: float, high: float, level: float, n_sds: float = 1.0
) -> tuple[float, float, float]:
    """With the spread between launches, so many times; both are independent, so their squares add
    up."""
    apart = _normal_quantile(level) * LAUNCH_RELATIVE_SD * n_sds
    down, up = (math.hypot(math.log(value / low), apart), math.hypot(math.log(high / value), apart))
    return value, value * math.exp(-down), value * math.exp(up)


@cache
def _normal_quantile(level: float) -> float:
    """Of the normal distribution, of a two-sided interval."""
    return float(ndtri((1 + level) / 2))


@lru_cache(_CACHE_SIZE)
def _resampled_midmeans(samples: tuple[float, ...]) -> FloatArray:
    """Of all resamples, which are the same ones of all series of a length, (RESAMPLES,)."""
    return midmean(np.asarray(samples)[_resample_indices(len(samples))])


@lru_cache(8)
def _resample_indices(size: int) -> NDArray[np.intp]:
    """The numbers of the samples in each resample, (RESAMPLES, size)."""
    return np.random.default_rng(SEED).integers(0, size, (RESAMPLES, size))
