"""Baseline times where nothing is simulated: Hockney's line (Parallel Computing 20(3), 1994).

The time is alpha for each round and beta for each byte, fitted to the measurements.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import nnls

from tuner.base.arrays import FloatArray
from tuner.core.measurement import MIN_SAMPLE_S
from tuner.core.table import AlgorithmChoice
from tuner.select.dataset import CallPoint, Observation

ROUGH_LINE = np.array([2e-6, 1e-10])  # alpha and beta of most networks, within a factor of ten
_ROUGH_WEIGHT = 1e-8  # weight of each of these in a fit, in rows: it counts where rows say nothing
_POOLED_WEIGHT = 0.1  # weight of the pooled line in the fit of each choice, in rows


def design_row(point: CallPoint) -> FloatArray:
    """Return the factors of alpha and beta, (2,): rounds of a binomial tree, and bytes."""
    return np.array([math.ceil(math.log2(max(point.p, 2))), float(point.nbytes)])


def fit_pooled(observations: Sequence[Observation]) -> FloatArray:
    """Return alpha (s) and beta (s/byte), (2,), fitted to all choices together.

    What the observations leave undetermined follows `ROUGH_LINE`, scaled to them by their median.
    """
    known, times = _design_and_times(observations)
    usual = known @ ROUGH_LINE
    rough = ROUGH_LINE * (np.median(times / usual) if len(times) else 1.0)
    design = np.concatenate([known, np.diag(1 / rough)])
    weights = np.repeat([1.0, math.sqrt(_ROUGH_WEIGHT)], [len(times), len(rough)])
    return _fit_relative(design, np.concatenate([times, np.ones_like(rough)]), weights)


def fit_per_algorithm(
    observations: Sequence[Observation], pooled: FloatArray
) -> Mapping[AlgorithmChoice, FloatArray]:
    """Return alpha and beta of each choice, fitted to its observations on all shapes.

    What these leave undetermined follows the pooled line, scaled by how much slower than that line
    the choice is in the median.
    """
    known, times = _design_and_times(observations)
    usual = np.maximum(known @ pooled, MIN_SAMPLE_S)
    places: dict[AlgorithmChoice, list[int]] = defaultdict(list)
    for place, row in enumerate(observations):
        places[row.choice].append(place)

    def fitted(own: list[int]) -> FloatArray:
        slower = np.exp(np.median(np.log(times[own] / usual[own])))
        weights = np.repeat(
            [1.0, math.sqrt(_POOLED_WEIGHT / len(observations))], [len(own), len(observations)]
        )
        seconds = np.concatenate([times[own], usual * slower])
        return _fit_relative(np.concatenate([known[own], known]), seconds, weights)

    return {choice: fitted(own) for choice, own in places.items()}


def _design_and_times(observations: Sequence[Observation]) -> tuple[FloatArray, FloatArray]:
    rows = [design_row(row.point) for row in observations]
    return np.reshape(rows, (-1, len(ROUGH_LINE))), np.array([row.seconds for row in observations])


def _fit_relative(design: FloatArray, seconds: FloatArray, weights: FloatArray) -> FloatArray:
    """Fit by least squares of relative errors, with non-negative coefficients."""
    return np.asarray(nnls(design * (weights / seconds)[:, None], weights)[0])
