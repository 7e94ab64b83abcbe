"""Capacities of what pairs share: a node's NIC, an uplink, a memory bus.

k pairs that send at once through something that moves C bytes per second take k / C seconds per
byte each, once that is more than one pair takes alone.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.calibrate.bootstrap import INSTANT, estimate
from tuner.calibrate.latency_curve import Ladder, parameters
from tuner.calibrate.series_index import Launches, Series, params
from tuner.core.calibration import Estimate
from tuner.topology import MEMORY_BUS, NETWORK, NODE, NODE_OVERSUBSCRIBED

NIC, UPLINK = "nic", "uplink"
SHARED = (NIC, UPLINK, MEMORY_BUS)
CLASS = {NIC: NETWORK, UPLINK: NETWORK, MEMORY_BUS: NODE}  # of one pair alone
CONTENTION = 1.1  # a smaller slowdown by concurrent pairs says nothing about a capacity
FASTEST = 1e-13  # s per byte, 10 TB/s; a line through noisy times may be flatter than any memory
LONG = 0.5  # a message is long when at least this part of its time is the flow of its bytes

Crowds = dict[int, list[Launches]]  # pairs at the same time -> their points


def capacities(
    series: Series, alone: dict[str, Ladder]
) -> tuple[dict[str, Estimate], list[str], dict[str, list[dict[str, float]]]]:
    """Bytes per second of every shared thing that is full, sentences about the others, and for
    provenance what the pairs moved together.

    alone   path class -> ladder of one pair
    """
    found: dict[str, Estimate] = {}
    gaps: list[str] = []
    moved: dict[str, list[dict[str, float]]] = {}
    for name, subject, kind in _things(series):
        crowds = _crowds(series, subject, kind)
        ladder = alone.get(CLASS[subject])
        if not crowds or ladder is None:
            if subject == MEMORY_BUS or ladder is not None:
                gaps.append(f"capacity {name}: no pairs communicated at the same time")
            continue
        each = {k: _seconds_per_byte(series, crowds[k], ladder) for k in sorted(crowds)}
        lone = each.get(1, np.maximum(parameters(ladder)[1][:, -1], FASTEST))
        moved[name] = [
            {"pairs": k, "bytes_per_second": float(k / beta[0])} for k, beta in each.items()
        ]
        most = max(each)
        if most < 2 or estimate(each[most] / lone).low < CONTENTION:
            gaps.append(_free(name, most, estimate(np.maximum(most / each[most], 1 / lone))))
        else:
            found[name] = estimate(np.maximum(most / each[most], 1 / lone))
    return found, gaps, moved


def _free(name: str, most: int, capacity: Estimate) -> str:
    return (
        f"capacity {name}: {most} pairs did not slow one another down, so it is at least"
        f" {capacity.value:.3g} B/s"
    )


def _things(series: Series) -> list[tuple[str, str, int]]:
    """Name, subject and number of its kind: a network may have several kinds of uplinks."""
    kinds = {params(one, "of") for one in series.of("pairs", UPLINK)} - {0}
    further = [(f"{UPLINK} {kind + 1}", UPLINK, kind) for kind in sorted(kinds)]
    return [*((name, name, 0) for name in SHARED), *further]


def _crowds(series: Series, name: str, kind: int) -> Crowds:
    """From series of that name; for the memory bus else from ping-pongs of many pairs.

    Of those, of as many pairs as have cores of their own, else of oversubscribed ones.
    """
    found = _by_pairs([one for one in series.of("pairs", name) if params(one, "of") == kind])
    if found or name != MEMORY_BUS:
        return found
    for subject in (NODE, NODE_OVERSUBSCRIBED):
        crowds = {k: c for k, c in _by_pairs(series.of("pingpong", subject)).items() if k > 1}
        if crowds:
            return crowds
    return {}


def _by_pairs(found: list[Launches]) -> Crowds:
    crowds: Crowds = defaultdict(list)
    for one in found:
        crowds[one[0].p // 2].append(one)
    return dict(crowds)


def _seconds_per_byte(series: Series, crowd: list[Launches], alone: Ladder) -> FloatArray:
    """Drawn, of each pair: what its longest messages take beyond the alpha of a lone pair.

    The median over those sizes that are mostly flow; with none, of the largest.
    """
    alpha, _ = parameters(alone)
    long = [one for one in crowd if _is_long(alone, one[0].nbytes)] or crowd[-1:]
    flows = [
        np.maximum(series.median(one) - np.asarray(series.call) - alpha[:, -1], INSTANT)
        / max(one[0].nbytes, 1)
        for one in long
    ]
    beta: FloatArray = np.maximum(np.median(flows, axis=0), FASTEST)
    return beta


def _is_long(alone: Ladder, nbytes: int) -> bool:
    line = alone.lines[-1]
    return nbytes >= alone.sizes[line.first] and line.beta * nbytes > LONG * line.at(nbytes)
