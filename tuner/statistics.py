"""Statistics of timings: medians and ratios with distribution-free intervals.

Timings are skewed and have outliers, so everything here rests on order statistics; nothing
assumes a normal distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import comb

import numpy as np

LEVEL = 0.95
RESAMPLES = 1000
SEED = 20240229  # intervals of the same samples are the same on every run


def median_interval(samples: Sequence[float], level: float = LEVEL) -> tuple[float, float, float]:
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


def relative_half_width(samples: Sequence[float], level: float = LEVEL) -> float:
    """Half the width of the median's interval over the median; infinite below six samples."""
    if len(samples) < 6:
        return float("inf")
    median, low, high = median_interval(samples, level)
    return (high - low) / 2 / median


def paired_gain(
    default_samples: Sequence[float], chosen_samples: Sequence[float], level: float = LEVEL
) -> tuple[float, float, float]:
    """How many times faster `chosen` is than `default`, with its interval; above 1 is faster.

    The gain is the ratio of the medians. Its interval is a percentile bootstrap over repetitions
    (Efron and Tibshirani, 1993): sample i of both was taken in the same repetition, so both are
    resampled together and a disturbance that hit both cancels. Raises ValueError for series of
    different length or without samples.
    """
    default = np.asarray(default_samples, dtype=float)
    chosen = np.asarray(chosen_samples, dtype=float)
    if default.shape != chosen.shape or default.size == 0:
        raise ValueError(f"samples are not paired: {default.size} and {chosen.size} of them")
    draws = np.random.default_rng(SEED).integers(0, default.size, (RESAMPLES, default.size))
    ratios = np.median(default[draws], axis=1) / np.median(chosen[draws], axis=1)
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2])
    return float(np.median(default) / np.median(chosen)), float(low), float(high)
