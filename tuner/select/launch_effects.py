"""Launch effects: what the times of one call in one launch have in common.

Each launch places its ranks and its memory anew, so that in it all algorithms of a call are faster
or slower together. An experiment design measures different algorithms in different launches. What
they have in common in each tells which of two is faster although no launch may have both: launches
are the blocks of an incomplete block design (Yates, Annals of Eugenics 7, 1936).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from tuner.base.arrays import FloatArray
from tuner.base.statistics import log_sd, midmean
from tuner.core.speedup import LAUNCH_RELATIVE_SD, mean_over_launches
from tuner.select.dataset import Observation, PointConfig, group_by, group_by_point

_MIN_VARIANCE = 1e-12
_WHOLE_LAUNCH_SHARE = 0.5  # of the variance of a launch that is common to all of its calls
# Weights of the usual variation between launches.
_N_PRIOR = 2  # in what a call's algorithms have in common, in calls; in one's own, in differences
_N_PRIOR_CALLS = 4  # in the own variance of algorithms that were not repeated, in calls
_CACHE_SIZE = 2**16  # launches of series


@dataclass(frozen=True)
class LaunchEffects:
    """Variances of the logarithms of times between launches of one call.

    shared      variance of what all algorithms of a call have in common in a launch
    own_factor  how many times larger than usual the variance of an algorithm is besides
    factors     the same for single algorithms of calls, where several launches tell
    """

    shared: float
    own_factor: float
    factors: Mapping[PointConfig, float] = field(default_factory=dict)

    def own_variance(self, observation: Observation) -> float:
        """Return the variance of an observed time but for what is common to its launches."""
        _, variances = self.launch_times(observation)
        return float(1 / np.sum(1 / variances))

    @property
    def next_variance(self) -> float:
        """Return the least variance of a time that will be measured in one launch."""
        return self.own_factor * LAUNCH_RELATIVE_SD**2

    def adjust(
        self, observations: Sequence[Observation]
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return logarithms of times over all launches, their own variances and a covariance.

        The first are adjusted for the launches that each was measured in: the generalised least
        squares of the times of each launch, for each call. The covariance, (n, n), is that of what
        launches have in common, besides the own variances.
        """
        calls = group_by(
            range(len(observations)), lambda n: (observations[n].point, observations[n].machine)
        )
        names = {(row.machine, name) for row in observations for name in _names(row)}
        columns = {name: n for n, name in enumerate(sorted(names))}
        log_seconds, own = np.zeros(len(observations)), np.zeros(len(observations))
        portions, blocks = np.zeros((len(observations), len(columns))), []
        for numbers in calls.values():
            rows = [observations[n] for n in numbers]
            launches = np.array(
                [columns[row.machine, name] for row in rows for name in _names(row)]
            )
            weights, logs, own[numbers], covariance = self._adjust_call(rows, launches)
            log_seconds[numbers] = weights @ logs
            portions[numbers] = weights @ (launches[:, None] == np.arange(len(columns)))
            blocks.append((np.ix_(numbers, numbers), covariance))
        shared = _WHOLE_LAUNCH_SHARE * self.shared * portions @ portions.T
        for block, covariance in blocks:
            shared[block] = covariance
        return log_seconds, own, shared

    def _adjust_call(
        self, rows: Sequence[Observation], launches: NDArray[np.intp]
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return the weights, (k, m), of the m times of a call in its adjusted k times.

        Also return the logarithms of the m times, and the own variances and the covariance of the
        adjusted ones.

        launches    number of the launch of each of the m times
        """
        each = [self.launch_times(row) for row in rows]
        logs, variances = (np.concatenate(parts) for parts in zip(*each, strict=True))
        which = np.repeat(np.arange(len(rows)), [len(own) for own, _ in each])
        algorithm = (which[:, None] == np.arange(len(rows))).astype(float)
        noise = np.diag(variances) + self.shared * (launches[:, None] == launches)
        weights = np.linalg.solve(noise, algorithm)
        covariance = np.linalg.inv(algorithm.T @ weights)
        own = 1 / (algorithm.T @ (1 / variances))
        return covariance @ weights.T, logs, own, covariance - np.diag(own)

    def launch_times(self, observation: Observation) -> tuple[FloatArray, FloatArray]:
        """Return logarithms of the times in each launch, and their own variances."""
        known = (
            [(math.log(observation.seconds), observation.log_sd**2)]
            if len(observation.samples) < 2
            else [*map(_launch_statistics, observation.samples.values())]
        )
        logs, variances = np.array(known).T
        factor = self.factors.get((observation.point, observation.choice), self.own_factor)
        return logs, factor * np.maximum(variances, _MIN_VARIANCE)


def _names(observation: Observation) -> Collection[int]:
    """Return the launches of an observation; all without samples are of one."""
    return observation.samples or (-1,)


def estimate_launch_effects(observations: Iterable[Observation]) -> LaunchEffects:
    """Return how launches differ, from the calls that were measured in several.

    Deviations of `tuner.core.speedup.LAUNCH_RELATIVE_SD` are the prior. What two algorithms of a
    call do not have in common in their launches is their own. Of an algorithm that was repeated
    alone nothing tells what is its own: up to half of its deviations count so. A design repeats
    what jumps, so the median over calls tells what is an algorithm's own elsewhere; what is shared
    is the mean, since too large a value only makes comparisons of different launches less certain.
    """
    calls = [
        [row for row in rows if len(row.samples) > 1]
        for rows in group_by_point(observations).values()
    ]
    ratios = [(rows, _ratios_of_differences(rows)) for rows in calls if rows]
    shown = [_ratio_of_call(len(rows), known) for rows, known in ratios if known]
    usual = max(float(np.median([*_N_PRIOR_CALLS * [1.0], *shown])), 1.0)
    factors = {
        (row.point, row.choice): _own_factor(row, n, known, usual)
        for rows, known in ratios
        for n, row in enumerate(rows)
    }
    own = LaunchEffects(0.0, usual, factors)
    shared = [_shared_variance(rows, own) for rows, _ in ratios]
    mean = float(np.mean([*_N_PRIOR * [LAUNCH_RELATIVE_SD**2], *shared]))
    return LaunchEffects(max(mean, 0.0), usual, factors)


_Ratios = Mapping[tuple[int, int], tuple[float, int]]


def _ratios_of_differences(rows: Sequence[Observation]) -> _Ratios:
    """Return how many times larger than usual variances of the ratios of two algorithms are.

    Also return the numbers of differences that tell. There is an entry for each pair of one call
    with two launches in common or more.
    """
    found = {}
    for (i, one), (j, other) in combinations(enumerate(rows), 2):
        common = sorted(one.samples.keys() & other.samples.keys())
        if len(common) < 2:
            continue
        first, second = (
            np.array([_launch_statistics(row.samples[name]) for name in common])
            for row in (one, other)
        )
        usual = float(np.mean(first[:, 1] + second[:, 1]))
        apart = float(np.var(first[:, 0] - second[:, 0], ddof=1))
        found[i, j] = apart / usual, len(common) - 1
    return found


def _ratio_of_call(n_algorithms: int, ratios: _Ratios) -> float:
    """Return how many times larger than usual the own variances of a call's algorithms are.

    The median of a variance estimated from so many differences is less than the true one by that of
    the chi-squared distribution, by Wilson and Hilferty (PNAS 17, 1931).
    """
    mean = float(np.mean([ratio for ratio, _ in ratios.values()]))
    count = (n_algorithms - 1) * max(count for _, count in ratios.values())
    return mean / (1 - 2 / (9 * count)) ** 3


def _own_factor(row: Observation, number: int, ratios: _Ratios, usual: float) -> float:
    """Return how many times larger than usual an algorithm's own variance is, at least 1.

    It is told by the median over the algorithms with it, as one of these may jump itself. Half of
    the variance of a ratio belongs to each; of one of two that were repeated all may be its own.

    number  of the algorithm in the keys of `ratios`
    """
    own = [known for pair, known in ratios.items() if number in pair]
    logs, variances = np.array([*map(_launch_statistics, row.samples.values())]).T
    count = max((count for _, count in own), default=len(logs) - 1)
    alone = float(np.var(logs, ddof=1) / np.mean(variances)) / 2
    ratio = float(np.median([ratio for ratio, _ in own])) if own else alone
    if len(own) > 1:
        ratio = 2 * ratio - usual
    return max((_N_PRIOR * usual + count * ratio) / (_N_PRIOR + count), 1.0)


def _shared_variance(rows: Sequence[Observation], own: LaunchEffects) -> float:
    """Return the variance that all algorithms of a call have in common in their launches."""
    found = []
    for row in rows:
        logs, variances = own.launch_times(row)
        found.append(float(np.var(logs, ddof=1) - np.mean(variances)))
    return float(np.mean(found))


@lru_cache(_CACHE_SIZE)
def _launch_statistics(samples: tuple[float, ...]) -> tuple[float, float]:
    """Return the logarithm of a launch's typical time, and its variance."""
    _, low, high = mean_over_launches([samples])
    return math.log(midmean(samples)), log_sd(low, high) ** 2
