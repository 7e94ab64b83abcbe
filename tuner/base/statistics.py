"""Statistics of one series of timings: its midmean, and its median with a confidence interval.

Timings are skewed and have outliers, so everything here rests on order statistics; a distribution
is assumed for five samples and fewer alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from tuner.base.arrays import FloatArray

CONFIDENCE = 0.95
NORMAL_95 = 1.959963984540054  # two-sided 95 % quantile of the standard normal distribution
# Two-sided 95 % quantiles of Student's distribution by the number of samples, where these are too
# few for an interval of order statistics.
STUDENT_95 = {3: 4.302652729911275, 4: 3.182446305284263, 5: 2.7764451051977987}


def midmean(samples: ArrayLike) -> FloatArray:
    """Return the midmean, the mean of the middle half, along the last axis.

    Outliers do not move it, as long as they are at most a quarter of the samples at either end. If
    the times of a call are multimodal (ranks fall into step or do not), it lies between the modes,
    like the mean time that a program waits; a median is one of the modes and jumps. Fewer than four
    samples could not be trimmed: the result is then their median.
    """
    ordered = np.sort(np.asarray(samples, dtype=float), axis=-1)
    count = ordered.shape[-1]
    if count < 4:
        return np.asarray(np.median(ordered, axis=-1))
    return np.asarray(ordered[..., count // 4 : count - count // 4].mean(axis=-1))


def log_sd(low: float, high: float, quantile: float = NORMAL_95) -> float:
    """Return the standard deviation of a logarithm from the 95 % interval of its exponential.

    quantile    of the distribution that the interval is from, two-sided
    """
    return math.log(high / low) / (2 * quantile)


def median_interval(
    samples: Sequence[float], level: float = CONFIDENCE
) -> tuple[float, float, float]:
    """Return the median and its binomial confidence interval, in the unit of the samples.

    The number of samples below the true median is binomial(n, 1/2), so two order statistics bracket
    it with known probability (Le Boudec, Performance Evaluation, 2010, theorem 2.1). Fewer than six
    samples cannot reach 95 %: the interval is then their whole range.
    """
    ordered = np.sort(np.asarray(samples, dtype=float))
    lowest = _rank_below(len(ordered), level)
    return float(np.median(ordered)), float(ordered[lowest]), float(ordered[-1 - lowest])


@cache
def _rank_below(n: int, level: float) -> int:
    """Return the largest j for which [x_(j), x_(n-1-j)] (from 0) holds the median at `level`."""
    outside, j = 1, 0  # 2^n times the probability of at most j samples below the median
    millionths = round((1 - level) * 10**6)  # integers, because 2^n exceeds a float
    while 2 * outside * 10**6 <= millionths * 2**n:
        j += 1
        outside += math.comb(n, j)
    return max(j - 1, 0)


def typical_interval(samples: Sequence[float]) -> tuple[float, float, float]:
    """Return the typical sample and its 95 % interval, in the unit of the samples.

    It is the median, or the geometric mean of three to five samples with Student's interval of
    their logarithms. Fewer samples give their whole range.
    """
    count = len(samples)
    if count not in STUDENT_95:
        return median_interval(samples)
    logs = np.log(samples)
    half = STUDENT_95[count] * float(logs.std(ddof=1)) / math.sqrt(count)
    mean = float(logs.mean())
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def relative_half_width(samples: Sequence[float]) -> float:
    """Return half the width of `typical_interval` over the value; infinite below three samples."""
    if len(samples) < min(STUDENT_95):
        return math.inf
    value, low, high = typical_interval(samples)
    return (high - low) / 2 / value
