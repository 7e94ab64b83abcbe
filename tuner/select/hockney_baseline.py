"""How a time grows where no simulation says it: Hockney's line (Parallel Computing 20(3), 1994):
alpha for each round and beta for each byte, fitted to what was measured.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import nnls

from tuner.base.arrays import FloatArray
from tuner.core.measurement import SHORTEST
from tuner.core.table import Choice
from tuner.select.dataset import Point, Row

_ALL = 0.1  # rows that the line of all choices counts as in that of each


def terms(point: Point) -> FloatArray:
    """What alpha and beta are multiplied with, (2,): rounds of a tree, bytes."""
    return np.array([math.ceil(math.log2(max(point.p, 2))), float(point.nbytes)])


def common_line(rows: Sequence[Row]) -> FloatArray:
    """Alpha (s) and beta (s/byte), (2,), for all choices alike; a second for each round of nothing
    measured.
    """
    if not rows:
        return np.array([1.0, 0.0])
    return _fitted(*_terms_and_times(rows), np.ones(len(rows)))


def own_lines(rows: Sequence[Row], common: FloatArray) -> Mapping[Choice, FloatArray]:
    """Alpha and beta of each choice, of one row at least, by its rows on all shapes; what these
    leave open is settled by the common line, as many times slower as this choice typically is.
    """
    known, times = _terms_and_times(rows)
    usual = np.maximum(known @ common, SHORTEST)
    places: dict[Choice, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        places[row.choice].append(place)

    def fitted(own: list[int]) -> FloatArray:
        slower = np.exp(np.median(np.log(times[own] / usual[own])))
        weights = np.repeat([1.0, math.sqrt(_ALL / len(rows))], [len(own), len(rows)])
        seconds = np.concatenate([times[own], usual * slower])
        return _fitted(np.concatenate([known[own], known]), seconds, weights)

    return {choice: fitted(own) for choice, own in places.items()}


def _terms_and_times(rows: Sequence[Row]) -> tuple[FloatArray, FloatArray]:
    return np.array([terms(row.point) for row in rows]), np.array([row.typical for row in rows])


def _fitted(known: FloatArray, seconds: FloatArray, weights: FloatArray) -> FloatArray:
    """Least squares of relative errors, none of the numbers negative."""
    return np.asarray(nnls(known * (weights / seconds)[:, None], weights)[0])
