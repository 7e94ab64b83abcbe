"""Borrow the costs of path classes that there was no time to measure.

A tuning run records which calls its table is for. If a path class that these calls use was not
measured, its cost is taken from another path class inside the node, from the topology file, or from
a typical computer, in this order. A borrowed cost is named in the provenance of the calibration and
has a wide interval. No rule rests on simulations with it alone (docs/adr/0046-budgets.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tuner.calibrate.host_distances import MOST_RANKS
from tuner.core.calibration import (
    BORROWED,
    REDUCTIONS,
    Calibration,
    Estimate,
    PathCost,
    ReductionCost,
    Segment,
)
from tuner.core.measurement import WANTED, Measurements
from tuner.core.path_classes import HOST, PATH_CLASSES
from tuner.topology import (
    CROSS_SOCKET,
    NETWORK,
    NODE,
    NODE_OVERSUBSCRIBED,
    Placement,
    Topology,
    paths,
)
from tuner.topology.paths import CLASS

ALIKE, NOMINAL, TYPICAL = 2.0, 2.0, 10.0  # factors by which a borrowed cost may be off
LOCAL_LATENCY, LOCAL_BANDWIDTH = 1e-6, 5e9  # s and B/s of messages through a computer's memory
REDUCTION_LAUNCH, REDUCTION_GAMMA = 2e-7, 2e-10  # s and s per byte of a sum of floats
INSIDE = (NODE, CROSS_SOCKET)  # classes that stand for one another
WORDS = {
    NETWORK: "messages between nodes",
    NODE: "messages within a node",
    CROSS_SOCKET: "messages between the sockets of a node",
}


@dataclass(frozen=True)
class BorrowedCost:
    """A cost, and its source in words."""

    cost: PathCost
    source: str


def wanted_classes(measurements: Measurements, topology: Topology | None) -> tuple[str, ...]:
    """Return the path classes of host memory that a tuning run's table needs.

    Files of other probes do not record what their table is for, so that nothing is returned.
    """
    records = measurements.provenance.get(WANTED, ())
    shapes = [(one["nodes"], one["ppn"]) for one in records] if _sound(records) else []
    most = max((ppn for _, ppn in shapes), default=1)
    between = (NETWORK,) if any(nodes > 1 for nodes, _ in shapes) else ()
    return (*between, *(_inside(topology, most) if most > 1 else ()))


def _sound(records: object) -> bool:
    """Return whether the records hold shapes; making the table reports it if they do not."""
    return isinstance(records, list) and all(
        isinstance(one, dict)
        and isinstance(one.get("nodes"), int)
        and isinstance(one.get("ppn"), int)
        and 1 <= one["ppn"] < 2**31
        for one in records
    )


def _inside(topology: Topology | None, ppn: int) -> Iterator[str]:
    """Yield the path classes between ranks of one node."""
    if topology is None:
        yield NODE
        return
    targets = np.arange(1, min(ppn, MOST_RANKS))
    placement = Placement(topology, np.zeros(len(targets) + 1, dtype=np.int64))
    found = paths(placement, HOST, np.zeros_like(targets), targets)
    named = (PATH_CLASSES[int(number)] for number in np.unique(found.path_class))
    yield from dict.fromkeys(NODE if name == NODE_OVERSUBSCRIBED else name for name in named)


def completed(
    calibration: Calibration, topology: Topology | None, wanted: tuple[str, ...]
) -> Calibration:
    """Return the calibration with borrowed costs for the wanted path classes and reductions that it
    lacks, and a sentence about each in its provenance.
    """
    found = {
        name: one
        for name in wanted
        if (name, HOST) not in calibration.paths
        and (one := _borrowed(name, calibration.paths, topology)) is not None
    }
    notes = [
        {
            "path": name,
            "memory": HOST,
            "note": f"no time was left to measure {WORDS.get(name, name)}: taken from {one.source}",
        }
        for name, one in found.items()
    ]
    reduction = calibration.reduction
    if wanted and HOST not in reduction:
        said = "no time was left to measure reductions: a typical cost is taken"
        notes.append({"path": REDUCTIONS, "memory": HOST, "note": said})
        reduction = {**reduction, HOST: _typical_reduction()}
    if not notes:
        return calibration
    lent = {(name, HOST): one.cost for name, one in found.items()}
    return replace(
        calibration,
        paths={**calibration.paths, **lent},
        reduction=reduction,
        provenance={**calibration.provenance, BORROWED: notes},
    )


def _borrowed(
    name: str, known: Mapping[tuple[str, str], PathCost], topology: Topology | None
) -> BorrowedCost | None:
    for other in INSIDE if name in INSIDE else ():
        if (other, HOST) in known:
            return BorrowedCost(_widened(known[other, HOST], ALIKE), WORDS[other])
    said = None if topology is None else _nominal(name, topology)
    if said is not None:
        return BorrowedCost(_line(*said, NOMINAL), "the topology file")
    if name in INSIDE:
        return BorrowedCost(
            _line(LOCAL_LATENCY, LOCAL_BANDWIDTH, TYPICAL), "what is typical of a computer's memory"
        )
    return None


def _nominal(name: str, topology: Topology) -> tuple[float, float] | None:
    """Return latency (s) and bandwidth (B/s) of a path class as the topology states them; None if
    it does not. The simulator adds the latency of links itself.
    """
    if name == NODE and topology.nodes[0].interior is None:
        local = topology.local_latency, topology.local_bandwidth
        return None if local[0] is None or local[1] is None else (local[0], local[1])
    if name == NETWORK:
        placement = Placement(topology, np.array([0, 1]))
        ends = np.array([0]), np.array([1])
    else:
        placement = Placement(topology, np.zeros(MOST_RANKS, dtype=np.int64))
        ends = np.zeros(MOST_RANKS - 1, dtype=np.int64), np.arange(1, MOST_RANKS)
    found = paths(placement, HOST, *ends)
    rates = found.bandwidth[found.path_class == CLASS[name]]
    return (0.0, float(rates[0])) if len(rates) and math.isfinite(rates[0]) else None


def _line(latency: float, bandwidth: float, factor: float) -> PathCost:
    return _widened(PathCost.line(latency, 1.0 / bandwidth), factor)


def _typical_reduction() -> ReductionCost:
    return ReductionCost(_unsure(REDUCTION_LAUNCH, TYPICAL), _unsure(REDUCTION_GAMMA, TYPICAL))


def _widened(cost: PathCost, factor: float) -> PathCost:
    """Return the same cost, known to a factor only."""

    def wide(segment: Segment) -> Segment:
        alpha, beta, lag = (
            _unsure(one.value, factor) for one in (segment.alpha, segment.beta, segment.lag)
        )
        return replace(segment, alpha=alpha, beta=beta, lag=lag)

    return replace(
        cost,
        segments=tuple(map(wide, cost.segments)),
        overhead=_unsure(cost.overhead.value, factor),
    )


def _unsure(value: float, factor: float) -> Estimate:
    return Estimate(value, value / factor, value * factor)
