"""Decide which samples to take, and when there are enough of them, without MPI."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tuner.base.arrays import FloatArray
from tuner.base.statistics import relative_half_width, typical_interval
from tuner.probe.probe_plan import (
    MIN_LONG_REPETITIONS,
    MIN_LONG_WARM_UPS,
    MIN_REPETITIONS,
    WARM_UP_REPETITIONS,
)

MAX_REPETITIONS = 100  # repetitions in one launch, after which another launch adds more
ENOUGH_SECONDS = 0.05  # of a candidate's repetitions in one launch; more of them add little
CONTENDER_FACTOR = 1.15  # a candidate may win below this multiple of the best one's upper bound


def shuffled_order(seed: int, repetition: int, count: int) -> NDArray[np.intp]:
    """Return the order of candidates in one repetition: random, and the same on every rank.

    Each order is followed by its reverse, so that on average every candidate runs as early and as
    late as the others: the first of a repetition is a little slower (counterbalancing).
    """
    drawn = np.random.default_rng([seed, repetition // 2]).permutation(count)
    return drawn[::-1] if repetition % 2 else drawn


def fewest_repetitions(usual: int, seconds: float) -> int:
    """Return how many repetitions calls of so many seconds have at least.

    They are as many as take `ENOUGH_SECONDS`, three at least and `usual` at most. Longer calls
    differ less between repetitions than between launches: of 178 calls of 20 ms and more on
    emulated networks, the first three of eight and more were 0.1 to 1.6 % from all of them
    (medians of networks and durations).
    """
    return min(usual, max(MIN_LONG_REPETITIONS, _within_enough(seconds)))


def warm_up_repetitions(seconds: float) -> int:
    """Return how many untimed repetitions calls of so many seconds have."""
    return min(WARM_UP_REPETITIONS, max(MIN_LONG_WARM_UPS, _within_enough(seconds)))


def decisive_seconds(seconds: FloatArray, is_comparison: bool) -> float:
    """Return the seconds by which the number of repetitions goes, of calls that take turns.

    seconds     of each of them

    Of competing candidates they are those of the fastest, which is the likeliest to be chosen; of a
    series of sizes the mean, as its long messages would take most of the time.
    """
    return float(seconds.min() if is_comparison else seconds.mean())


def _within_enough(seconds: float) -> int:
    return math.ceil(ENOUGH_SECONDS / max(seconds, ENOUGH_SECONDS / MAX_REPETITIONS))


def is_precise_enough(
    samples: FloatArray,
    ci_half_width: float,
    is_comparison: bool = True,
    min_repetitions: int = MIN_REPETITIONS,
) -> bool:
    """Return whether the typical times are known well enough to choose between the candidates.

    samples         seconds, shape (repetitions, candidates); candidate 0 is the reference
    ci_half_width   relative half-width that the reference and every contender must reach
    is_comparison   the candidates compete; else each of them must be precise

    A candidate whose whole interval lies beyond `CONTENDER_FACTOR` times the best candidate's upper
    bound cannot win; making it more precise would cost time and decide nothing.
    """
    if len(samples) < min_repetitions:
        return False
    columns = list(samples.T)
    intervals = [typical_interval(column) for column in columns]
    reach = CONTENDER_FACTOR * min(high for _, _, high in intervals)
    return all(
        relative_half_width(column) <= ci_half_width
        for number, (column, (_, low, _)) in enumerate(zip(columns, intervals, strict=True))
        if number == 0 or low <= reach or not is_comparison
    )


def next_check(repetitions: int, min_repetitions: int = MIN_REPETITIONS) -> int:
    """Return the number of repetitions at which to ask `is_precise_enough` again.

    The checks are frequent at first, and ever rarer later.
    """
    return max(min_repetitions, repetitions + 1, repetitions * 5 // 4)


class RepetitionRule:
    """A rule for when operations that take turns have enough repetitions.

    usual           fewest repetitions of short calls
    ci_half_width, is_comparison
                    as of `is_precise_enough`
    seconds         of a sample of each operation, as far as is known before

    fewest          repetitions that there are at least
    next_look       repetitions after which to look again
    is_met          whether there are enough
    """

    def __init__(
        self, usual: int, ci_half_width: float, is_comparison: bool, seconds: FloatArray
    ) -> None:
        self._usual, self._ci_half_width, self._is_comparison = usual, ci_half_width, is_comparison
        self.is_met = False
        self._expect(seconds)
        self.next_look = next_check(0, self.fewest)

    def _expect(self, seconds: FloatArray) -> None:
        self.fewest = fewest_repetitions(
            self._usual, decisive_seconds(seconds, self._is_comparison)
        )

    def look(self, samples: FloatArray, calls_per_sample: FloatArray) -> None:
        """Decide again, by seconds per call, shape (repetitions, operations)."""
        self._expect(np.median(samples, axis=0) * calls_per_sample)
        self.next_look = next_check(len(samples), self.fewest)
        self.is_met = is_precise_enough(
            samples, self._ci_half_width, self._is_comparison, self.fewest
        )


class TimeBudget:
    """The seconds of a probe, of which what one point leaves unused goes to the later ones."""

    def __init__(self, budget: float, weights: list[float]) -> None:
        self._seconds = budget
        self._weight = sum(weights)

    def allot(self, weight: float) -> float:
        """Return the seconds for the next point, its share of what is left."""
        share = self._seconds * weight / self._weight if self._weight > 0 else 0.0
        self._weight -= weight
        return max(share, 0.0)

    def spend(self, seconds: float) -> None:
        self._seconds -= seconds
