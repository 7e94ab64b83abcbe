"""Fit the cost of messages: piecewise alpha and beta, eager limit and overhead of a path."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.calibrate.bootstrap import MIN_TIME_S, interval_estimate
from tuner.calibrate.latency_curve import (
    SAME_TRANSPORT,
    LatencyCurve,
    eager_limit_series,
    port_occupancy,
    predict_resampled,
    resampled_parameters,
)
from tuner.calibrate.piecewise import break_points
from tuner.calibrate.series_index import LaunchSeries, SeriesIndex, param
from tuner.core.calibration import CostSegment, PathCost

# Of a message's time; a late receiver that gets it faster did not wait for it.
MAX_EARLY_TIME_RATIO = 0.5
# Half of the receiver's delay in a probe: a sender that took less did not wait.
MIN_BLOCKED_S = 1e-3


@dataclass(frozen=True)
class PathFit:
    """A path with its fitted cost.

    link_latency    seconds of links on the path that the cost leaves to the topology
    undetermined    sentences about what the series do not determine
    sources         where eager limit and overhead come from
    is_shifted      whether it is not fitted to times of its own, but is the cost of another path
                    plus the difference between the two
    """

    latency_curve: LatencyCurve
    cost: PathCost
    link_latency: float = 0.0
    undetermined: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)
    is_shifted: bool = False


def fit_path(
    series: SeriesIndex, curve: LatencyCurve, subject: str, link_latency: float = 0.0
) -> PathFit:
    """Fit the cost of a path.

    subject         path class whose message trains and eager limit apply
    link_latency    seconds to subtract because the simulator adds those of the links
    """
    limit, known = _find_eager_limit(series, subject, curve)
    beta = resampled_parameters(curve)[1][:, -1]
    overhead, source = _fit_overhead(series, subject, curve, beta)
    overhead = np.clip(curve.times.min(axis=1) - link_latency, 0.0, overhead)
    floor = overhead + link_latency
    alpha, slopes = resampled_parameters(curve, floor)
    flows = port_occupancy(curve, slopes)
    begins = break_points(curve.lines, curve.sizes, [limit])
    bounds = [0.0, *begins, math.inf]
    segments = tuple(
        CostSegment(
            bounds[k],
            bounds[k + 1],
            interval_estimate(np.maximum(alpha[:, k] - floor, 0.0)),
            interval_estimate(flows[:, k]),
            latency_per_byte=interval_estimate(slopes[:, k] - flows[:, k]),
        )
        for k in range(len(curve.lines))
    )
    ahead = _find_early_push_limit(series, subject, curve)
    cost = PathCost(segments, limit, interval_estimate(overhead), early_push_limit=ahead)
    gaps = tuple(_undetermined_parameters(series, curve, subject, cost, link_latency))
    return PathFit(curve, cost, link_latency, gaps, {"eager_limit": known, "overhead": source})


def _undetermined_parameters(
    series: SeriesIndex, curve: LatencyCurve, subject: str, cost: PathCost, link_latency: float
) -> Iterator[str]:
    for s in cost.segments:
        if s.beta.value == 0.0:
            sizes = f"[{s.start_bytes:.0f}, {s.stop_bytes:.0f}) B"
            yield f"{curve.name}: beta of {sizes}, below resolution"
    if not _message_trains(series, subject, curve.memory):
        yield f"{curve.name}: overhead, no bursts of two lengths were measured"
    elif cost.overhead.value == 0.0:
        yield f"{curve.name}: overhead, no message of a burst took longer than its bytes"
    if not eager_limit_series(series, subject, curve.memory):
        yield f"{curve.name}: eager limit, it was not looked for"
    if link_latency > curve.times[0].min():
        yield (
            f"{curve.name}: alpha, the links of the topology have more latency than the whole"
            f" message took ({link_latency:.3g} s, {curve.times[0].min():.3g} s): correct the"
            " topology"
        )


def _find_eager_limit(series: SeriesIndex, subject: str, curve: LatencyCurve) -> tuple[float, str]:
    """Return the eager limit in bytes, and how it is known."""
    found = eager_limit_series(series, subject, curve.memory)
    if not found:
        return 0.0, "not measured: every sender waits for its receiver"
    size = found[0][0].nbytes
    if float(np.median(found[0][0].samples)) < MIN_BLOCKED_S:
        return float(size), f"no sender waited for its receiver up to {size} B, the largest tried"
    return float(size), f"measured: from {size} B on a sender waits for its receiver"


def _find_early_push_limit(series: SeriesIndex, subject: str, curve: LatencyCurve) -> float:
    """Return the bytes below which a message is sent before it is asked for, infinite if all are.

    A receiver that asks late then has it in less than half the time that it takes.
    """
    ahead, waits = 0.0, math.inf
    for one in series.find("ahead", subject, curve.memory):
        nbytes = float(one[0].nbytes)
        message = float(predict_resampled(curve, np.array([nbytes]))[0, 0])
        if float(series.median(one)[0]) < MAX_EARLY_TIME_RATIO * message:
            ahead = max(ahead, nbytes)
        else:
            waits = min(waits, nbytes)
    if ahead == 0.0 or ahead > waits:
        return 0.0
    return math.sqrt(ahead * waits)


def _message_trains(series: SeriesIndex, subject: str, memory: str) -> list[LaunchSeries]:
    """Return trains of the smallest messages between the fewest ranks, from short to long trains.

    The result is empty if there is only one.
    """
    found = series.find("burst", subject, memory)
    found = found or series.find("burst", SAME_TRANSPORT.get(subject, subject), memory)
    if not found:
        return []
    p = min(one[0].p for one in found)
    same = [one for one in found if one[0].p == p]
    smallest = [one for one in same if one[0].nbytes == same[0][0].nbytes]
    ordered = sorted(smallest, key=lambda one: param(one, "messages"))
    return ordered if len(ordered) > 1 else []


def _fit_overhead(
    series: SeriesIndex, subject: str, curve: LatencyCurve, beta: FloatArray
) -> tuple[FloatArray, str]:
    """Return the resampled overhead of a message in seconds, and its source.

    It is the time that a port is busy per further message of a train, beyond the time of its bytes.

    beta    of long messages: that of short ones contains the overhead

    Without trains, it is the time that the sender takes to hand over a message, if that was
    measured.
    """
    bursts = _message_trains(series, subject, curve.memory)
    if bursts:
        few, many = bursts[0], bursts[-1]
        further = param(many, "messages") - param(few, "messages")
        each = (series.median(many) - series.median(few)) / further
        return np.maximum(each - beta * few[0].nbytes, 0.0), "bursts"
    handed = series.find("overhead", subject, curve.memory)
    if handed:
        return np.maximum(series.median(handed[0]), MIN_TIME_S), "the sender alone"
    return np.zeros_like(beta), "not measured"
