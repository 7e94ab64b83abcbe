"""The times of one path over sizes, and the lines through them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.calibrate.bootstrap import MIN_TIME_S, interval_estimate
from tuner.calibrate.piecewise import (
    MIN_RELATIVE_ERROR,
    MIN_SIZES,
    AlphaBetaFit,
    fit_piecewise,
    refit_lines,
)
from tuner.calibrate.series_index import LaunchSeries, SeriesIndex, message_sizes, param
from tuner.topology import CROSS_SOCKET, NODE, NODE_OVERSUBSCRIBED

MAX_SIZES = 64  # of a ladder, evenly over all; finding breaks takes the fourth power of time
MAX_OUTLIER_WEIGHT = 0.05  # a size with less than this of its weight is called an outlier
MAD_TO_SD = 1.4826  # median absolute deviation to standard deviation, for a normal distribution
N_ALPHA_BETA = 2  # numbers of a line that its own sizes decide: alpha and beta
# The same transport: what is known of the one holds for the other if that was not measured itself.
SAME_TRANSPORT = {NODE_OVERSUBSCRIBED: NODE, CROSS_SOCKET: NODE}


@dataclass(frozen=True)
class LatencyCurve:
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
    relative_errors: FloatArray
    lines: tuple[AlphaBetaFit, ...]
    max_port_time_per_byte: float = math.inf

    @property
    def name(self) -> str:
        """As sentences call it."""
        return self.path if self.memory == "host" else f"{self.path} ({self.memory})"

    def fitted_times(self) -> FloatArray:
        """What the lines say, shape (n,)."""
        return np.concatenate(
            [line.alpha + line.beta * self.sizes[line.index_slice] for line in self.lines]
        )

    def relative_residuals(self) -> FloatArray:
        """Relative deviation of each measured time from its line, shape (n,)."""
        off: FloatArray = self.times[0] / self.fitted_times() - 1
        return off

    def outlier_sizes(self) -> list[int]:
        """Sizes that lie so far off that they hardly count."""
        return [
            int(size)
            for line in self.lines
            for size, weight, error in zip(
                self.sizes[line.index_slice],
                line.weights,
                self.relative_errors[line.index_slice],
                strict=True,
            )
            if weight * max(error, MIN_RELATIVE_ERROR) ** 2 < MAX_OUTLIER_WEIGHT
        ]

    def goodness_of_fit(self, begins: Sequence[float]) -> list[dict[str, Any]]:
        """How well each line describes its sizes, as provenance keeps it; the last has no end."""
        off, bounds = np.abs(self.relative_residuals()), [0.0, *begins, None]
        return [
            {
                "path": self.path,
                "memory": self.memory,
                "from": bounds[k],
                "to": bounds[k + 1],
                "sizes": line.last - line.first,
                "median_residual": float(np.median(off[line.index_slice])),
                "worst_residual": float(off[line.index_slice].max()),
                "outliers": [n for n in self.outlier_sizes() if n in self.sizes[line.index_slice]],
            }
            for k, line in enumerate(self.lines)
        ]


def fit_latency_curve(
    series: SeriesIndex, path: str, memory: str, points: list[LaunchSeries], subject: str = ""
) -> LatencyCurve | None:
    """Of ping-pongs of one place; None with too few sizes for a line.

    subject     class of the path, whose eager limit is a likely break; `path` itself if not given
    """
    if len(points) < MIN_SIZES:
        return None
    if len(points) > MAX_SIZES:
        points = [points[int(k)] for k in np.linspace(0, len(points) - 1, MAX_SIZES).round()]
    sizes = message_sizes(points)
    raw = np.stack([series.median(one) for one in points], axis=1)
    call = np.asarray(series.call_overhead)[..., None]
    times = np.maximum(raw - call, MIN_TIME_S)
    error = np.array([series.bootstrap.relative_standard_error(one) for one in points])
    limits = [
        float(limit[0].nbytes) for limit in eager_limit_series(series, subject or path, memory)
    ]
    steepest = _max_port_time_per_byte(series, subject or path, memory)
    lines = fit_piecewise(sizes, times[0], error, limits)
    one = LatencyCurve(path, memory, sizes, times, error, lines, steepest)
    drawn = series.bootstrap.add_noise(times, _excess_scatter(one), one.name)
    return replace(one, times=drawn)


def eager_limit_series(series: SeriesIndex, subject: str, memory: str) -> list[LaunchSeries]:
    """The series of the eager limit, of this path or of one over the same transport."""
    found = series.find("eager", subject, memory)
    return found or series.find("eager", SAME_TRANSPORT.get(subject, subject), memory)


def marginal_times(series: SeriesIndex, subject: str, memory: str) -> dict[int, FloatArray]:
    """Size -> drawn seconds of a further message in a burst of one pair."""
    by_size: dict[int, list[LaunchSeries]] = {}
    for one in series.find("burst", subject, memory):
        if one[0].p == 2:
            by_size.setdefault(one[0].nbytes, []).append(one)
    found = {}
    for size, bursts in by_size.items():
        bursts.sort(key=lambda one: param(one, "messages"))
        further = param(bursts[-1], "messages") - param(bursts[0], "messages")
        if further > 0:
            found[size] = (series.median(bursts[-1]) - series.median(bursts[0])) / further
    return found


def _max_port_time_per_byte(series: SeriesIndex, subject: str, memory: str) -> float:
    """By how much a further message of a burst takes longer per byte, at most; infinite if it was
    not measured on this very class of paths."""
    busy = marginal_times(series, subject, memory)
    few, many = min(busy, default=0), max(busy, default=0)
    if few == many:
        return math.inf
    most = interval_estimate((busy[many] - busy[few]) / (many - few)).high
    return most if most > 0.0 else math.inf


def _excess_scatter(curve: LatencyCurve) -> FloatArray:
    """By how much sizes of each line deviate from it beyond their own errors, relative.

    It moves whatever the lines say, however often each size was sampled.
    """
    parts = []
    for line in curve.lines:
        off, count = curve.relative_residuals()[line.index_slice], line.last - line.first
        own = (
            MAD_TO_SD
            * float(np.median(np.abs(off)))
            * (count / max(count - N_ALPHA_BETA, 1)) ** 0.5
        )
        known = float(np.median(curve.relative_errors[line.index_slice]))
        parts.append(np.full(count, max(own**2 - known**2, 0.0) ** 0.5))
    return np.concatenate(parts)


def resampled_parameters(
    curve: LatencyCurve, min_alpha: FloatArray | float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """Drawn alpha and beta of its lines, shape (1 + RESAMPLES, lines); alpha at least `floor`."""
    return refit_lines(curve.lines, curve.sizes, curve.times, min_alpha)


def port_occupancy(curve: LatencyCurve, slopes: FloatArray) -> FloatArray:
    """What of drawn slopes keeps a port busy, s per byte; the rest is lag. Shapes as they are."""
    found: FloatArray = np.minimum(slopes, np.maximum(slopes[:, -1:], curve.max_port_time_per_byte))
    return found


def predict_resampled(curve: LatencyCurve, sizes: FloatArray) -> FloatArray:
    """Drawn seconds that its lines say for other sizes, shape (1 + RESAMPLES, sizes)."""
    alpha, beta = resampled_parameters(curve)
    first = [curve.sizes[line.first] for line in curve.lines[1:]]
    line = np.searchsorted(first, sizes, side="right")
    return alpha[:, line] + beta[:, line] * sizes
