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
from tuner.base.statistics import LEVEL, NORMAL_95, midmean

# Relative standard deviation of what a launch measures, times and gains alike. Measured on emulated
# clusters: two launches of the same calls differ by 1 % in the median and by 1 to 3 % where nothing
# is left to chance within them (`python -m tests.bench.intervals`).
BETWEEN_LAUNCHES = 0.015
_USUAL = 2.0  # launches that this counts as beside those that were measured
RESAMPLES = 1000
_FEW = 6  # samples
_KEPT = 512  # series: those of one call are held against one another in all pairs
SEED = 20240229  # intervals of the same samples are the same on every run

Launches = Sequence[Sequence[float]]  # samples of each


def over_launches(launches: Launches, level: float = LEVEL) -> tuple[float, float, float]:
    """Typical time, the geometric mean of what is typical of each launch, and its interval."""
    if len(launches) == 1:
        return _widened(*_alone(tuple(launches[0]), level), level)
    return _geometric(np.log([float(midmean(samples)) for samples in launches]), level)


def paired_gain(
    default: Launches, chosen: Launches, level: float = LEVEL
) -> tuple[float, float, float]:
    """How many times faster `chosen` is than `default`, with its interval; above 1 is faster.

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
        return _geometric(logs, level)
    drawn = np.log(_typical(tuple(default[0])) / _typical(tuple(chosen[0])))
    return _widened(*_around(logs[0], drawn, len(default[0]), level), level)


def chance_of_no_loss(default: Sequence[float], chosen: Sequence[float]) -> float:
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


def holm(chances: Sequence[float], level: float = LEVEL) -> list[bool]:
    """Return which of several hypotheses are rejected so that with probability `level` no true one
    is among them (Holm, Scandinavian Journal of Statistics 6, 1979).

    chances     p-value of each
    """
    rejected = [False] * len(chances)
    for rank, number in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        if chances[number] > (1 - level) / (len(chances) - rank):
            break
        rejected[number] = True
    return rejected


def pooled_gain(
    default: Launches, chosen: Launches, level: float = LEVEL, apart: float = 1.0
) -> tuple[float, float, float]:
    """As `paired_gain`, where there are several launches only to have more repetitions: all of them
    are taken as of one launch.

    apart   how many times further apart than usual launches are
    """
    value, low, high = paired_gain([tuple(chain(*default))], [tuple(chain(*chosen))], level)
    return value, value * (low / value) ** apart, value * (high / value) ** apart


def launches_apart(pairs: Iterable[tuple[Launches, Launches]]) -> float:
    """How many times further apart than usual the launches of one call are, 1 at least; from
    samples of each launch of two choices at a time.

    Two or three launches of one pair say little, those of many pairs more; what is usual counts as
    `_USUAL` of them.
    """
    strayed, count = _USUAL, _USUAL
    for slow, fast in pairs:
        number = len(slow)
        if number < 2:
            continue
        logs = [math.log(midmean(s) / midmean(f)) for s, f in zip(slow, fast, strict=True)]
        _, low, high = paired_gain([tuple(chain(*slow))], [tuple(chain(*fast))])
        within = (math.log(high / low) / (2 * NORMAL_95)) ** 2 - BETWEEN_LAUNCHES**2
        usual = max(within, 0.0) * number + BETWEEN_LAUNCHES**2
        strayed += float(np.var(logs)) * number / usual
        count += number - 1
    return math.sqrt(max(strayed / count, 1.0))


def separate_gain(
    default: Launches, chosen: Launches, level: float = LEVEL, apart: float = 1.0
) -> tuple[float, float, float]:
    """The same of samples that were not taken side by side, or not all of them.

    The ratio of what is typical of all samples, with the percentile bootstrap of both apart, and
    with what their launches are apart. Raises ValueError for series without samples.
    """
    slow, fast = (tuple(chain(*launches)) for launches in (default, chosen))
    if not slow or not fast:
        raise ValueError("there are no samples to compare")
    # of as many samples both would be drawn alike
    drawn = np.log(_typical(slow) / np.roll(_typical(fast), 1))
    value = math.log(midmean(slow) / midmean(fast))
    found = _around(value, drawn, min(len(slow), len(fast)), level)
    return _widened(*found, level, apart * math.sqrt(1 / len(default) + 1 / len(chosen)))


def widening(count: int, level: float = LEVEL) -> float:
    """By how much resamples of `count` numbers spread too little to hold the truth: the variance of
    a sample is that much smaller, and Student's t so much wider than the normal distribution.
    """
    if count < 2:
        return 1.0
    student = float(stdtrit(count - 1, (1 + level) / 2))
    return student / _quantile(level) * math.sqrt(count / (count - 1))


def _alone(samples: tuple[float, ...], level: float) -> tuple[float, float, float]:
    """Of one launch; few samples cannot show how far they spread: their whole range."""
    value = float(midmean(samples))
    if len(samples) < _FEW:
        return value, min(samples), max(samples)
    return _around(math.log(value), np.log(_typical(samples)), len(samples), level)


def _around(
    value: float, drawn: FloatArray, count: int, level: float
) -> tuple[float, float, float]:
    """A number given by its logarithm, and the interval of its resamples of `count` samples."""
    ordered, wider = np.sort(drawn) - value, widening(count, level)
    low, high = (_quantile_of(ordered, end) * wider for end in ((1 - level) / 2, (1 + level) / 2))
    low, high = min(low, 0.0), max(high, 0.0)
    return math.exp(value), math.exp(value + low), math.exp(value + high)


def _quantile_of(ordered: FloatArray, share: float) -> float:
    """As `numpy.quantile`, which takes six times as long."""
    at = share * (len(ordered) - 1)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (at - below) * (ordered[above] - ordered[below]))


def _geometric(logs: FloatArray, level: float) -> tuple[float, float, float]:
    """Geometric mean and Student's interval of numbers given by their logarithms."""
    spread = logs.std(ddof=1) / math.sqrt(len(logs))
    half = float(stdtrit(len(logs) - 1, (1 + level) / 2) * spread)
    centre = float(logs.mean())
    return math.exp(centre), math.exp(centre - half), math.exp(centre + half)


def _widened(
    value: float, low: float, high: float, level: float, launches: float = 1.0
) -> tuple[float, float, float]:
    """With the spread between launches, so many times; both are independent, so their squares add
    up."""
    apart = _quantile(level) * BETWEEN_LAUNCHES * launches
    down, up = (math.hypot(math.log(value / low), apart), math.hypot(math.log(high / value), apart))
    return value, value * math.exp(-down), value * math.exp(up)


@cache
def _quantile(level: float) -> float:
    """Of the normal distribution, of a two-sided interval."""
    return float(ndtri((1 + level) / 2))


@lru_cache(_KEPT)
def _typical(samples: tuple[float, ...]) -> FloatArray:
    """Of all resamples, which are the same ones of all series of a length, (RESAMPLES,)."""
    return midmean(np.asarray(samples)[_draws(len(samples))])


@lru_cache(8)
def _draws(size: int) -> NDArray[np.intp]:
    """The numbers of the samples in each resample, (RESAMPLES, size)."""
    return np.random.default_rng(SEED).integers(0, size, (RESAMPLES, size))
