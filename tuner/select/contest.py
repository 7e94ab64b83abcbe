"""Which candidates really beat the library's default at one point.

Looking for the best of many noisy candidates favours the luckiest (the winner's curse). So each
candidate's paired gain over the default is tested at 1 - 5 % / (number of candidates), Bonferroni's
correction: that a point leaves the default although no candidate is faster has at most 5 %
probability. Moreover the gain must exceed a noise threshold, also at the lower bound. All samples
serve both choice and test; halving them instead would cost more power than the correction does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.errors import InputError
from tuner.gain import paired_gain
from tuner.select.dataset import Point, Row
from tuner.statistics import LEVEL
from tuner.table import DEFAULT, Choice

NOISE = 0.05  # gains up to 5 % are within what repeated measurements differ by
_TIE = 0.05  # a choice at most this much slower than the best may stand in for it
_FEWEST = 6  # samples of each launch: fewer cannot bracket a median with 95 % (tuner.statistics)


@dataclass(frozen=True)
class Contest:
    """One point.

    rows        what was measured of each candidate
    gains       candidate -> default time / candidate time, medians
    winners     the candidates whose gain is beyond doubt
    """

    point: Point
    default: Row
    rows: dict[Choice, Row]
    gains: dict[Choice, float]
    winners: frozenset[Choice]
    noise: float

    def acceptable(self, allowed: Callable[[Choice], bool]) -> frozenset[Choice]:
        """The best choice and those as good within noise; the default alone when nothing wins."""
        winners = [choice for choice in self.winners if allowed(choice)]
        if not winners:
            return frozenset([Choice()])
        best = max(sorted(winners, key=str), key=lambda choice: self.gains[choice])
        return frozenset(choice for choice in winners if self._ties(choice, best))

    def interval(self, choice: Choice) -> tuple[float, float]:
        """The 95 % interval of a candidate's gain."""
        return _interval(self.default, self.rows[choice], LEVEL)

    def _ties(self, choice: Choice, best: Choice) -> bool:
        if choice == best:
            return True
        slower, faster = self.rows[choice], self.rows[best]
        within = _gain(slower, faster) <= 1 + _TIE
        return within and _interval(slower, faster, LEVEL)[0] <= 1 + self.noise


def hold(point: Point, rows: Sequence[Row], noise: float = NOISE) -> Contest:
    """Compare with the default every candidate measured at `point` in each of its launches.

    A launch that lacks one is a launch in which its result was wrong: it is no candidate at all.
    Raises InputError when the default was not measured there.
    """
    default = next((row for row in rows if row.choice.is_default), None)
    if default is None:
        raise InputError(
            f"{point}: the library's {DEFAULT} was not measured, so no algorithm can be compared"
            " with it; probe again with the default among the algorithms"
        )
    candidates = {
        row.choice: row
        for row in rows
        if not row.choice.is_default and row.samples.keys() >= default.samples.keys()
    }
    gains = {choice: _gain(default, row) for choice, row in candidates.items()}
    level = 1 - (1 - LEVEL) / max(len(candidates), 1)
    winners = frozenset(
        choice
        for choice, row in candidates.items()
        if gains[choice] > 1 + noise
        and min(map(len, _paired(default, row)[0])) >= _FEWEST
        and _interval(default, row, level)[0] > 1 + noise
    )
    return Contest(point, default, candidates, gains, winners, noise)


Launches = list[tuple[float, ...]]


def _paired(slower: Row, faster: Row) -> tuple[Launches, Launches]:
    """The repetitions that both have: a series may have been cut short."""
    slow, fast = Launches(), Launches()
    for launch in sorted(slower.samples.keys() & faster.samples.keys()):
        pairs = min(len(slower.samples[launch]), len(faster.samples[launch]))
        slow.append(slower.samples[launch][:pairs])
        fast.append(faster.samples[launch][:pairs])
    return slow, fast


def _gain(slower: Row, faster: Row) -> float:
    """Geometric mean over the launches that both have; 1 when there are none."""
    pairs = zip(*_paired(slower, faster), strict=True)
    logs = [math.log(np.median(slow) / np.median(fast)) for slow, fast in pairs]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def _interval(slower: Row, faster: Row, level: float) -> tuple[float, float]:
    _, low, high = paired_gain(*_paired(slower, faster), level)
    return low, high
