"""Which candidates really beat the library's default at one point.

Looking for the best of many noisy candidates favours the luckiest (the winner's curse). So each
candidate's paired gain over the default is tested at 1 - 5 % / (number of candidates), Bonferroni's
correction: that a point leaves the default although no candidate is faster has at most 5 %
probability. Moreover the gain must exceed a noise threshold, also at the lower bound. All samples
serve both choice and test; halving them instead would cost more power than the correction does.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tuner.base.errors import InputError
from tuner.base.statistics import LEVEL, NORMAL_95
from tuner.core.speedup import launches_apart, paired_gain, pooled_gain, separate_gain
from tuner.core.table import DEFAULT, LEARNED, MEASURED, SIMULATED, Choice
from tuner.select.dataset import NOISE, Point, Row, by_point
from tuner.select.posterior import Belief
from tuner.select.selector import Selector

Apart = float | None  # `tuner.core.speedup.launches_apart`; None where no design chose the launches

Samples = list[tuple[float, ...]]  # of each launch

DEFAULT_CHOICE = Choice()
_FEWEST = 6  # samples of each launch: fewer cannot show how far they spread


@dataclass(frozen=True)
class Contest(ABC):
    """One point.

    seconds     of the default and of every candidate
    simulated   likewise; NaN where no schedule says it
    gains       candidate -> default time / candidate time
    winners     the candidates whose gain is beyond doubt
    """

    point: Point
    seconds: Mapping[Choice, float]
    simulated: Mapping[Choice, float]
    gains: Mapping[Choice, float]
    winners: frozenset[Choice]
    noise: float

    @abstractmethod
    def basis(self, choice: Choice) -> str:
        """What is known of a choice rests on this, as in `Evidence`."""

    @abstractmethod
    def interval(self, choice: Choice, over: Choice = DEFAULT_CHOICE) -> tuple[float, float]:
        """The 95 % interval of the time of `over` over that of a candidate."""


@dataclass(frozen=True)
class Measured(Contest):
    """Of what was measured there: `rows` of the default and of the candidates."""

    rows: Mapping[Choice, Row]
    apart: Apart

    def basis(self, choice: Choice) -> str:
        """What was measured."""
        return MEASURED

    def interval(self, choice: Choice, over: Choice = DEFAULT_CHOICE) -> tuple[float, float]:
        """From the repetitions that both have; anything is possible when there are none."""
        slower, faster = self.rows[over], self.rows[choice]
        if not slower.samples.keys() & faster.samples.keys():
            return 0.0, math.inf
        return _interval(slower, faster, LEVEL, self.apart)


@dataclass(frozen=True)
class Believed(Contest):
    """Of what is believed of a point that was not measured.

    supported   the choices that were measured nearby
    """

    belief: Belief
    supported: frozenset[Choice]

    def basis(self, choice: Choice) -> str:
        """Measurements nearby, or only a simulation."""
        return LEARNED if choice in self.supported else SIMULATED

    def interval(self, choice: Choice, over: Choice = DEFAULT_CHOICE) -> tuple[float, float]:
        """From the joint belief of both."""
        gain, spread = self.belief.gain(choice, over)
        half = NORMAL_95 * spread
        return math.exp(gain - half), math.exp(gain + half)


def hold_all(rows: Sequence[Row], noise: float = NOISE, designed: bool = False) -> list[Contest]:
    """One contest for each point that was measured."""
    return [hold(point, own, noise, designed) for point, own in by_point(rows).items()]


def hold(
    point: Point, rows: Sequence[Row], noise: float = NOISE, designed: bool = False
) -> Contest:
    """Compare with the default every candidate measured at `point` in each of its launches.

    A launch that lacks one is a launch in which its result was wrong: it is no candidate at all.
    Unless a design chose what each launch measures: then those count that both were in.
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
        if not row.choice.is_default and _comparable(default, row, designed)
    }
    pairs = [_paired(default, row) for row in candidates.values()]
    apart = launches_apart(pairs) if designed else None
    gains = {choice: _gain(default, row, apart) for choice, row in candidates.items()}
    level = _level(len(candidates))
    winners = frozenset(
        choice
        for choice, row in candidates.items()
        if gains[choice] > 1 + noise
        and _shortest(default, row, designed) >= _FEWEST
        and _interval(default, row, level, apart)[0] > 1 + noise
    )
    known = {Choice(): default, **candidates}
    return Measured(
        point,
        {choice: row.typical for choice, row in known.items()},
        {choice: row.simulated for choice, row in known.items()},
        gains,
        winners,
        noise,
        known,
        apart,
    )


def wants_launches(contest: Contest) -> bool:
    """Whether something was faster beyond noise in every launch of several, nothing is so beyond
    doubt, and as many launches again like these would have shown it.

    A mean of few launches is known by Student's t alone, which asks two of them to be alike.
    """
    if not isinstance(contest, Measured) or contest.apart is not None or contest.winners:
        return False
    level = _level(len(contest.gains))
    return any(
        len(slow) > 1
        and min(map(len, slow)) >= _FEWEST
        and all(
            paired_gain([s], [f])[0] > 1 + contest.noise for s, f in zip(slow, fast, strict=True)
        )
        and paired_gain(2 * slow, 2 * fast, level)[1] > 1 + contest.noise
        for choice in contest.gains
        for slow, fast in [_paired(contest.rows[DEFAULT_CHOICE], contest.rows[choice])]
    )


def expect(
    point: Point, selector: Selector, choices: Collection[Choice], noise: float = NOISE
) -> Contest | None:
    """What is believed of those of `choices` that are believed in at a point without measurements;
    None where the default is not among them, so that the library decides.

    A belief wins as `Selector.sure` says. There is no luck to correct for: expectations are drawn
    towards what is usual.
    """
    candidates = selector.candidates(point, choices, reach=1.0)
    if Choice() not in candidates:
        return None
    belief = selector.belief(point, candidates)
    seconds = dict(zip(candidates, map(float, np.exp(belief.mean)), strict=True))
    gains = {choice: seconds[Choice()] / own for choice, own in seconds.items()}
    del gains[Choice()]
    simulated = {choice: selector.simulated(point, choice) for choice in candidates}
    supported = frozenset(filter(partial(selector.support.covers, point), candidates))
    winners = selector.sure(point, candidates, noise)
    return Believed(point, seconds, simulated, gains, winners, noise, belief, supported)


def _level(candidates: int) -> float:
    """Of confidence, for one of so many."""
    return 1 - (1 - LEVEL) / max(candidates, 1)


def repeated(row: Row) -> bool:
    """Whether its samples can show how far they spread; single averages say nothing of that."""
    return sum(map(len, row.samples.values())) >= _FEWEST


def _comparable(default: Row, row: Row, designed: bool) -> bool:
    if designed:
        return bool(row.samples.keys() & default.samples.keys())
    return row.samples.keys() >= default.samples.keys()


def _paired(slower: Row, faster: Row) -> tuple[Samples, Samples]:
    """The repetitions that both have: a series may have been cut short."""
    slow, fast = Samples(), Samples()
    for launch in sorted(slower.samples.keys() & faster.samples.keys()):
        pairs = min(len(slower.samples[launch]), len(faster.samples[launch]))
        slow.append(slower.samples[launch][:pairs])
        fast.append(faster.samples[launch][:pairs])
    return slow, fast


def _shortest(slower: Row, faster: Row, designed: bool) -> int:
    """Samples of a launch that both have; of a design, of all launches."""
    slow, _ = _paired(slower, faster)
    return sum(map(len, slow)) if designed else min(map(len, slow))


def _compared(slower: Row, faster: Row, level: float, apart: Apart) -> tuple[float, float, float]:
    """How many times slower the one is, and the interval.

    A design repeats a call in another launch to have more of the same, and not to know how launches
    differ. Where less than half of one's samples have others at their side, all of both count:
    chance may have made those few alike. Otherwise side by side, so that what hit both cancels.
    """
    slow, fast = _paired(slower, faster)
    if apart is None:
        return paired_gain(slow, fast, level)
    most = max(sum(map(len, row.samples.values())) for row in (slower, faster))
    if 2 * sum(map(len, slow)) < most:
        return separate_gain([*slower.samples.values()], [*faster.samples.values()], level, apart)
    return pooled_gain(slow, fast, level, apart)


def _gain(slower: Row, faster: Row, apart: Apart) -> float:
    """Geometric mean over the launches that both have; 1 when there are none."""
    if not slower.samples.keys() & faster.samples.keys():
        return 1.0
    return _compared(slower, faster, LEVEL, apart)[0]


def _interval(slower: Row, faster: Row, level: float, apart: Apart) -> tuple[float, float]:
    _, low, high = _compared(slower, faster, level, apart)
    return low, high
