"""Between which sizes a table changes its choice, where neither was measured.

Between two algorithms the switch goes to where their times cross, as simulated and corrected by
what simulations are off at both sizes: being a little off costs little (decision 0038). The
library's default is another matter. It changes its own algorithm at sizes that nobody tells, so its
time between two measured sizes is not known, and a table must not be slower than it. What is known
is the gain at both sizes. In between it wanders about the straight line (logarithms of gain over
logarithms of size) like a random walk that is pinned at both, a Brownian bridge, and beyond the
last measured size like one that is pinned there alone. An algorithm is used as far as the lower
bound of its gain stays above noise, seen from the size that speaks for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tuner.base.statistics import NORMAL_95
from tuner.core.table import AlgorithmConfig
from tuner.select.selector import Selector
from tuner.select.significance import Comparison

# Of the logarithm of a gain over the default, per root octave of sizes: its deviation from the
# straight line. On emulated clusters nothing is slower than the default from 0.1 on
# (`python -m tests.bench.wander`); with this two thirds of what could be gained are kept.
GAIN_DRIFT_PER_SQRT_OCTAVE = 0.15
_SIZE_RATIO_TOLERANCE = 1.02  # a switch is narrowed down to this ratio of sizes
_STEPS_PER_OCTAVE = 36  # sizes at which a bound is looked at: ratios of 1.02
_MAX_OCTAVES = 60.0  # of sizes that a computer can hold


@dataclass(frozen=True)
class _LogGain:
    """The logarithm of a gain at one size, and its deviation."""

    nbytes: int
    mean: float
    sd: float


def crossover_size(
    low: Comparison,
    high: Comparison,
    before: AlgorithmConfig,
    after: AlgorithmConfig,
    selector: Selector,
) -> int:
    """The first size, above that of `low` and at most that of `high`, that uses `after` instead of
    `before`.
    """
    start, end = low.point.nbytes + 1, high.point.nbytes
    if before.is_default:
        first = max(_last_winning_size(high, low, after, selector), start)
        return roundest_size(math.ceil(first), min(first * _SIZE_RATIO_TOLERANCE, end))
    if after.is_default:
        last = _last_winning_size(low, high, before, selector)
        return roundest_size(
            max(math.ceil(last / _SIZE_RATIO_TOLERANCE), start), min(last + 1, end)
        )
    return _predicted_crossover(low, high, before, after, selector)


def _last_winning_size(
    near: Comparison, far: Comparison, choice: AlgorithmConfig, selector: Selector
) -> float:
    """The size up to which the gain of a choice is above noise on the way from `correlation`,
    which speaks for it, to `far`, which speaks for the default.
    """
    if choice not in far.gains and not selector.covers(far.point, choice):
        return near.point.nbytes
    here, there = _log_gain(near, choice, selector), _log_gain(far, choice, selector)
    octaves = math.log2(there.nbytes / here.nbytes)
    way = np.linspace(0.0, 1.0, 1 + math.ceil(abs(octaves) * _STEPS_PER_OCTAVE))
    gain = (1 - way) * here.mean + way * there.mean
    known = np.hypot((1 - way) * here.sd, way * there.sd)
    spread = np.hypot(known, GAIN_DRIFT_PER_SQRT_OCTAVE * np.sqrt(abs(octaves) * way * (1 - way)))
    failing = np.flatnonzero(gain - NORMAL_95 * spread <= math.log1p(near.min_gain))
    last = way[max(failing[0] - 1, 0)] if failing.size else 1.0
    return float(here.nbytes * 2 ** (octaves * last))


def _log_gain(comparison: Comparison, choice: AlgorithmConfig, selector: Selector) -> _LogGain:
    """From the contest; from belief where the choice did not take part."""
    nbytes = max(comparison.point.nbytes, 1)
    if choice in comparison.gains:
        return _LogGain(nbytes, math.log(comparison.gains[choice]), _gain_sd(comparison, choice))
    return _LogGain(
        nbytes,
        *selector.posterior(comparison.point, [choice, AlgorithmConfig()]).log_gain(
            choice, AlgorithmConfig()
        ),
    )


def _gain_sd(comparison: Comparison, choice: AlgorithmConfig) -> float:
    """Deviation of the logarithm of a gain, downwards: what is asked is how little it may be."""
    low, _ = comparison.interval(choice)
    return math.log(comparison.gains[choice] / low) / NORMAL_95


def max_extrapolation_ratio(comparison: Comparison, choice: AlgorithmConfig) -> float:
    """The ratio of sizes up to which an algorithm is used beyond the last one that was measured."""
    gain = math.log(comparison.gains[choice]) - math.log1p(comparison.min_gain)
    octaves = (
        (gain / NORMAL_95) ** 2 - _gain_sd(comparison, choice) ** 2
    ) / GAIN_DRIFT_PER_SQRT_OCTAVE**2
    return float(2 ** min(max(octaves, 0.0), _MAX_OCTAVES))


def _predicted_crossover(
    low: Comparison,
    high: Comparison,
    before: AlgorithmConfig,
    after: AlgorithmConfig,
    selector: Selector,
) -> int:
    """Where `after` is predicted to overtake `before`; next to the size at which it is ahead, or
    behind, already, when they do not cross.
    """
    old, new = (_log_time_function(low, high, choice, selector) for choice in (before, after))
    lo, hi = low.point.nbytes, high.point.nbytes
    while hi - lo > 1 and hi > lo * _SIZE_RATIO_TOLERANCE:
        middle = min(max(round(math.sqrt(lo * hi)), lo + 1), hi - 1)
        lo, hi = (middle, hi) if old(middle) < new(middle) else (lo, middle)
    return roundest_size(lo + 1, hi)


def _log_time_function(
    low: Comparison, high: Comparison, choice: AlgorithmConfig, selector: Selector
) -> Callable[[int], float]:
    """The logarithm of its seconds at sizes between two at one of which it took part: as its
    beliefs start from, and off by what that is off at these, in between by a straight line over
    logarithms of size; all along as at one of them where it did not take part in the other.
    """
    ends = [contest for contest in (low, high) if choice in contest.seconds]
    places = [math.log(max(end.point.nbytes, 1)) for end in ends]
    off = [
        math.log(end.seconds[choice] / selector.prior_seconds(end.point, choice)) for end in ends
    ]

    def time(nbytes: int) -> float:
        start = selector.prior_seconds(low.point.with_size(nbytes), choice)
        return math.log(start) + float(np.interp(math.log(nbytes), places, off))

    return time


def roundest_size(min_bytes: int, max_bytes: float) -> int:
    """Of the sizes from `lowest` to `highest` the one that more powers of two divide: where things
    change in libraries and in programs, and easier to read.
    """
    for bits in range(min_bytes.bit_length(), 0, -1):
        size = -(-min_bytes >> bits) << bits
        if size <= max_bytes:
            return size
    return min_bytes
