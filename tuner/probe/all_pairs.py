"""Measure every host with every other in rounds of disjoint pairs, and report slow ones.

It finds outliers among the pairs, such as a slow cable or a badly seated adapter. They are found
relative to all pairs, so that a machine whose racks differ does not consist of outliers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.base.units import format_size, format_time
from tuner.core.measurement import Measurement

# Up to this many hosts pairs are measured one by one, as pairs may share an uplink.
MAX_SEQUENTIAL_HOSTS = 16
MAX_PARTNERS = 31  # partners of each host; more would cost time and find no more
OUTLIER_SIGMAS = 4.0  # robust standard deviations from the median beyond which a pair is an outlier
MIN_OUTLIER_EXCESS = 0.10  # relative excess that an outlier must have too
MAD_TO_SIGMA = 1.4826  # median absolute deviation to standard deviation, for a normal distribution


@dataclass(frozen=True)
class PairTime:
    """The time of a message between two hosts, by number.

    usual_seconds   median over all pairs
    is_slow         whether the pair is an outlier
    """

    first: int
    second: int
    seconds: float
    usual_seconds: float
    is_slow: bool


def round_robin(hosts: int) -> list[list[tuple[int, int]]]:
    """Return rounds of disjoint pairs in which all hosts meet once (circle method).

    Up to `MAX_SEQUENTIAL_HOSTS` hosts a round is one pair; hosts meet at most `MAX_PARTNERS`
    others.
    """
    players = hosts + hosts % 2
    others = list(range(1, players))
    rounds = []
    for turn in range(players - 1):
        ring = [0, *others[turn:], *others[:turn]]
        pairs = [(ring[k], ring[-1 - k]) for k in range(players // 2)]
        rounds.append([(min(pair), max(pair)) for pair in pairs if max(pair) < hosts])
    if hosts <= MAX_SEQUENTIAL_HOSTS:
        return [[pair] for pairs in rounds for pair in pairs]
    return rounds[:MAX_PARTNERS]


def describe_slow_pairs(series: Sequence[Measurement], hosts: Sequence[str]) -> list[str]:
    """Return sentences about the pairs of the sweep that take much longer than the others.

    hosts   names by number; hosts without a name are called by their numbers
    """
    swept = [one for one in series if one.kind == "sweep"]
    most = max((max(one.params["first"], one.params["second"]) for one in swept), default=-1)
    names = [*hosts, *(f"number {n}" for n in range(len(hosts), most + 1))]
    return [
        sentence
        for nbytes in sorted({one.nbytes for one in swept})
        for sentence in _describe_slow_pairs_at(
            nbytes, [one for one in swept if one.nbytes == nbytes], names
        )
    ]


def pair_times(swept: Sequence[Measurement]) -> list[PairTime]:
    """Return the times of the pairs of a sweep at one size, each compared with all."""
    logs = np.log([max(float(np.median(one.samples)), 1e-12) for one in swept])
    middle = float(np.median(logs))
    spread = MAD_TO_SIGMA * float(np.median(np.abs(logs - middle)))
    limit = middle + max(OUTLIER_SIGMAS * spread, float(np.log1p(MIN_OUTLIER_EXCESS)))
    return [
        PairTime(
            one.params["first"],
            one.params["second"],
            float(np.exp(log)),
            float(np.exp(middle)),
            bool(log > limit),
        )
        for one, log in zip(swept, logs, strict=True)
    ]


def _describe_slow_pairs_at(
    nbytes: int, swept: list[Measurement], hosts: Sequence[str]
) -> Iterator[str]:
    times = pair_times(swept)
    slow = [(one.first, one.second, one.seconds) for one in times if one.is_slow]
    met = Counter(n for one in swept for n in (one.params["first"], one.params["second"]))
    often = Counter(n for first, second, _ in slow for n in (first, second))
    guilty = {n for n, count in often.items() if met[n] > 2 and count > met[n] / 2}
    usual = format_time(times[0].usual_seconds)
    for n in sorted(guilty):
        own = [seconds for first, second, seconds in slow if n in (first, second)]
        yield (
            f"host {hosts[n]} is slow to most others at {format_size(nbytes)}:"
            f" {format_time(float(np.median(own)))}, usual is {usual}; look at its adapter"
        )
    for first, second, seconds in slow:
        if not guilty & {first, second}:
            yield (
                f"{hosts[first]} and {hosts[second]} are slow with each other at"
                f" {format_size(nbytes)}: {format_time(seconds)}, usual is {usual}"
            )
