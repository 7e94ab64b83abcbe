"""The accuracy of predicted collectives: their errors, and whether they rank algorithms correctly.

A calibration that is wrong by the same factor everywhere still chooses well; one that is nearly
right everywhere may choose badly. So the two are reported separately.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.stats import kendalltau

from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice

NEAR_BEST_TOLERANCE = 0.05  # a choice within this of the best measured time is as good as the best
# Bytes at which protocols and algorithms change.
SIZE_BANDS_BYTES = (0, 1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 62)

# collective, nodes, ppn, placement, memory, nbytes
CollectivePoint = tuple[Collective, int, int, str, str, int]


@dataclass(frozen=True)
class CollectivePrediction:
    """The measured and the predicted seconds of one algorithm choice at one point."""

    point: CollectivePoint
    choice: AlgorithmChoice
    measured_s: float
    predicted_s: float

    @property
    def relative_error(self) -> float:
        """The relative error of the prediction; positive if it is too slow."""
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True)
class PredictionErrors:
    """Statistics of `cases` predictions: of absolute relative errors, and their bias.

    The bias is the median of the signed relative errors.
    """

    cases: int
    median: float
    mean: float
    p95: float
    bias: float


@dataclass(frozen=True)
class Ranking:
    """The unweighted quality of the ranking of algorithms at each of `points` points.

    regret      mean of the predicted best's measured time over the measured best, minus one
    tau         mean of Kendall's rank correlation between measured and predicted times
    close       fraction of points whose predicted best is within `NEAR_BEST_TOLERANCE` of the best
    """

    points: int
    regret: float
    tau: float
    close: float


def summarise_errors(predictions: Sequence[CollectivePrediction]) -> PredictionErrors:
    """Return the errors over all of one or more predictions."""
    off = np.array([case.relative_error for case in predictions])
    size = np.abs(off)
    return PredictionErrors(
        len(off),
        float(np.median(size)),
        float(size.mean()),
        float(np.quantile(size, 0.95)),
        float(np.median(off)),
    )


def errors_by_algorithm(
    predictions: Sequence[CollectivePrediction],
) -> dict[tuple[Collective, str, int, int], PredictionErrors]:
    """Return (collective, algorithm, first and end byte of a band of sizes) -> errors, sorted."""
    groups: dict[tuple[Collective, str, int, int], list[CollectivePrediction]] = defaultdict(list)
    for case in predictions:
        collective, nbytes = case.point[0], case.point[-1]
        low, high = next(band for band in pairwise(SIZE_BANDS_BYTES) if nbytes < band[1])
        groups[collective, case.choice.algorithm, low, high].append(case)
    return {name: summarise_errors(own) for name, own in sorted(groups.items())}


def summarise_ranking(predictions: Sequence[CollectivePrediction]) -> Ranking:
    """Return the ranking over the points with two algorithms or more.

    Without any such point all figures are those of a perfect ranking.
    """
    points: dict[CollectivePoint, list[CollectivePrediction]] = defaultdict(list)
    for case in predictions:
        points[case.point].append(case)
    several = [own for own in points.values() if len(own) > 1]
    if not several:
        return Ranking(0, 0.0, 1.0, 1.0)
    losses = [_regret(own) for own in several]
    return Ranking(
        len(several),
        float(np.mean(losses)),
        float(np.mean([_kendall_tau(own) for own in several])),
        float(np.mean([loss <= NEAR_BEST_TOLERANCE for loss in losses])),
    )


def _regret(predictions: Sequence[CollectivePrediction]) -> float:
    chosen = min(predictions, key=lambda case: case.predicted_s)
    return chosen.measured_s / min(case.measured_s for case in predictions) - 1


def _kendall_tau(predictions: Sequence[CollectivePrediction]) -> float:
    """Return Kendall's tau; 0 where it is undefined, as for times that are all equal."""
    tau = float(
        kendalltau(
            [case.measured_s for case in predictions], [case.predicted_s for case in predictions]
        ).statistic
    )
    return 0.0 if np.isnan(tau) else tau
