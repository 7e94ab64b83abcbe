"""Which samples to take, and when there are enough of them. Pure functions; no MPI."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tuner.base.arrays import FloatArray
from tuner.base.statistics import median_interval, relative_half_width
from tuner.probe.probe_plan import FEWEST

MOST = 100  # repetitions in one launch after which another launch teaches more
CONTENDER = 1.15  # an arm is still in the running below this multiple of the best one's upper bound


def order(seed: int, repetition: int, arms: int) -> NDArray[np.intp]:
    """The order of the arms in one repetition: random, and the same on every rank.

    Each order is followed by its reverse, so that on average every arm runs as early and as late as
    the others: the first of a repetition is a little slower (counterbalancing).
    """
    drawn = np.random.default_rng([seed, repetition // 2]).permutation(arms)
    return drawn[::-1] if repetition % 2 else drawn


def settled(samples: FloatArray, target: float, compete: bool = True, fewest: int = FEWEST) -> bool:
    """Whether the medians are known well enough to choose between the arms.

    samples     (repetitions, arms) in seconds; arm 0 is the reference everything is compared with
    target      relative half-width that the reference and every contender must reach
    compete     the arms are rivals; else each of them must be precise

    An arm whose whole interval lies beyond `CONTENDER` times the best arm's upper bound cannot win;
    making it more precise would cost time and decide nothing.
    """
    if len(samples) < fewest:
        return False
    columns = list(samples.T)
    intervals = [median_interval(column) for column in columns]
    reach = CONTENDER * min(high for _, _, high in intervals)
    return all(
        relative_half_width(column) <= target
        for number, (column, (_, low, _)) in enumerate(zip(columns, intervals, strict=True))
        if number == 0 or low <= reach or not compete
    )


def next_look(repetitions: int, fewest: int = FEWEST) -> int:
    """After how many repetitions to ask `settled` again: often at first, then ever more rarely."""
    return max(fewest, repetitions + 1, repetitions * 5 // 4)


class Account:
    """Deals out the seconds of a probe: what one point leaves unused goes to the later ones."""

    def __init__(self, budget: float, weights: list[float]) -> None:
        self._seconds = budget
        self._weight = sum(weights)

    def allot(self, weight: float) -> float:
        """Seconds for the next point, its share of what is left."""
        share = self._seconds * weight / self._weight if self._weight > 0 else 0.0
        self._weight -= weight
        return max(share, 0.0)

    def spend(self, seconds: float) -> None:
        """What the point really took."""
        self._seconds -= seconds
