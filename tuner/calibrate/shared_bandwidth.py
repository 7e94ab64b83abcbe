"""Fit the capacities of shared resources: a node's NIC, an uplink, a memory bus.

k pairs that send at once through a resource of C bytes per second take k / C seconds per byte each,
once that is more than one pair takes alone.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.calibrate.bootstrap import MIN_TIME_S, interval_estimate
from tuner.calibrate.latency_curve import LatencyCurve, resampled_parameters
from tuner.calibrate.series_index import LaunchSeries, SeriesIndex, param
from tuner.core.calibration import Estimate
from tuner.topology import MEMORY_BUS, NETWORK, NODE, NODE_OVERSUBSCRIBED

NIC, UPLINK = "nic", "uplink"
SHARED_RESOURCES = (NIC, UPLINK, MEMORY_BUS)
PATH_CLASS_OF_RESOURCE = {NIC: NETWORK, UPLINK: NETWORK, MEMORY_BUS: NODE}  # of one pair alone
# A smaller slowdown by concurrent pairs says nothing about a capacity.
MIN_CONTENTION_SLOWDOWN = 1.1
# 10 TB/s: a line through noisy times may be flatter than any memory.
MIN_SECONDS_PER_BYTE = 1e-13
MIN_FLOW_FRACTION = 0.5  # a message is long if at least this part of its time depends on its bytes

ConcurrentPairs = dict[int, list[LaunchSeries]]  # pairs at the same time -> their points


def fit_capacities(
    series: SeriesIndex, curves: dict[str, LatencyCurve]
) -> tuple[dict[str, Estimate], list[str], dict[str, list[dict[str, float]]]]:
    """Return the capacities in bytes per second, sentences about unknown ones, and provenance.

    Only resources that were saturated have a capacity. The provenance is the total rate of the
    pairs.

    curves  path class -> latency curve of one pair
    """
    found: dict[str, Estimate] = {}
    gaps: list[str] = []
    moved: dict[str, list[dict[str, float]]] = {}
    for name, subject, kind in _shared_resources(series):
        crowds = _find_concurrent_pairs(series, subject, kind)
        curve = curves.get(PATH_CLASS_OF_RESOURCE[subject])
        if not crowds or curve is None:
            if subject == MEMORY_BUS or curve is not None:
                gaps.append(f"capacity {name}: no pairs communicated at the same time")
            continue
        each = {k: _seconds_per_byte(series, crowds[k], curve) for k in sorted(crowds)}
        lone = each.get(1, np.maximum(resampled_parameters(curve)[1][:, -1], MIN_SECONDS_PER_BYTE))
        moved[name] = [
            {"pairs": k, "bytes_per_second": float(k / beta[0])} for k, beta in each.items()
        ]
        most = max(each)
        if most < 2 or interval_estimate(each[most] / lone).low < MIN_CONTENTION_SLOWDOWN:
            gaps.append(
                _lower_bound_note(
                    name, most, interval_estimate(np.maximum(most / each[most], 1 / lone))
                )
            )
        else:
            found[name] = interval_estimate(np.maximum(most / each[most], 1 / lone))
    return found, gaps, moved


def _lower_bound_note(name: str, most: int, capacity: Estimate) -> str:
    return (
        f"capacity {name}: {most} pairs did not slow one another down, so it is at least"
        f" {capacity.value:.3g} B/s"
    )


def _shared_resources(series: SeriesIndex) -> list[tuple[str, str, int]]:
    """Return name, subject and number of each kind: a network may have several kinds of uplinks."""
    kinds = {param(one, "of") for one in series.find("pairs", UPLINK)} - {0}
    further = [(f"{UPLINK} {kind + 1}", UPLINK, kind) for kind in sorted(kinds)]
    return [*((name, name, 0) for name in SHARED_RESOURCES), *further]


def _find_concurrent_pairs(series: SeriesIndex, name: str, kind: int) -> ConcurrentPairs:
    """Return the points of concurrent pairs through a resource, by the number of pairs.

    The memory bus may use ping-pongs of many pairs instead: of pairs with cores of their own if
    there are any, else of oversubscribed ones.
    """
    found = _group_by_pairs([one for one in series.find("pairs", name) if param(one, "of") == kind])
    if found or name != MEMORY_BUS:
        return found
    for subject in (NODE, NODE_OVERSUBSCRIBED):
        crowds = {
            k: c for k, c in _group_by_pairs(series.find("pingpong", subject)).items() if k > 1
        }
        if crowds:
            return crowds
    return {}


def _group_by_pairs(found: list[LaunchSeries]) -> ConcurrentPairs:
    crowds: ConcurrentPairs = defaultdict(list)
    for one in found:
        crowds[one[0].p // 2].append(one)
    return dict(crowds)


def _seconds_per_byte(
    series: SeriesIndex, points: list[LaunchSeries], curve: LatencyCurve
) -> FloatArray:
    """Return the resampled seconds per byte of each pair, without the alpha of a single pair.

    It is the median over the sizes whose time mostly depends on their bytes; without any, that of
    the largest size.
    """
    alpha, _ = resampled_parameters(curve)
    long = [one for one in points if _is_long(curve, one[0].nbytes)] or points[-1:]
    flows = [
        np.maximum(series.median(one) - np.asarray(series.call_overhead) - alpha[:, -1], MIN_TIME_S)
        / max(one[0].nbytes, 1)
        for one in long
    ]
    beta: FloatArray = np.maximum(np.median(flows, axis=0), MIN_SECONDS_PER_BYTE)
    return beta


def _is_long(curve: LatencyCurve, nbytes: int) -> bool:
    line = curve.lines[-1]
    return nbytes >= curve.sizes[
        line.first
    ] and line.beta * nbytes > MIN_FLOW_FRACTION * line.seconds(nbytes)
