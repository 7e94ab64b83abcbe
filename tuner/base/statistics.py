"""Statistics of one series of timings: what is typical of it, and its median with an interval that
holds whatever the distribution is.

Timings are skewed and have outliers, so everything here rests on order statistics; nothing
assumes a normal distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import comb

import numpy as np
from numpy.typing import ArrayLike

from tuner.base.arrays import FloatArray

CONFIDENCE = 0.95
NORMAL_95 = 1.959963984540054  # two-sided 95 % quantile of the standard normal distribution


def midmean(samples: ArrayLike) -> FloatArray:
    """What is typical of timings, along the last axis: the mean of their middle half.

    An outlier does not move it, be it any of a quarter of the samples. And where a call takes one
    of few times as chance has it (ranks fall into step or do not), it lies between them, as what a
    program waits for does: a median is one of them, and jumps. Of fewer than four samples nothing
    would be trimmed: their median.
    """
    ordered = np.sort(np.asarray(samples, dtype=float), axis=-1)
    count = ordered.shape[-1]
    if count < 4:
        return np.asarray(np.median(ordered, axis=-1))
    return np.asarray(ordered[..., count // 4 : count - count // 4].mean(axis=-1))


def median_interval(
    samples: Sequence[float], level: float = CONFIDENCE
) -> tuple[float, float, float]:
    """Median and its binomial confidence interval, in the unit of the samples.

    The number of samples below the true median is binomial(n, 1/2), so two order statistics
    bracket it with known probability (Le Boudec, Performance Evaluation, 2010, theorem 2.1). Fewer
    than six samples cannot reach 95 %: the interval is then their whole range.
    """
    ordered = np.sort(np.asarray(samples, dtype=float))
    lowest = _rank_below(len(ordered), level)
    return float(np.median(ordered)), float(ordered[lowest]), float(ordered[-1 - lowest])


@cache
def _rank_below(n: int, level: float) -> int:
    """Largest j for which [x_(j), x_(n-1-j)] (from 0) holds the median with probability level."""
    outside, j = 1, 0  # 2^n times the probability of at most j samples below the median
    millionths = round((1 - level) * 10**6)  # whole numbers: 2^n outgrows a float
    while 2 * outside * 10**6 <= millionths * 2**n:
        j += 1
        outside += comb(n, j)
    return max(j - 1, 0)


def relative_half_width(samples: Sequence[float], level: float = CONFIDENCE) -> float:
    """Half the width of the median's interval over the median; infinite below six samples."""
    if len(samples) < 6:
        return float("inf")
    median, low, high = median_interval(samples, level)
    return (high - low) / 2 / median
