"""Fit straight lines to reductions, copies and calls of devices, each to its own series."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.calibrate.bootstrap import MIN_TIME_S, interval_estimate
from tuner.calibrate.piecewise import MIN_SIZES, fit_alpha_beta
from tuner.calibrate.series_index import LaunchSeries, SeriesIndex, message_sizes
from tuner.core.calibration import CostSegment, Estimate, PathCost, ReductionCost

# Operators that represent all others, as most programs use them.
REPRESENTATIVE_OPERATORS = ("sum_float32", "sum_float64")
STAGING_COPIES = ("h2d_pinned", "d2h_pinned")  # through pinned buffers, as libraries stage
COPY_PATH_CLASSES = {"d2d": "self"}  # subject -> path class of a copy on one device


@dataclass(frozen=True)
class DeviceCosts:
    """The costs beside those of messages.

    copy_rates      for provenance: seconds and bytes per second of every copy
    undetermined    sentences about what is not determined
    """

    reduction: dict[str, ReductionCost]
    paths: dict[tuple[str, str], PathCost]
    pointer_query_seconds: float
    undetermined: list[str] = field(default_factory=list)
    copy_rates: dict[str, dict[str, float]] = field(default_factory=dict)


def fit_device_costs(series: SeriesIndex) -> DeviceCosts:
    """Fit the costs of reductions, and of device memory except messages."""
    gaps: list[str] = []
    reduction = _fit_reductions(series, "host") | _fit_reductions(series, "cuda")
    if "host" not in reduction:
        gaps.append("reduction (host): no empty call and several other sizes were measured")
    copies = {
        subject: line
        for subject in series.subjects("copy", "cuda")
        if (line := _fit_copy(series, subject)) is not None
    }
    paths = {
        (COPY_PATH_CLASSES[name], "cuda"): _alpha_beta_cost(*copies[name])
        for name in COPY_PATH_CLASSES
        if name in copies
    }
    if all(name in copies for name in STAGING_COPIES):
        alpha, beta = (
            np.mean([copies[name][part] for name in STAGING_COPIES], axis=0) for part in range(2)
        )
        paths["staging", "cuda"] = _alpha_beta_cost(alpha, beta)
    elif series.find("pingpong", "same_gpu", "cuda") or copies:
        gaps.append(f"staging (cuda): {' and '.join(STAGING_COPIES)} were not both measured")
    query = series.find("pointer", "query", "cuda") or series.find("pointer", "query")
    rates = {
        name: {"seconds": float(a[0]), "bytes_per_second": float(1 / max(b[0], 1e-15))}
        for name, (a, b) in copies.items()
    }
    seconds = float(series.median(query[0])[0]) if query else 0.0
    return DeviceCosts(reduction, paths, seconds, gaps, rates)


def _fit_reductions(series: SeriesIndex, memory: str) -> dict[str, ReductionCost]:
    """Return the usual operator under the name of the memory, the others as `memory operator`."""
    found = {
        subject: cost
        for subject in series.subjects("reduction", memory)
        if (cost := _fit_reduction(series, subject, memory)) is not None
    }
    if not found:
        return {}
    usual = next((name for name in REPRESENTATIVE_OPERATORS if name in found), next(iter(found)))
    named = {f"{memory} {name}": cost for name, cost in found.items() if name != usual}
    return {memory: found[usual], **named}


def _fit_reduction(series: SeriesIndex, subject: str, memory: str) -> ReductionCost | None:
    """Return launch and gamma of a reduction; None with too few sizes.

    On the host they are the time beyond that of an empty call; on a device launch includes the
    launch of a kernel.
    """
    points = series.find("reduction", subject, memory)
    empty = [one for one in points if one[0].nbytes == 0]
    rest = [one for one in points if one[0].nbytes > 0]
    if len(rest) < MIN_SIZES or (memory == "host" and not empty):
        return None
    nothing: FloatArray | float = series.median(empty[0]) if memory == "host" else 0.0
    launch, gamma = _fit_alpha_beta(series, rest, nothing)
    kernel = series.find("launch", "kernel", memory)
    if memory != "host" and kernel:
        launch = np.maximum(launch, series.median(kernel[0]))
    return ReductionCost(interval_estimate(launch), interval_estimate(gamma))


def _fit_copy(series: SeriesIndex, subject: str) -> tuple[FloatArray, FloatArray] | None:
    points = series.find("copy", subject, "cuda")
    return _fit_alpha_beta(series, points, 0.0) if len(points) >= MIN_SIZES else None


def _fit_alpha_beta(
    series: SeriesIndex, points: list[LaunchSeries], base: FloatArray | float
) -> tuple[FloatArray, FloatArray]:
    """Return resampled alpha and beta of the times beyond `base`."""
    raw = np.stack([series.median(one) for one in points], axis=1)
    times = np.maximum(raw - np.asarray(base)[..., None], MIN_TIME_S)
    return fit_alpha_beta(message_sizes(points), times)


def _alpha_beta_cost(alpha: FloatArray, beta: FloatArray) -> PathCost:
    whole = CostSegment(0.0, float("inf"), interval_estimate(alpha), interval_estimate(beta))
    return PathCost((whole,), 0.0, Estimate.exact(0.0))
