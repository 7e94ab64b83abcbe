"""Fit the cost of messages whose receivers send at the same time, in pairs or in a ring.

Ranks that start together exchange at once. In later exchanges they are out of step, and a message
may take twice as long as alone (decision 0015): the time of k exchanges in a row minus
that of a single one, divided by k - 1, is the time of one of them. The acknowledgement that a
sender waits for is part of it, and has a cost of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tuner.base.arrays import BoolArray, FloatArray
from tuner.calibrate.bootstrap import NORMAL_IQR
from tuner.calibrate.host_distances import HostDistances
from tuner.calibrate.latency_curve import LatencyCurve, predict_resampled
from tuner.calibrate.piecewise import MIN_SIZES, fit_piecewise
from tuner.calibrate.point_to_point import PathFit, fit_path
from tuner.calibrate.series_index import LaunchSeries, SeriesIndex, param
from tuner.calibrate.sync_send import RANKS_PER_PAIR, with_sync_threshold
from tuner.core.calibration import CostSegment, Estimate, PathCost
from tuner.topology import NETWORK, NETWORK_BIDIRECTIONAL, NETWORK_RING

RING_PARAM_OF_CLASS = {
    NETWORK_BIDIRECTIONAL: 0,
    NETWORK_RING: 1,
}  # path class -> `ring` of its exchanges


def fit_bidirectional(
    series: SeriesIndex, memory: str, uncontended: PathFit, distances: HostDistances | None
) -> tuple[dict[str, PathFit], list[str]]:
    """Return path class -> fit for concurrent messages, and sentences about what is not known.

    uncontended fit of messages between two hosts without other traffic
    distances   between hosts; where not all that communicate are near, the farthest set the pace

    No message is faster than without other traffic.
    """
    found: dict[str, PathFit] = {}
    gaps: list[str] = []
    near = _largest_param(series, memory, "near")
    for name, ring in RING_PARAM_OF_CLASS.items():
        turns = 0 if ring else _largest_param(series, memory, "turns")
        drawn = _subsequent_exchange_times(series, memory, ring=ring, turns=turns, near=near)
        if len(drawn) < MIN_SIZES:
            gaps.append(
                f"{name}: rows of exchanges of hosts at {MIN_SIZES} sizes; priced as {NETWORK}"
            )
        else:
            latency, begin = uncontended.link_latency, uncontended.cost.sync_ack_threshold
            if distances is not None and not near:
                latency = _max_link_latency(distances, ring, turns, memory)
            lone = {n: each - latency * (n >= begin) for n, each in drawn.items()}
            own = _latency_curve(name, uncontended, lone, latency - uncontended.link_latency)
            fit = fit_path(series, own, NETWORK, latency)
            if near:
                fit = _with_free_ports(fit, uncontended.cost)
            found[name] = with_sync_threshold(fit, begin)
    return found, gaps


def _with_free_ports(fit: PathFit, uncontended: PathCost) -> PathFit:
    """Return the fit with ports that are free again after the time of a message by itself.

    What messages between near hosts take longer is waiting for an answer: on a link that others
    use, too, they wait in addition to the time that sharing takes.
    """
    port = uncontended.segments[-1].beta
    return replace(
        fit,
        cost=replace(
            fit.cost,
            segments=tuple(_with_port_time(segment, port) for segment in fit.cost.segments),
        ),
    )


def _with_port_time(segment: CostSegment, port: Estimate) -> CostSegment:
    """Return the segment with ports that are busy for at most `port` seconds per byte."""
    beta, late = segment.beta, segment.latency_per_byte
    if beta.value <= port.value:
        return segment
    waiting = Estimate(
        beta.value - port.value + late.value,
        max(beta.low - port.high, 0.0) + late.low,
        beta.high - port.low + late.high,
    )
    return replace(segment, beta=port, latency_per_byte=waiting)


def _largest_param(series: SeriesIndex, memory: str, name: str) -> int:
    """Return the largest value that a parameter has in any exchange, 0 where none has it.

    `turns` is 1 where the partners alternated between exchanges, which those of older probes did
    not; `near` is 1 where all hosts were as near to one another as the nearest two;
    else all hosts took part.
    """
    found = series.find("exchange", NETWORK, memory)
    return max((param(one, name) for one in found), default=0)


def _max_link_latency(distances: HostDistances, ring: int, turns: int, memory: str) -> float:
    """Return the seconds of the links between the farthest hosts that communicate."""
    hosts = len(distances.hosts) or len(distances.topology.nodes)
    met = [(one, (one + 1) % hosts) for one in range(hosts)]
    if not ring:  # alternately, in groups of four (tuner.probe.pointtopoint.exchange_partners)
        met = [(one, one ^ 1) for one in range(hosts - hosts % 2)]
        met += [(one, one ^ 2) for one in range(turns * (hosts - hosts % 4))]
    return max(distances.between(*pair, memory).latency for pair in met)


def _subsequent_exchange_times(
    series: SeriesIndex, memory: str, **wanted: int
) -> dict[int, FloatArray]:
    """Return size -> resampled seconds of an exchange that follows another one.

    wanted  parameters of the series, 0 where they lack one
    """
    rows: dict[int, dict[int, LaunchSeries]] = {}
    for one in series.find("exchange", NETWORK, memory):
        meant = all(param(one, name) == value for name, value in wanted.items())
        if one[0].p > RANKS_PER_PAIR and meant:
            rows.setdefault(one[0].nbytes, {})[param(one, "rows", 1)] = one
    return {
        nbytes: _time_per_exchange(series, taken)
        for nbytes, taken in sorted(rows.items())
        if len(taken) > 1
    }


def _time_per_exchange(series: SeriesIndex, taken: Mapping[int, LaunchSeries]) -> FloatArray:
    few, many = min(taken), max(taken)
    return (series.midmean(taken[many]) - series.median(taken[few])) / (many - few)


def _latency_curve(
    name: str, uncontended: PathFit, resampled: Mapping[int, FloatArray], extra_latency: float
) -> LatencyCurve:
    """Return the curve of these times.

    No time is below that of `uncontended` with `extra_latency` seconds more of links.
    """
    near = uncontended.latency_curve
    sizes = np.array([float(nbytes) for nbytes in resampled])
    times = np.maximum(
        np.stack(list(resampled.values()), axis=1), predict_resampled(near, sizes) + extra_latency
    )
    spread = _relative_errors(times, sizes >= uncontended.cost.eager_limit)
    lines = fit_piecewise(sizes, times[0], spread, [uncontended.cost.eager_limit])
    return LatencyCurve(name, near.memory, sizes, times, spread, lines, near.max_port_time_per_byte)


def _relative_errors(times: FloatArray, answered: BoolArray) -> FloatArray:
    """Return the relative standard error of resampled times, from their quartiles.

    How many messages of a row wait for an answer is random, and all samples may agree by chance:
    sizes whose messages are answered all get the same error.
    """
    low, high = np.quantile(times[1:], [0.25, 0.75], axis=0)
    error: FloatArray = (high - low) / NORMAL_IQR / times[0]
    if answered.any():
        error[answered] = np.sqrt(np.mean(error[answered] ** 2))
    return error
