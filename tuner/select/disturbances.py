"""Disturbed launches: calls that something else on the machine slowed down throughout a launch.

Another program may hold up all repetitions of a call in one launch by milliseconds, and those of
other launches not at all, so how much repetitions of a launch differ does not show it. Disturbances
only ever make calls slower. So a call is suspected in a launch where it took far longer than other
launches, sizes and algorithms allow, and believed where all of its launches say the same and
disturbances in so many are improbable.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from tuner.base.statistics import midmean
from tuner.core.table import AlgorithmChoice
from tuner.select.dataset import CallPoint, Observation, group_by

# Factor by which a call may exceed what the others allow. Launches that nothing disturbed differed
# by 2.9 at most (broadcasts of 1 MiB between two processes); disturbed ones by 9 to 20,000.
_MAX_EXCESS = 4.0
# Factor between two algorithms besides: with the excess 16, as slow as any default that is reported
# (openucx/ucc#1357).
_ALGORITHMS_APART = 4.0
# Factor by which the rate of larger calls may be lower besides, as they fit into no cache.
_RATES_APART = 4.0
_LEAST_SHARE = 0.05  # of calls in launches that may be disturbed, however few are suspected
_MAX_CHANCE = 0.01  # probability of disturbances in all launches of a call that is believed


@dataclass(frozen=True)
class ScreenedLaunches:
    """The observations of launches that nothing disturbed, and what was left out.

    observations    without the launches that are taken to be disturbed
    disturbed       those launches of each call
    doubtful        calls to be measured again with these choices: no launch with the default is
                    left
    """

    observations: tuple[Observation, ...]
    disturbed: Mapping[CallPoint, Set[int]]
    doubtful: Mapping[CallPoint, Sequence[AlgorithmChoice]]

    def record(self) -> list[str]:
        """Return a name for each call in a launch that was disturbed."""
        return [
            f"{point} in launch {launch}"
            for point, launches in sorted(self.disturbed.items())
            for launch in sorted(launches)
        ]


def screen_launches(observations: Sequence[Observation]) -> ScreenedLaunches:
    """Return the observations without disturbed launches.

    What was measured of a call in a launch is left out together, since the repetitions of its
    algorithms alternate.
    """
    disturbed = _disturbed_launches(observations)
    kept = [_without_launches(row, disturbed.get(row.point, set())) for row in observations]
    known = {row.point for row in kept if row is not None and row.choice.is_default}
    doubtful: dict[CallPoint, list[AlgorithmChoice]] = {}
    for row in observations:
        if row.point not in known and disturbed.get(row.point, set()) & row.samples.keys():
            doubtful.setdefault(row.point, []).append(row.choice)
    return ScreenedLaunches(tuple(row for row in kept if row is not None), disturbed, doubtful)


def _disturbed_launches(observations: Sequence[Observation]) -> Mapping[CallPoint, set[int]]:
    """Return the launches of each call that are taken to be disturbed.

    The share of them is told by calls that were slow in some of their launches alone.
    """
    calls = [
        (point, len(own), {launch for launch, excess in own.items() if excess > _MAX_EXCESS})
        for point, own in _excesses_of_calls(observations)
    ]
    mixed = [(len(slow), count) for _, count, slow in calls if len(slow) < count > 1]
    share = sum(slow for slow, _ in mixed) / max(sum(count for _, count in mixed), 1)
    found: dict[CallPoint, set[int]] = defaultdict(set)
    for point, count, slow in calls:
        if slow and (len(slow) < count or max(share, _LEAST_SHARE) ** count > _MAX_CHANCE):
            found[point] |= slow
    return found


def _excesses_of_calls(
    observations: Sequence[Observation],
) -> Iterator[tuple[CallPoint, Mapping[int, float]]]:
    """Yield calls, and how far they exceed in each launch what others allow.

    A launch with the default is judged by it, and one without by the algorithm that exceeds least.
    Those with it and those without are yielded apart.
    """
    with_default = {
        (row.point, launch)
        for row in observations
        if row.choice.is_default
        for launch in row.samples
    }
    found: dict[tuple[CallPoint, bool], dict[int, float]] = defaultdict(dict)
    for row, launch, excess in _excesses(observations):
        if row.choice.is_default or (row.point, launch) not in with_default:
            own = found[row.point, row.choice.is_default]
            own[launch] = min(excess, own.get(launch, math.inf))
    for (point, _), own in found.items():
        yield point, own


def _excesses(observations: Sequence[Observation]) -> Iterator[tuple[Observation, int, float]]:
    """Yield the observations, their launches, and how far each time exceeds what others allow.

    These are the others of the same kind of call on the same shape. A time that is a constant and
    a share of the size is at most max(1, n / m) times that of size m at size n, but for caches.
    """
    for rows in group_by(observations, lambda row: row.point.with_size(0)).values():
        series = [(row, launch) for row in rows for launch in row.samples]
        seconds = np.array([float(midmean(row.samples[launch])) for row, launch in series])
        sizes = np.array([max(row.point.nbytes, 1) for row, _ in series], float)
        numbers = {choice: n for n, choice in enumerate({row.choice for row in rows})}
        names = np.array([numbers[row.choice] for row, _ in series])
        for n, (row, launch) in enumerate(series):
            larger = sizes[n] / sizes
            allowed = seconds * np.where(larger > 1, _RATES_APART * larger, 1.0)
            allowed *= np.where(names == names[n], 1.0, _ALGORITHMS_APART)
            allowed[n] = math.inf
            yield row, launch, float(seconds[n] / allowed.min())


def _without_launches(row: Observation, launches: Set[int]) -> Observation | None:
    """Return an observation without these launches; None if it has no others."""
    if launches.isdisjoint(row.samples):
        return row
    samples = {name: one for name, one in row.samples.items() if name not in launches}
    return row.with_samples(samples) if samples else None
