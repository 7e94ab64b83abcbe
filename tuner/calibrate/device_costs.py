"""Reductions, copies and calls of devices: straight lines, each from its own series."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.calibrate.bootstrap import INSTANT, estimate
from tuner.calibrate.piecewise import SHORTEST, fit_line
from tuner.calibrate.series_index import Launches, Series, nbytes
from tuner.core.calibration import Estimate, PathCost, ReductionCost, Segment

USUAL = ("sum_float32", "sum_float64")  # what stands for all operators: those of most programs
STAGING = ("h2d_pinned", "d2h_pinned")  # through pinned buffers, as libraries stage
COPIES = {"d2d": "self"}  # subject -> path class of a copy on one device


@dataclass(frozen=True)
class Devices:
    """What the series say beside messages between hosts' memories.

    rates   for provenance: seconds and bytes per second of every copy
    gaps    sentences about what is not determined
    """

    reduction: dict[str, ReductionCost]
    paths: dict[tuple[str, str], PathCost]
    pointer_query: float
    gaps: list[str] = field(default_factory=list)
    rates: dict[str, dict[str, float]] = field(default_factory=dict)


def devices(series: Series) -> Devices:
    """Everything about reductions and about device memory but messages."""
    gaps: list[str] = []
    reduction = _reductions(series, "host") | _reductions(series, "cuda")
    if "host" not in reduction:
        gaps.append("reduction (host): no empty call and several other sizes were measured")
    copies = {
        subject: line
        for subject in series.subjects("copy", "cuda")
        if (line := _copy(series, subject)) is not None
    }
    paths = {(COPIES[name], "cuda"): _path(*copies[name]) for name in COPIES if name in copies}
    if all(name in copies for name in STAGING):
        alpha, beta = (
            np.mean([copies[name][part] for name in STAGING], axis=0) for part in range(2)
        )
        paths["staging", "cuda"] = _path(alpha, beta)
    elif series.of("pingpong", "same_gpu", "cuda") or copies:
        gaps.append(f"staging (cuda): {' and '.join(STAGING)} were not both measured")
    query = series.of("pointer", "query", "cuda") or series.of("pointer", "query")
    rates = {
        name: {"seconds": float(a[0]), "bytes_per_second": float(1 / max(b[0], 1e-15))}
        for name, (a, b) in copies.items()
    }
    seconds = float(series.median(query[0])[0]) if query else 0.0
    return Devices(reduction, paths, seconds, gaps, rates)


def _reductions(series: Series, memory: str) -> dict[str, ReductionCost]:
    """The usual operator under the name of the memory, the others as `memory operator`."""
    found = {
        subject: cost
        for subject in series.subjects("reduction", memory)
        if (cost := _reduction(series, subject, memory)) is not None
    }
    if not found:
        return {}
    usual = next((name for name in USUAL if name in found), next(iter(found)))
    named = {f"{memory} {name}": cost for name, cost in found.items() if name != usual}
    return {memory: found[usual], **named}


def _reduction(series: Series, subject: str, memory: str) -> ReductionCost | None:
    """Launch and gamma: of a local call its time beyond that of an empty one, on a device the
    launch of a kernel."""
    points = series.of("reduction", subject, memory)
    empty = [one for one in points if one[0].nbytes == 0]
    rest = [one for one in points if one[0].nbytes > 0]
    if len(rest) < SHORTEST or (memory == "host" and not empty):
        return None
    nothing: FloatArray | float = series.median(empty[0]) if memory == "host" else 0.0
    launch, gamma = _line(series, rest, nothing)
    kernel = series.of("launch", "kernel", memory)
    if memory != "host" and kernel:
        launch = np.maximum(launch, series.median(kernel[0]))
    return ReductionCost(estimate(launch), estimate(gamma))


def _copy(series: Series, subject: str) -> tuple[FloatArray, FloatArray] | None:
    points = series.of("copy", subject, "cuda")
    return _line(series, points, 0.0) if len(points) >= SHORTEST else None


def _line(
    series: Series, points: list[Launches], base: FloatArray | float
) -> tuple[FloatArray, FloatArray]:
    """Drawn alpha and beta of the times beyond `base`."""
    raw = np.stack([series.median(one) for one in points], axis=1)
    times = np.maximum(raw - np.asarray(base)[..., None], INSTANT)
    return fit_line(nbytes(points), times)


def _path(alpha: FloatArray, beta: FloatArray) -> PathCost:
    whole = Segment(0.0, float("inf"), estimate(alpha), estimate(beta))
    return PathCost((whole,), 0.0, Estimate.exact(0.0))
