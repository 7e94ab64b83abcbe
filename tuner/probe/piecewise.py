"""Piecewise straight lines through message times, with break points found from the data.

Hockney's alpha + beta * nbytes holds per protocol, and protocols change with size, so the times of
one path are several lines. Everything is relative: 3 % of a short message count as much as 3 % of a
long one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

SHORTEST = 3  # sizes in a line: two would fit any noise exactly
MISFIT = 0.03  # what a straight line is trusted to describe; smaller deviations are no break
ROUNDING = 1e-9  # what of a slope is an artefact of the arithmetic
PER_LINE = 3  # free numbers of a line: alpha, beta, where it begins

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """alpha + beta * nbytes for the sizes with indices [first, last) of a ladder."""

    first: int
    last: int
    alpha: float
    beta: float

    def at(self, nbytes: float) -> float:
        """Seconds."""
        return self.alpha + self.beta * nbytes


def fit_line(sizes: Floats, times: Floats) -> tuple[float, float]:
    """alpha >= 0 and beta >= 0 with the least squared relative error."""
    scale = max(float(sizes.max()), 1.0)  # both columns of the same order of magnitude
    system = np.column_stack([1 / times, sizes / scale / times])
    (alpha, beta), _ = nnls(system, np.ones(len(times)))
    return float(alpha), float(beta) / scale if beta > ROUNDING * alpha else 0.0


def fit_lines(sizes: Floats, times: Floats, spread: Floats) -> tuple[Line, ...]:
    """The lines that minimise the Bayesian information criterion (Schwarz, 1978).

    sizes       ascending, bytes; times in seconds
    spread      relative standard error of each time; `MISFIT` is its floor

    Dynamic programming over (begin, end) of the last line; a line may follow another one only if
    the time need not drop where they meet.
    """
    count = len(sizes)
    noise = np.maximum(spread, MISFIT)
    penalty = PER_LINE * math.log(count)
    best: dict[tuple[int, int], tuple[float, tuple[Line, ...]]] = {}
    for last in range(SHORTEST, count + 1):
        for first in range(last - SHORTEST + 1):
            line = Line(first, last, *fit_line(sizes[first:last], times[first:last]))
            error = (line.alpha + line.beta * sizes[first:last]) / times[first:last] - 1
            cost = float(np.sum((error / noise[first:last]) ** 2)) + penalty
            if first == 0:
                best[0, last] = (cost, (line,))
                continue
            before = [
                (value, lines)
                for (_, end), (value, lines) in best.items()
                if end == first and _meet(lines[-1], line, sizes)
            ]
            if before:
                value, lines = min(before, key=lambda entry: entry[0])
                best[first, last] = (value + cost, (*lines, line))
    whole = [entry for (_, end), entry in best.items() if end == count]
    return min(whole, key=lambda entry: entry[0])[1]


def _meet(left: Line, right: Line, sizes: Floats) -> bool:
    """Somewhere between them the right line is not below the left one."""
    between = (sizes[right.first - 1], sizes[right.first])
    return any(right.at(nbytes) >= left.at(nbytes) for nbytes in between)


def refit(lines: Sequence[Line], sizes: Floats, times: Floats) -> tuple[Line, ...]:
    """The same sizes in each line, other times."""
    return tuple(
        Line(
            line.first,
            line.last,
            *fit_line(sizes[line.first : line.last], times[line.first : line.last]),
        )
        for line in lines
    )


def breaks(lines: Sequence[Line], sizes: Floats, likely: Sequence[float]) -> list[float]:
    """Where each line but the first begins, in bytes.

    Between the last size of one line and the first of the next nothing was measured. In order: a
    `likely` size (a known protocol limit), where the lines cross, the geometric mean; the first at
    which the time does not drop.
    """
    found = []
    for left, right in pairwise(lines):
        low, high = sizes[right.first - 1], sizes[right.first]
        options = [*likely, _crossing(left, right), math.sqrt(low * high), high, low]
        found.append(
            next(
                float(option)
                for option in options
                if low <= option <= high and right.at(option) >= left.at(option) * (1 - 1e-9)
            )
        )
    return found


def _crossing(left: Line, right: Line) -> float:
    if left.beta == right.beta:
        return math.inf
    return (left.alpha - right.alpha) / (right.beta - left.beta)
