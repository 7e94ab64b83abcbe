"""The times of one path over sizes, and the lines through them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.calibrate.bootstrap import INSTANT, estimate
from tuner.calibrate.piecewise import MISFIT, SHORTEST, Line, fit_lines, refit
from tuner.calibrate.series_index import Launches, Series, nbytes, params
from tuner.topology import CROSS_SOCKET, NODE, NODE_OVERSUBSCRIBED

MOST_SIZES = 64  # of a ladder, evenly over all; finding breaks takes the fourth power of time
FAR = 0.05  # a size with less than this of its weight is called an outlier
ROBUST = 1.4826  # median absolute deviation to standard deviation, for a normal distribution
FREE = 2  # numbers of a line that its own sizes decide: alpha and beta
# The same transport: what is known of the one holds for the other if that was not measured itself.
ALIKE = {NODE_OVERSUBSCRIBED: NODE, CROSS_SOCKET: NODE}


@dataclass(frozen=True)
class Ladder:
    """One-way times between two ranks, nobody else being busy.

    name        path class, and the memory that the buffers are in
    sizes       bytes, ascending, shape (n,)
    times       drawn seconds, shape (1 + RESAMPLES, n), without the interpreter's call
    spread      relative standard error of each time, shape (n,)
    steepest    seconds per byte that a port is busy at most, as short messages in a row show
    """

    path: str
    memory: str
    sizes: FloatArray
    times: FloatArray
    spread: FloatArray
    lines: tuple[Line, ...]
    steepest: float = math.inf

    @property
    def name(self) -> str:
        """As sentences call it."""
        return self.path if self.memory == "host" else f"{self.path} ({self.memory})"

    def fitted(self) -> FloatArray:
        """What the lines say, shape (n,)."""
        return np.concatenate(
            [line.alpha + line.beta * self.sizes[line.span] for line in self.lines]
        )

    def residuals(self) -> FloatArray:
        """Relative deviation of each measured time from its line, shape (n,)."""
        off: FloatArray = self.times[0] / self.fitted() - 1
        return off

    def outliers(self) -> list[int]:
        """Sizes that lie so far off that they hardly count."""
        return [
            int(size)
            for line in self.lines
            for size, weight, error in zip(
                self.sizes[line.span], line.weights, self.spread[line.span], strict=True
            )
            if weight * max(error, MISFIT) ** 2 < FAR
        ]

    def goodness(self, begins: Sequence[float]) -> list[dict[str, Any]]:
        """How well each line describes its sizes, as provenance keeps it; the last has no end."""
        off, bounds = np.abs(self.residuals()), [0.0, *begins, None]
        return [
            {
                "path": self.path,
                "memory": self.memory,
                "from": bounds[k],
                "to": bounds[k + 1],
                "sizes": line.last - line.first,
                "median_residual": float(np.median(off[line.span])),
                "worst_residual": float(off[line.span].max()),
                "outliers": [n for n in self.outliers() if n in self.sizes[line.span]],
            }
            for k, line in enumerate(self.lines)
        ]


def ladder(
    series: Series, path: str, memory: str, found: list[Launches], subject: str = ""
) -> Ladder | None:
    """Of ping-pongs of one place; None with too few sizes for a line.

    subject     class of the path, whose eager limit is a likely break; `path` itself if not given
    """
    if len(found) < SHORTEST:
        return None
    if len(found) > MOST_SIZES:
        found = [found[int(k)] for k in np.linspace(0, len(found) - 1, MOST_SIZES).round()]
    sizes = nbytes(found)
    raw = np.stack([series.median(one) for one in found], axis=1)
    call = np.asarray(series.call)[..., None]
    times = np.maximum(raw - call, INSTANT)
    error = np.array([series.draws.error(one) for one in found])
    limits = [float(limit[0].nbytes) for limit in eager(series, subject or path, memory)]
    steepest = _steepest(series, subject or path, memory)
    lines = fit_lines(sizes, times[0], error, limits)
    one = Ladder(path, memory, sizes, times, error, lines, steepest)
    drawn = series.draws.scattered(times, _scatter(one), one.name)
    return replace(one, times=drawn)


def eager(series: Series, subject: str, memory: str) -> list[Launches]:
    """The series of the eager limit, of this path or of one over the same transport."""
    found = series.of("eager", subject, memory)
    return found or series.of("eager", ALIKE.get(subject, subject), memory)


def marginal(series: Series, subject: str, memory: str) -> dict[int, FloatArray]:
    """Size -> drawn seconds of a further message in a burst of one pair."""
    by_size: dict[int, list[Launches]] = {}
    for one in series.of("burst", subject, memory):
        if one[0].p == 2:
            by_size.setdefault(one[0].nbytes, []).append(one)
    found = {}
    for size, bursts in by_size.items():
        bursts.sort(key=lambda one: params(one, "messages"))
        further = params(bursts[-1], "messages") - params(bursts[0], "messages")
        if further > 0:
            found[size] = (series.median(bursts[-1]) - series.median(bursts[0])) / further
    return found


def _steepest(series: Series, subject: str, memory: str) -> float:
    """By how much a further message of a burst takes longer per byte, at most; infinite if it was
    not measured on this very class of paths."""
    busy = marginal(series, subject, memory)
    few, many = min(busy, default=0), max(busy, default=0)
    if few == many:
        return math.inf
    most = estimate((busy[many] - busy[few]) / (many - few)).high
    return most if most > 0.0 else math.inf


def _scatter(one: Ladder) -> FloatArray:
    """By how much sizes of each line deviate from it beyond their own errors, relative.

    It moves whatever the lines say, however often each size was sampled.
    """
    parts = []
    for line in one.lines:
        off, count = one.residuals()[line.span], line.last - line.first
        own = ROBUST * float(np.median(np.abs(off))) * (count / max(count - FREE, 1)) ** 0.5
        known = float(np.median(one.spread[line.span]))
        parts.append(np.full(count, max(own**2 - known**2, 0.0) ** 0.5))
    return np.concatenate(parts)


def parameters(one: Ladder, floor: FloatArray | float = 0.0) -> tuple[FloatArray, FloatArray]:
    """Drawn alpha and beta of its lines, shape (1 + RESAMPLES, lines); alpha at least `floor`."""
    return refit(one.lines, one.sizes, one.times, floor)


def busy(one: Ladder, slopes: FloatArray) -> FloatArray:
    """What of drawn slopes keeps a port busy, s per byte; the rest is lag. Shapes as they are."""
    found: FloatArray = np.minimum(slopes, np.maximum(slopes[:, -1:], one.steepest))
    return found


def drawn_at(one: Ladder, sizes: FloatArray) -> FloatArray:
    """Drawn seconds that its lines say for other sizes, shape (1 + RESAMPLES, sizes)."""
    alpha, beta = parameters(one)
    first = [one.sizes[line.first] for line in one.lines[1:]]
    line = np.searchsorted(first, sizes, side="right")
    return alpha[:, line] + beta[:, line] * sizes
