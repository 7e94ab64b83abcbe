"""Statistics of timings: medians and ratios with distribution-free intervals.

Timings are skewed and have outliers, so everything here rests on order statistics; nothing
assumes a normal distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from math import comb
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

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


def over_launches(
    launches: Sequence[Sequence[float]], level: float = LEVEL
) -> tuple[float, float, float]:
    """Typical time and its interval from the samples of several launches.

    The typical time is the geometric mean of the launches' medians. The logarithm of its interval
    adds in quadrature what each median is uncertain by and how far the medians lie apart: where
    the ranks of a launch were placed is settled when it starts, and no number of samples within
    it tells what the next one will be like.
    """
    medians = np.array([median_interval(samples, level) for samples in launches])
    if len(launches) == 1:
        median, low, high = medians[0].tolist()
        return median, low, high
    logs = np.log(medians)
    within = (logs[:, 2] - logs[:, 1]) / 2
    between = NormalDist().inv_cdf((1 + level) / 2) * logs[:, 0].std(ddof=1)
    half = float(np.sqrt((np.mean(within**2) + between**2) / len(launches)))
    centre = float(logs[:, 0].mean())
    return math.exp(centre), math.exp(centre - half), math.exp(centre + half)


def paired_gain(
    default: Sequence[Sequence[float]], chosen: Sequence[Sequence[float]], level: float = LEVEL
) -> tuple[float, float, float]:
    """How many times faster `chosen` is than `default`, with its interval; above 1 is faster.

    default, chosen     samples of each launch; sample i of both in one launch was taken in the
                        same repetition

    The gain of a launch is the ratio of its medians, the gain their geometric mean. The interval
    is a percentile bootstrap (Efron and Tibshirani, 1993) of launches, and within a launch of
    repetitions: both series are resampled together, so a disturbance that hit both cancels.
    That launches differ by more than repetitions do: Hunold and Carpen-Amarie, IEEE TPDS 27(12),
    2016. Raises ValueError for series that are not paired or without samples.
    """
    if [len(s) for s in default] != [len(s) for s in chosen] or not all(map(len, default)):
        raise ValueError("samples are not paired: launches or repetitions are missing")
    if not default:
        raise ValueError("samples are not paired: there are none")
    rng = np.random.default_rng(SEED)
    pairs = [(np.asarray(d), np.asarray(c)) for d, c in zip(default, chosen, strict=True)]
    logs = np.stack([_resampled(d, c, rng) for d, c in pairs])
    launches = rng.integers(0, len(pairs), (len(pairs), RESAMPLES))
    means = np.take_along_axis(logs, launches, axis=0).mean(axis=0)
    low, high = np.exp(np.quantile(means, [(1 - level) / 2, (1 + level) / 2]))
    gain = np.exp(np.mean([np.log(np.median(d) / np.median(c)) for d, c in pairs]))
    return float(gain), float(low), float(high)


def _resampled(
    default: NDArray[np.float64], chosen: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Logarithms of the gain in resamples of the repetitions of one launch."""
    draws = rng.integers(0, default.size, (RESAMPLES, default.size))
    logs: NDArray[np.float64] = np.log(
        np.median(default[draws], axis=1) / np.median(chosen[draws], axis=1)
    )
    return logs
