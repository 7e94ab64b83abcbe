"""Fit paths between nodes: one cost for the path class, and one for each measured distance.

The cost of the class leaves the latency of links to the topology, so it serves any distance. A
distance that was measured end to end is stored under the simulator's own name for it, and takes
precedence there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.calibrate.bootstrap import MIN_TIME_S, interval_estimate
from tuner.calibrate.host_distances import HostDistance, HostDistances
from tuner.calibrate.latency_curve import (
    LatencyCurve,
    fit_latency_curve,
    port_occupancy,
    predict_resampled,
    resampled_parameters,
)
from tuner.calibrate.point_to_point import PathFit, fit_path
from tuner.calibrate.series_index import LaunchSeries, SeriesIndex, param
from tuner.calibrate.shared_bandwidth import MIN_SECONDS_PER_BYTE, UPLINK
from tuner.topology import NETWORK

# Sizes needed to find protocols; fewer only show what another distance adds.
MIN_SIZES_FOR_BREAKS = 8

CostShift = tuple[
    FloatArray, FloatArray
]  # resampled seconds, and seconds per byte, beyond those of the reference


def fit_internode_paths(
    series: SeriesIndex, memory: str, distances: HostDistances | None
) -> tuple[dict[str, PathFit], list[str]]:
    """Return the path fits by name, and sentences about distances that remain unknown.

    Without a topology there is only the class, with the latency of the links in its cost. The class
    is fitted to the nearest pair. Raises InputError when hosts are not on the topology.
    """
    places: dict[tuple[int, int], list[LaunchSeries]] = defaultdict(list)
    for one in series.find("pingpong", NETWORK, memory):
        if one[0].p == 2:
            places[param(one, "first", 0), param(one, "second", 1)].append(one)
    if not places:
        return {}, []
    if distances is None:
        whole = fit_latency_curve(series, NETWORK, memory, next(iter(places.values())))
        return ({NETWORK: fit_path(series, whole, NETWORK)} if whole else {}), []
    pairs: dict[HostDistance, list[LaunchSeries]] = {}
    for place, found in places.items():
        pairs.setdefault(distances.between(*place, memory), found)
    reference = min(pairs, key=lambda way: (way.latency, way.name))
    near = fit_latency_curve(series, NETWORK, memory, pairs.pop(reference))
    if near is None:
        return {}, []
    prices = {NETWORK: fit_path(series, near, NETWORK, reference.latency)}
    apart = [one for one in series.find("pairs", UPLINK, memory) if one[0].p == 2]
    if apart and distances.farthest(memory) != reference:
        pairs.setdefault(distances.farthest(memory), apart)
    others, gaps = _fit_other_distances(series, distances, near, reference, pairs)
    if others:  # the nearest distance was measured end to end as well
        prices[reference.name] = fit_path(series, replace(near, path=reference.name), NETWORK)
    return prices | others, [*gaps, *_bandwidth_warnings(prices[NETWORK], reference)]


def _bandwidth_warnings(path_fit: PathFit, distance: HostDistance) -> list[str]:
    """Return a warning if messages were faster than the links of the topology.

    The simulator never goes faster than the links.
    """
    beta = path_fit.cost.segments[-1].beta
    if beta.high * distance.bandwidth >= 1.0:
        return []
    return [
        f"{NETWORK}: messages moved {1 / max(beta.value, MIN_SECONDS_PER_BYTE):.4g} B/s"
        f" where the topology's links move {distance.bandwidth:.4g} B/s: correct the topology"
    ]


def _fit_other_distances(
    series: SeriesIndex,
    distances: HostDistances,
    near: LatencyCurve,
    reference: HostDistance,
    pairs: dict[HostDistance, list[LaunchSeries]],
) -> tuple[dict[str, PathFit], list[str]]:
    """Fit the distances beyond the nearest; return them, and sentences about unknown ones."""
    prices: dict[str, PathFit] = {}
    gaps: list[str] = []
    swept = _all_pairs_times(series, distances, near.memory)
    for way in [*pairs, *(way for way in swept if way not in pairs and way != reference)]:
        points = pairs.get(way, [])
        if len(points) >= MIN_SIZES_FOR_BREAKS and (
            own := fit_latency_curve(series, way.name, near.memory, points, NETWORK)
        ):
            prices[way.name] = fit_path(series, own, NETWORK)
            continue
        here, there = _times_by_size(series, pairs, swept, way), swept.get(reference)
        shift = _fit_shift(here, there or _predicted_times(near, list(here)))
        if shift is None:
            gaps.append(f"{way.name}: too few sizes; priced as {NETWORK} and the links' latency")
        else:
            prices[way.name] = _shifted_fit(series, near, way.name, shift)
    return prices, gaps


def _all_pairs_times(
    series: SeriesIndex, distances: HostDistances, memory: str
) -> dict[HostDistance, dict[int, FloatArray]]:
    """Return distance -> size -> resampled seconds, the median over its pairs."""
    times: dict[HostDistance, dict[int, list[FloatArray]]] = defaultdict(lambda: defaultdict(list))
    for one in series.find("sweep", NETWORK, memory):
        way = distances.between(param(one, "first"), param(one, "second"), memory)
        times[way][one[0].nbytes].append(series.median(one))
    return {
        way: {size: np.median(drawn, axis=0) for size, drawn in sorted(sizes.items())}
        for way, sizes in times.items()
    }


def _times_by_size(
    series: SeriesIndex,
    pairs: dict[HostDistance, list[LaunchSeries]],
    all_pairs_times: dict[HostDistance, dict[int, FloatArray]],
    distance: HostDistance,
) -> dict[int, FloatArray]:
    if distance not in pairs:
        return all_pairs_times[distance]
    return {one[0].nbytes: series.median(one) for one in pairs[distance]}


def _predicted_times(near: LatencyCurve, sizes: Sequence[int]) -> dict[int, FloatArray]:
    """Return the times of a curve's lines at other sizes."""
    drawn = predict_resampled(near, np.array(sizes, dtype=float))
    return {nbytes: drawn[:, k] for k, nbytes in enumerate(sizes)}


def _fit_shift(here: dict[int, FloatArray], there: dict[int, FloatArray]) -> CostShift | None:
    """Fit a line to the differences at the common sizes, with relative weights."""
    both = sorted(set(here) & set(there))
    if len(both) < 2:
        return None
    sizes = np.array(both, dtype=float)
    apart = np.stack([here[n] - there[n] for n in both], axis=1)
    weight = np.stack([here[n] for n in both], axis=1) ** -2
    weight /= weight.sum(axis=1, keepdims=True)
    centre, middle = weight @ sizes, np.sum(weight * apart, axis=1)
    off = sizes - centre[:, None]
    slope = np.sum(weight * off * apart, axis=1) / np.sum(weight * off**2, axis=1)
    return middle - slope * centre, slope


def _shifted_fit(series: SeriesIndex, near: LatencyCurve, name: str, shift: CostShift) -> PathFit:
    """Return the cost of the nearest pair with additional latency and time per byte."""
    alpha, beta = resampled_parameters(near)
    base, flows = fit_path(series, near, NETWORK), port_occupancy(near, beta)
    overhead = base.cost.overhead.value
    segments = tuple(
        replace(
            segment,
            alpha=interval_estimate(np.maximum(alpha[:, k] - overhead + shift[0], 0.0)),
            beta=interval_estimate(np.maximum(flows[:, k] + shift[1], 0.0)),
        )
        for k, segment in enumerate(base.cost.segments)
    )
    more = shift[0][:, None] + shift[1][:, None] * near.sizes
    moved = replace(near, path=name, times=np.maximum(near.times + more, MIN_TIME_S))
    lines = tuple(
        replace(line, alpha=s.alpha.value + overhead, beta=s.beta.value + s.latency_per_byte.value)
        for line, s in zip(near.lines, segments, strict=True)
    )
    cost = replace(base.cost, segments=segments)
    source = {**base.sources, "line": "the nearest pair's, moved by what other sizes show"}
    return PathFit(replace(moved, lines=lines), cost, 0.0, (), source, is_shifted=True)
