"""Sizes at which a table changes its choice, between probed sizes.

Between two algorithms the crossover is where their times cross, as simulated and corrected by the
error of the simulation at both sizes: a small error of the crossover costs little (decision 0038).
The library default is different. It changes its own algorithm at unknown sizes, so its time between
two measured sizes is unknown, and a table must not be slower than it. Known is the gain at both
sizes. In between it deviates from the straight line (logarithm of gain over logarithm of size) like
a random walk that is pinned at both ends, a Brownian bridge, and beyond the last measured size like
one that is pinned there alone. An algorithm is used as far as the lower bound of its gain stays
above noise, seen from the size that supports it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tuner.base.statistics import NORMAL_95
from tuner.core.table import AlgorithmChoice
from tuner.select.selector import Selector
from tuner.select.significance import Comparison, PredictedComparison

# Standard deviation of the logarithm of a gain over the default from the straight line, per square
# root of octaves of size. On emulated clusters nothing is slower than the default from 0.1 on
# (`python -m tests.bench.gain_drift`); this value keeps two thirds of the possible gain.
GAIN_DRIFT_PER_SQRT_OCTAVE = 0.15
_SIZE_RATIO_TOLERANCE = 1.02  # a crossover is bracketed to this ratio of sizes
_STEPS_PER_OCTAVE = 36  # sizes at which a bound is evaluated: ratios of 1.02
_MAX_OCTAVES = 60.0  # range of all sizes that fit into a computer


def crossover_size(
    low: Comparison,
    high: Comparison,
    before: AlgorithmChoice,
    after: AlgorithmChoice,
    selector: Selector,
) -> int:
    """Return the first size that uses `after` instead of `before`.

    It is above the size of `low` and at most that of `high`.
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
    near: Comparison, far: Comparison, choice: AlgorithmChoice, selector: Selector
) -> float:
    """Return the last size from `near` towards `far` at which the gain of a choice is above noise.

    near    a comparison that the choice wins
    far     a comparison that the default wins
    """
    is_expected = isinstance(far, PredictedComparison)
    if choice not in far.gains and (is_expected or not selector.covers(far.point, choice)):
        return near.point.nbytes
    here, there = (max(one.point.nbytes, 1) for one in (near, far))
    (gain_here, sd_here), (gain_there, sd_there) = (
        _log_gain(one, choice, selector) for one in (near, far)
    )
    octaves = math.log2(there / here)
    way = np.linspace(0.0, 1.0, 1 + math.ceil(abs(octaves) * _STEPS_PER_OCTAVE))
    gain = (1 - way) * gain_here + way * gain_there
    known = np.hypot((1 - way) * sd_here, way * sd_there)
    spread = np.hypot(known, GAIN_DRIFT_PER_SQRT_OCTAVE * np.sqrt(abs(octaves) * way * (1 - way)))
    failing = np.flatnonzero(spread >= near.max_spread(gain))
    last = way[max(failing[0] - 1, 0)] if failing.size else 1.0
    return float(here * 2 ** (octaves * last))


def _log_gain(
    comparison: Comparison, choice: AlgorithmChoice, selector: Selector
) -> tuple[float, float]:
    """Return the log gain of a choice and its deviation, by the comparison or the posterior."""
    if choice in comparison.gains:
        return math.log(comparison.gains[choice]), _gain_sd(comparison, choice)
    belief = selector.posterior(comparison.point, [choice, AlgorithmChoice()])
    return belief.log_gain(choice, AlgorithmChoice())


def _gain_sd(comparison: Comparison, choice: AlgorithmChoice) -> float:
    """Return the downward standard deviation of a log gain, from its interval's lower bound."""
    low, _ = comparison.interval(choice)
    return math.log(comparison.gains[choice] / low) / NORMAL_95


def max_extrapolation_ratio(comparison: Comparison, choice: AlgorithmChoice) -> float:
    """Return the size ratio up to which a choice is used beyond the last measured size."""
    gain = np.array(math.log(comparison.gains[choice]))
    spread, own = float(comparison.max_spread(gain)), _gain_sd(comparison, choice)
    octaves = (spread**2 - own**2) / GAIN_DRIFT_PER_SQRT_OCTAVE**2
    return float(2 ** min(max(octaves, 0.0), _MAX_OCTAVES))


def _predicted_crossover(
    low: Comparison,
    high: Comparison,
    before: AlgorithmChoice,
    after: AlgorithmChoice,
    selector: Selector,
) -> int:
    """Return the size at which `after` is predicted to overtake `before`.

    If they do not cross, it is next to the end at which `after` is ahead or behind already.
    """
    old, new = (_log_time_function(low, high, choice, selector) for choice in (before, after))
    lo, hi = low.point.nbytes, high.point.nbytes
    while hi - lo > 1 and hi > lo * _SIZE_RATIO_TOLERANCE:
        middle = min(max(round(math.sqrt(lo * hi)), lo + 1), hi - 1)
        lo, hi = (middle, hi) if old(middle) < new(middle) else (lo, middle)
    return roundest_size(lo + 1, hi)


def _log_time_function(
    low: Comparison, high: Comparison, choice: AlgorithmChoice, selector: Selector
) -> Callable[[int], float]:
    """Return the predicted logarithm of a choice's seconds at sizes between two comparisons.

    It is the prior time corrected by the prior's error at both sizes, interpolated linearly over
    the logarithm of size. If the choice is in one comparison only, the error is constant.
    """
    ends = [comparison for comparison in (low, high) if choice in comparison.seconds]
    places = [math.log(max(end.point.nbytes, 1)) for end in ends]
    off = [
        math.log(end.seconds[choice] / selector.prior_seconds(end.point, choice)) for end in ends
    ]

    def time(nbytes: int) -> float:
        start = selector.prior_seconds(low.point.with_size(nbytes), choice)
        return math.log(start) + float(np.interp(math.log(nbytes), places, off))

    return time


def roundest_size(min_bytes: int, max_bytes: float) -> int:
    """Return the size in [`min_bytes`, `max_bytes`] that is divisible by most powers of two.

    Libraries and programs tend to change at round sizes, and these are easier to read.
    """
    for bits in range(min_bytes.bit_length(), 0, -1):
        size = -(-min_bytes >> bits) << bits
        if size <= max_bytes:
            return size
    return min_bytes
