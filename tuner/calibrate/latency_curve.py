"""The times of one path over message size, and the lines fitted to them."""

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

MAX_SIZES = 64  # of a curve, evenly spaced; the search for breaks takes O(n**4) time
MAX_OUTLIER_WEIGHT = 0.05  # a size below this fraction of its full weight is an outlier
MAD_TO_SD = 1.4826  # median absolute deviation to standard deviation, for a normal distribution
N_ALPHA_BETA = 2  # parameters of a line that its own sizes decide: alpha and beta
# Path class -> one over the same transport, whose values hold where it was not measured itself.
SAME_TRANSPORT = {NODE_OVERSUBSCRIBED: NODE, CROSS_SOCKET: NODE}


@dataclass(frozen=True)
class LatencyCurve:
    """One-way times between two ranks without other traffic.

    path, memory    path class, and the memory that the buffers are in
    sizes           bytes, ascending, shape (n,)
    times           resampled seconds, shape (1 + RESAMPLES, n), without the interpreter's call
    relative_errors relative standard error of each time, shape (n,)
    lines           the lines fitted to the times
    max_port_time_per_byte  most seconds per byte that a port is busy, as message trains show
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
        return self.path if self.memory == "host" else f"{self.path} ({self.memory})"

    def fitted_times(self) -> FloatArray:
        """Return the times of the fitted lines, shape (n,)."""
        return np.concatenate(
            [line.alpha + line.beta * self.sizes[line.index_slice] for line in self.lines]
        )

    def relative_residuals(self) -> FloatArray:
        """Return the relative deviation of each measured time from its line, shape (n,)."""
        off: FloatArray = self.times[0] / self.fitted_times() - 1
        return off

    def outlier_sizes(self) -> list[int]:
        """Return the sizes that lie so far off that they hardly count."""
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
        """Return how well each line describes its sizes, as provenance; the last has no end."""
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
    """Fit the curve of ping-pongs of one pair; return None with too few sizes for a line.

    subject     path class whose eager limit is a likely break; default: `path`
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
    """Return the series of the eager limit, of this path or of one over the same transport."""
    found = series.find("eager", subject, memory)
    return found or series.find("eager", SAME_TRANSPORT.get(subject, subject), memory)


def marginal_times(series: SeriesIndex, subject: str, memory: str) -> dict[int, FloatArray]:
    """Return size -> resampled seconds of a further message in a message train of one pair."""
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
    """Return the most that a further message of a train takes longer per byte, in seconds.

    It is infinite if this was not measured on this very path class.
    """
    busy = marginal_times(series, subject, memory)
    few, many = min(busy, default=0), max(busy, default=0)
    if few == many:
        return math.inf
    most = interval_estimate((busy[many] - busy[few]) / (many - few)).high
    return most if most > 0.0 else math.inf


def _excess_scatter(curve: LatencyCurve) -> FloatArray:
    """Return the relative deviation of sizes from each line beyond their own errors.

    It does not shrink when sizes are sampled more often.
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
    """Return resampled alpha and beta of its lines, shape (1 + RESAMPLES, lines).

    min_alpha   lower bound of alpha in seconds
    """
    return refit_lines(curve.lines, curve.sizes, curve.times, min_alpha)


def port_occupancy(curve: LatencyCurve, slopes: FloatArray) -> FloatArray:
    """Return the part of resampled slopes that keeps a port busy, s per byte; the rest is lag."""
    found: FloatArray = np.minimum(slopes, np.maximum(slopes[:, -1:], curve.max_port_time_per_byte))
    return found


def predict_resampled(curve: LatencyCurve, sizes: FloatArray) -> FloatArray:
    """Return the resampled seconds of the lines at other sizes, shape (1 + RESAMPLES, sizes)."""
    alpha, beta = resampled_parameters(curve)
    first = [curve.sizes[line.first] for line in curve.lines[1:]]
    line = np.searchsorted(first, sizes, side="right")
    return alpha[:, line] + beta[:, line] * sizes
