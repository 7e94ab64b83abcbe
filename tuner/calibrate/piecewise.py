"""Fit piecewise straight lines to message times, with break points found from the data.

Hockney's alpha + beta * nbytes holds per protocol, and protocols change with size, so the times of
one path are several lines. Everything is relative: 3 % of a short message count as much as 3 % of a
long one. A size that lies far off its line counts little: the fit is Tukey's biweight (Beaton and
Tukey, Technometrics 16, 1974), found by reweighted least squares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tuner.base.arrays import FloatArray

MIN_SIZES = 3  # sizes at least in the first and the last line: two would fit any noise
MIN_SIZES_INNER_LINE = 2  # in other lines: two sizes that are off together are not outliers
MIN_RELATIVE_ERROR = 0.02  # smaller deviations from a straight line do not count as a break
SLOPE_EPSILON = 1e-9  # relative to alpha; a smaller slope is a rounding error
PARAMETERS_PER_LINE = 3  # free parameters of a line: alpha, beta, where it begins
# Standard deviations at which a size stops counting; 95 % efficient without outliers.
TUKEY_CUTOFF_SD = 4.685
# Of one size: a line must cost more, or outliers would get lines of their own.
MAX_LOSS_PER_SIZE = TUKEY_CUTOFF_SD**2 / 3
L1_ITERATIONS = 6  # iterations of reweighting for least absolute deviations
BIWEIGHT_ITERATIONS = 12  # iterations of reweighting with Tukey's biweight


@dataclass(frozen=True)
class AlphaBetaFit:
    """A line alpha + beta * nbytes through the sizes with indices [first, last) of a curve.

    weights     how much each of these sizes counts; 0 for one that lies far off
    """

    first: int
    last: int
    alpha: float
    beta: float
    weights: tuple[float, ...]

    def seconds(self, nbytes: float) -> float:
        return self.alpha + self.beta * nbytes

    @property
    def index_slice(self) -> slice:
        """The slice of its sizes among those of the curve."""
        return slice(self.first, self.last)


def fit_alpha_beta(
    sizes: FloatArray,
    times: FloatArray,
    weights: FloatArray | None = None,
    min_alpha: float | FloatArray = 0.0,
) -> tuple[FloatArray, FloatArray]:
    """Return alpha >= `min_alpha` and beta >= 0 with the least weighted squares of relative errors.

    times       seconds, shape (..., sizes); the result has shape (...)
    min_alpha   seconds that are known to be in alpha, shape (...)

    Where the unbounded minimum has a negative part, the minimum over the bounds has a zero there
    (the quadratic form has no negative entries), so no search is needed.
    """
    scale = max(float(sizes.max()), 1.0)  # both columns of the same order of magnitude
    weight = np.ones(len(sizes)) if weights is None else weights
    known = np.asarray(min_alpha, dtype=float)
    one, slope = 1 / times, sizes / scale / times
    goal = 1 - known[..., None] * one

    def dot(a: FloatArray, b: FloatArray) -> FloatArray:
        total: FloatArray = np.sum(weight * a * b, axis=-1)
        return total

    aa, ab, bb = dot(one, one), dot(one, slope), dot(slope, slope)
    a, b = dot(one, goal), dot(slope, goal)
    determinant = np.maximum(aa * bb - ab * ab, np.finfo(float).tiny)
    alpha, beta = (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant
    flat, through = beta <= 0, alpha <= 0
    alpha = np.where(flat, np.maximum(a, 0) / aa, np.where(through, 0.0, alpha)) + known
    steep = np.maximum(b, 0) / np.maximum(bb, np.finfo(float).tiny)
    beta = np.where(flat, 0.0, np.where(through, steep, beta))
    return alpha, np.where(beta > SLOPE_EPSILON * alpha, beta, 0.0) / scale


def fit_robust_line(
    first: int, sizes: FloatArray, times: FloatArray, noise: FloatArray
) -> tuple[AlphaBetaFit, float]:
    """Return the robust line from size number `first` on, and its loss.

    The loss is the sum of squared deviations in units of `noise`, bounded for sizes far off. The
    biweight needs a good start: the line of least absolute deviations.
    """
    precision = noise**-2
    weights = precision
    for turn in range(L1_ITERATIONS + BIWEIGHT_ITERATIONS):
        alpha, beta = fit_alpha_beta(sizes, times, weights)
        off = ((alpha + beta * sizes) / times - 1) / noise
        if turn < L1_ITERATIONS:
            weights = precision / np.maximum(np.abs(off), 0.1)
            continue
        near = np.maximum(1 - (off / TUKEY_CUTOFF_SD) ** 2, 0) ** 2
        if np.count_nonzero(near) < 2:
            break
        weights = precision * near
    loss = MAX_LOSS_PER_SIZE * float(
        np.sum(1 - np.maximum(1 - (off / TUKEY_CUTOFF_SD) ** 2, 0) ** 3)
    )
    last = first + len(sizes)
    return AlphaBetaFit(first, last, float(alpha), float(beta), tuple(weights.tolist())), loss


def fit_piecewise(
    sizes: FloatArray,
    times: FloatArray,
    relative_errors: FloatArray,
    likely_breaks: Sequence[float] = (),
) -> tuple[AlphaBetaFit, ...]:
    """Return the lines that minimise the Bayesian information criterion (Schwarz, 1978).

    sizes           ascending, bytes
    times           seconds
    relative_errors relative standard error of each time, raised to at least `MIN_RELATIVE_ERROR`
    likely_breaks   sizes at which a line is known to begin, so that they need not be found

    Dynamic programming over (begin, end) of the last line; a line may follow another one only if
    the time need not drop where they meet.
    """
    count = len(sizes)
    noise = np.maximum(relative_errors, MIN_RELATIVE_ERROR)
    free = np.full(count, PARAMETERS_PER_LINE)
    free[
        [first for first in range(1, count) if _has_likely_break(sizes, first, likely_breaks)]
    ] -= 1
    penalty = free * max(math.log(count), MAX_LOSS_PER_SIZE * 1.1 / PARAMETERS_PER_LINE)
    best: dict[tuple[int, int], tuple[float, tuple[AlphaBetaFit, ...]]] = {}
    for last in range(MIN_SIZES_INNER_LINE, count + 1):
        for first in range(last - MIN_SIZES_INNER_LINE + 1):
            if last - first < MIN_SIZES and (first == 0 or last == count):
                continue
            own = slice(first, last)
            line, loss = fit_robust_line(first, sizes[own], times[own], noise[own])
            if first == 0:
                best[0, last] = (loss + penalty[0], (line,))
                continue
            before = [
                (value, lines)
                for (_, end), (value, lines) in best.items()
                if end == first and _can_follow(lines[-1], line, sizes)
            ]
            if before:
                value, lines = min(before, key=lambda entry: entry[0])
                best[first, last] = (value + loss + penalty[first], (*lines, line))
    whole = [entry for (_, end), entry in best.items() if end == count]
    return min(whole, key=lambda entry: entry[0])[1]


def _has_likely_break(sizes: FloatArray, first: int, likely_breaks: Sequence[float]) -> bool:
    """Return whether a likely break lies between size number `first` and the one before it."""
    return any(sizes[first - 1] < size <= sizes[first] for size in likely_breaks)


def _can_follow(left: AlphaBetaFit, right: AlphaBetaFit, sizes: FloatArray) -> bool:
    """Return whether the right line is somewhere between them not below the left one."""
    between = (sizes[right.first - 1], sizes[right.first])
    return any(right.seconds(nbytes) >= left.seconds(nbytes) for nbytes in between)


def refit_lines(
    lines: Sequence[AlphaBetaFit],
    sizes: FloatArray,
    times: FloatArray,
    min_alpha: float | FloatArray = 0.0,
) -> tuple[FloatArray, FloatArray]:
    """Refit the same lines to other times, shape (..., sizes).

    Returns alpha and beta, each of shape (..., lines).
    """
    fitted = [
        fit_alpha_beta(
            sizes[line.index_slice], times[..., line.index_slice], np.array(line.weights), min_alpha
        )
        for line in lines
    ]
    alpha, beta = (np.stack(part, axis=-1) for part in zip(*fitted, strict=True))
    return alpha, beta


def break_points(
    lines: Sequence[AlphaBetaFit], sizes: FloatArray, likely_breaks: Sequence[float]
) -> list[float]:
    """Return where each line but the first begins, in bytes.

    Between the last size of one line and the first of the next nothing was measured. Candidates
    are, in this order: the likely breaks (known protocol limits), where the lines cross, the
    geometric mean and the two sizes themselves. The first at which the time does not drop is taken.
    """
    found = []
    for left, right in pairwise(lines):
        low, high = sizes[right.first - 1], sizes[right.first]
        options = [*likely_breaks, _crossing_size(left, right), math.sqrt(low * high), high, low]
        found.append(
            next(
                float(option)
                for option in options
                if low < option <= high
                and right.seconds(option) >= left.seconds(option) * (1 - 1e-9)
            )
        )
    return found


def _crossing_size(left: AlphaBetaFit, right: AlphaBetaFit) -> float:
    if left.beta == right.beta:
        return math.inf
    return (left.alpha - right.alpha) / (right.beta - left.beta)
