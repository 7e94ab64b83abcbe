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
from tuner.core.table import Choice
from tuner.select.selector import Selector
from tuner.select.significance import Contest

# Of the logarithm of a gain over the default, per root octave of sizes: its deviation from the
# straight line. On emulated clusters nothing is slower than the default from 0.1 on
# (`python -m tests.bench.wander`); with this two thirds of what could be gained are kept.
WANDER = 0.15
_PRECISION = 1.02  # a switch is narrowed down to this ratio of sizes
_PER_OCTAVE = 36  # sizes at which a bound is looked at: ratios of 1.02
_MOST_OCTAVES = 60.0  # of sizes that a computer can hold


@dataclass(frozen=True)
class _Known:
    """The logarithm of a gain at one size, and its deviation."""

    nbytes: int
    gain: float
    spread: float


def switch(low: Contest, high: Contest, before: Choice, after: Choice, selector: Selector) -> int:
    """The first size, above that of `low` and at most that of `high`, that uses `after` instead of
    `before`.
    """
    start, end = low.point.nbytes + 1, high.point.nbytes
    if before.is_default:
        first = max(_reach(high, low, after, selector), start)
        return roundest(math.ceil(first), min(first * _PRECISION, end))
    if after.is_default:
        last = _reach(low, high, before, selector)
        return roundest(max(math.ceil(last / _PRECISION), start), min(last + 1, end))
    return _crossing(low, high, before, after, selector)


def _reach(near: Contest, far: Contest, choice: Choice, selector: Selector) -> float:
    """The size up to which the gain of a choice is above noise on the way from `near`, which speaks
    for it, to `far`, which speaks for the default.
    """
    if choice not in far.gains and not selector.covers(far.point, choice):
        return near.point.nbytes
    here, there = _known(near, choice, selector), _known(far, choice, selector)
    octaves = math.log2(there.nbytes / here.nbytes)
    way = np.linspace(0.0, 1.0, 1 + math.ceil(abs(octaves) * _PER_OCTAVE))
    gain = (1 - way) * here.gain + way * there.gain
    known = np.hypot((1 - way) * here.spread, way * there.spread)
    spread = np.hypot(known, WANDER * np.sqrt(abs(octaves) * way * (1 - way)))
    failing = np.flatnonzero(gain - NORMAL_95 * spread <= math.log1p(near.noise))
    last = way[max(failing[0] - 1, 0)] if failing.size else 1.0
    return float(here.nbytes * 2 ** (octaves * last))


def _known(contest: Contest, choice: Choice, selector: Selector) -> _Known:
    """From the contest; from belief where the choice did not take part."""
    nbytes = max(contest.point.nbytes, 1)
    if choice in contest.gains:
        return _Known(nbytes, math.log(contest.gains[choice]), _spread(contest, choice))
    return _Known(
        nbytes, *selector.belief(contest.point, [choice, Choice()]).gain(choice, Choice())
    )


def _spread(contest: Contest, choice: Choice) -> float:
    """Deviation of the logarithm of a gain, downwards: what is asked is how little it may be."""
    low, _ = contest.interval(choice)
    return math.log(contest.gains[choice] / low) / NORMAL_95


def beyond(contest: Contest, choice: Choice) -> float:
    """The ratio of sizes up to which an algorithm is used beyond the last one that was measured."""
    gain = math.log(contest.gains[choice]) - math.log1p(contest.noise)
    octaves = ((gain / NORMAL_95) ** 2 - _spread(contest, choice) ** 2) / WANDER**2
    return float(2 ** min(max(octaves, 0.0), _MOST_OCTAVES))


def _crossing(
    low: Contest, high: Contest, before: Choice, after: Choice, selector: Selector
) -> int:
    """Where `after` is predicted to overtake `before`; next to the size at which it is ahead, or
    behind, already, when they do not cross.
    """
    old, new = (_time(low, high, choice, selector) for choice in (before, after))
    lo, hi = low.point.nbytes, high.point.nbytes
    while hi - lo > 1 and hi > lo * _PRECISION:
        middle = min(max(round(math.sqrt(lo * hi)), lo + 1), hi - 1)
        lo, hi = (middle, hi) if old(middle) < new(middle) else (lo, middle)
    return roundest(lo + 1, hi)


def _time(
    low: Contest, high: Contest, choice: Choice, selector: Selector
) -> Callable[[int], float]:
    """The logarithm of its seconds at sizes between two at one of which it took part: as its
    beliefs start from, and off by what that is off at these, in between by a straight line over
    logarithms of size; all along as at one of them where it did not take part in the other.
    """
    ends = [contest for contest in (low, high) if choice in contest.seconds]
    places = [math.log(max(end.point.nbytes, 1)) for end in ends]
    off = [math.log(end.seconds[choice] / selector.start(end.point, choice)) for end in ends]

    def time(nbytes: int) -> float:
        start = selector.start(low.point.at(nbytes), choice)
        return math.log(start) + float(np.interp(math.log(nbytes), places, off))

    return time


def roundest(lowest: int, highest: float) -> int:
    """Of the sizes from `lowest` to `highest` the one that more powers of two divide: where things
    change in libraries and in programs, and easier to read.
    """
    for bits in range(lowest.bit_length(), 0, -1):
        size = -(-lowest >> bits) << bits
        if size <= highest:
            return size
    return lowest
