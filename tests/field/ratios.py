"""Compare two arms by ratios of paired launches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, sqrt

import numpy as np
from numpy.typing import ArrayLike

from tuner.base.arrays import BoolArray, FloatArray

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A ratio of times with its 95 % interval and the p-value of "the ratio is 1" (two-sided)."""

    ratio: float
    low: float
    high: float
    p: float

    @property
    def verdict(self) -> str:
        """Return "faster", "slower" or "same" by the plain 95 % interval; above 1 is faster."""
        if self.low > 1:
            return "faster"
        return "slower" if self.high < 1 else "same"


def estimate(logs: ArrayLike, conditions: int = 1) -> Estimate:
    """Estimate a ratio from its logarithms, one per pair of launches, by Student's t.

    Logarithms from which differences between `conditions` were removed have as many degrees of
    freedom less.
    """
    values = np.asarray(logs, dtype=float)
    freedom = len(values) - conditions
    if freedom < 1:
        raise ValueError(f"expected at least {conditions + 1} pairs of launches, got {len(values)}")
    mean, error = float(values.mean()), float(values.std(ddof=conditions)) / sqrt(len(values))
    if error == 0:
        return Estimate(exp(mean), exp(mean), exp(mean), float(mean == 0))
    from scipy import stats  # takes a second

    half = float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * error
    p = 2 * float(stats.t.sf(abs(mean) / error, freedom))
    return Estimate(exp(mean), exp(mean - half), exp(mean + half), p)


def level_out(logs: FloatArray, far: BoolArray) -> FloatArray:
    """Return the logarithms, by pair, without the difference between near and far pairs.

    Their mean over all pairs stays.
    """
    levelled = logs.copy()
    for group in (far, ~far):
        if group.any():
            levelled[group] += logs.mean(axis=0) - logs[group].mean(axis=0)
    return levelled


def holm(p_values: Sequence[float], level: float = 1 - LEVEL) -> list[bool]:
    """Return which hypotheses Holm's procedure rejects at this level of all together."""
    rejected = [False] * len(p_values)
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[index] > level / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected


def by_chance(tests: int) -> float:
    """Return how many of so many tests call one direction significant where nothing differs."""
    return tests * (1 - LEVEL) / 2


def half_width(estimates: Iterable[Estimate]) -> float:
    """Return the median of the relative half widths of the intervals."""
    return float(np.median([sqrt(e.high / e.low) - 1 for e in estimates]))
