"""How good predictions of collectives are: by how much they are off, and whether they rank.

A calibration that is off by the same factor everywhere still chooses well; one that is nearly right
everywhere may choose badly. So the two are told apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.stats import kendalltau

from tuner.core.collective import Collective
from tuner.core.table import Choice

CLOSE = 0.05  # a choice within this of the best measured time is as good as the best
BANDS = (0, 1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 62)  # bytes; protocols and algorithms change

# collective, nodes, ppn, placement, memory, nbytes
Point = tuple[Collective, int, int, str, str, int]


@dataclass(frozen=True)
class Case:
    """One algorithm at one point, measured and predicted, seconds."""

    point: Point
    choice: Choice
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Relative, of the prediction; above 0 it is too slow."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Errors:
    """Of `cases` predictions: absolute relative errors, and the median with its sign."""

    cases: int
    median: float
    mean: float
    p95: float
    bias: float


@dataclass(frozen=True)
class Ranking:
    """Of the algorithms at each of `points` points, unweighted.

    regret      mean of what the predicted best takes over the measured best, minus one
    tau         mean of Kendall's rank correlation between measured and predicted times
    close       part of the points whose predicted best is within CLOSE of the measured best
    """

    points: int
    regret: float
    tau: float
    close: float


def errors(cases: Sequence[Case]) -> Errors:
    """Over all of one or more cases."""
    off = np.array([case.error for case in cases])
    size = np.abs(off)
    return Errors(
        len(off),
        float(np.median(size)),
        float(size.mean()),
        float(np.quantile(size, 0.95)),
        float(np.median(off)),
    )


def by_algorithm(cases: Sequence[Case]) -> dict[tuple[Collective, str, int, int], Errors]:
    """(collective, algorithm, first and end byte of a band of sizes) -> errors; sorted."""
    groups: dict[tuple[Collective, str, int, int], list[Case]] = defaultdict(list)
    for case in cases:
        collective, nbytes = case.point[0], case.point[-1]
        low, high = next(band for band in pairwise(BANDS) if nbytes < band[1])
        groups[collective, case.choice.algorithm, low, high].append(case)
    return {name: errors(own) for name, own in sorted(groups.items())}


def ranking(cases: Sequence[Case]) -> Ranking:
    """Over the points with two algorithms or more; without any all figures are those of a perfect
    ranking."""
    points: dict[Point, list[Case]] = defaultdict(list)
    for case in cases:
        points[case.point].append(case)
    several = [own for own in points.values() if len(own) > 1]
    if not several:
        return Ranking(0, 0.0, 1.0, 1.0)
    losses = [_loss(own) for own in several]
    return Ranking(
        len(several),
        float(np.mean(losses)),
        float(np.mean([_tau(own) for own in several])),
        float(np.mean([loss <= CLOSE for loss in losses])),
    )


def _loss(own: Sequence[Case]) -> float:
    chosen = min(own, key=lambda case: case.predicted)
    return chosen.measured / min(case.measured for case in own) - 1


def _tau(own: Sequence[Case]) -> float:
    """Ties, such as those of times that are all equal, correlate with nothing."""
    tau = float(
        kendalltau([case.measured for case in own], [case.predicted for case in own]).statistic
    )
    return 0.0 if np.isnan(tau) else tau
