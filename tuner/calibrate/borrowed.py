"""Borrow the costs of path classes that there was no time to measure.

A tuning run records which calls its table is for. If a path class that these calls use was not
measured, its cost is taken from another path class inside the node, from the topology file, or from
a typical computer, in this order. A borrowed cost is named in the provenance of the calibration and
has a wide interval. No rule rests on simulations with it alone (decision 0046).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tuner.calibrate.host_distances import MAX_RANKS_PER_NODE
from tuner.core.calibration import (
    BORROWED_KEY,
    REDUCTIONS_KEY,
    Calibration,
    CostSegment,
    Estimate,
    PathCost,
    ReductionCost,
)
from tuner.core.measurement import REQUESTED_CALLS_KEY, Measurements
from tuner.core.path_classes import HOST, PATH_CLASSES
from tuner.topology import (
    CROSS_SOCKET,
    NETWORK,
    NODE,
    NODE_OVERSUBSCRIBED,
    Placement,
    Topology,
    find_paths,
)
from tuner.topology.paths import PATH_CLASS_INDEX

# Factors by which a borrowed cost may be wrong.
SIMILAR_PATH_UNCERTAINTY = 2.0  # measured on a similar path
NOMINAL_UNCERTAINTY = 2.0  # stated in a topology file
TYPICAL_UNCERTAINTY = 10.0  # typical of any computer
LOCAL_LATENCY_S = 1e-6  # of a message through a computer's memory
LOCAL_BANDWIDTH_BYTES_PER_S = 5e9  # of messages through a computer's memory
REDUCTION_LAUNCH_S = 2e-7  # of a sum of floats
REDUCTION_GAMMA_S_PER_BYTE = 2e-10  # of a sum of floats
INTRA_NODE_CLASSES = (NODE, CROSS_SOCKET)  # classes that can replace one another
PATH_CLASS_DESCRIPTIONS = {
    NETWORK: "messages between nodes",
    NODE: "messages within a node",
    CROSS_SOCKET: "messages between the sockets of a node",
}


@dataclass(frozen=True)
class BorrowedCost:
    """A cost, and its source in words."""

    cost: PathCost
    source: str


def required_path_classes(measurements: Measurements, topology: Topology | None) -> tuple[str, ...]:
    """Return the path classes of host memory that a tuning run's table needs.

    Files of other probes do not record what their table is for, so that nothing is returned.
    """
    records = measurements.provenance.get(REQUESTED_CALLS_KEY, ())
    shapes = [(one["nodes"], one["ppn"]) for one in records] if _are_valid_shapes(records) else []
    most = max((ppn for _, ppn in shapes), default=1)
    between = (NETWORK,) if any(nodes > 1 for nodes, _ in shapes) else ()
    return (*between, *(_intra_node_classes(topology, most) if most > 1 else ()))


def _are_valid_shapes(records: object) -> bool:
    """Return whether the records hold shapes; making the table reports it if they do not."""
    return isinstance(records, list) and all(
        isinstance(one, dict)
        and isinstance(one.get("nodes"), int)
        and isinstance(one.get("ppn"), int)
        and 1 <= one["ppn"] < 2**31
        for one in records
    )


def _intra_node_classes(topology: Topology | None, ppn: int) -> Iterator[str]:
    if topology is None:
        yield NODE
        return
    targets = np.arange(1, min(ppn, MAX_RANKS_PER_NODE))
    placement = Placement(topology, np.zeros(len(targets) + 1, dtype=np.int64))
    found = find_paths(placement, HOST, np.zeros_like(targets), targets)
    named = (PATH_CLASSES[int(number)] for number in np.unique(found.path_class))
    yield from dict.fromkeys(NODE if name == NODE_OVERSUBSCRIBED else name for name in named)


def fill_missing_costs(
    calibration: Calibration, topology: Topology | None, required: tuple[str, ...]
) -> Calibration:
    """Return the calibration with borrowed costs for what it lacks, and notes about them.

    Borrowed are the required path classes and reductions; each has a note in the provenance.
    """
    found = {
        name: one
        for name in required
        if (name, HOST) not in calibration.paths
        and (one := _borrow_cost(name, calibration.paths, topology)) is not None
    }
    notes = [
        {
            "path": name,
            "memory": HOST,
            "note": f"no time was left to measure {PATH_CLASS_DESCRIPTIONS.get(name, name)}:"
            f" taken from {one.source}",
        }
        for name, one in found.items()
    ]
    reduction = calibration.reduction
    if required and HOST not in reduction:
        said = "no time was left to measure reductions: a typical cost is taken"
        notes.append({"path": REDUCTIONS_KEY, "memory": HOST, "note": said})
        reduction = {**reduction, HOST: _typical_reduction()}
    if not notes:
        return calibration
    lent = {(name, HOST): one.cost for name, one in found.items()}
    return replace(
        calibration,
        paths={**calibration.paths, **lent},
        reduction=reduction,
        provenance={**calibration.provenance, BORROWED_KEY: notes},
    )


def _borrow_cost(
    name: str, known: Mapping[tuple[str, str], PathCost], topology: Topology | None
) -> BorrowedCost | None:
    for other in INTRA_NODE_CLASSES if name in INTRA_NODE_CLASSES else ():
        if (other, HOST) in known:
            return BorrowedCost(
                _with_uncertainty(known[other, HOST], SIMILAR_PATH_UNCERTAINTY),
                PATH_CLASS_DESCRIPTIONS[other],
            )
    said = None if topology is None else _nominal_latency_and_bandwidth(name, topology)
    if said is not None:
        return BorrowedCost(_alpha_beta_cost(*said, NOMINAL_UNCERTAINTY), "the topology file")
    if name in INTRA_NODE_CLASSES:
        return BorrowedCost(
            _alpha_beta_cost(LOCAL_LATENCY_S, LOCAL_BANDWIDTH_BYTES_PER_S, TYPICAL_UNCERTAINTY),
            "what is typical of a computer's memory",
        )
    return None


def _nominal_latency_and_bandwidth(name: str, topology: Topology) -> tuple[float, float] | None:
    """Return the latency (s) and bandwidth (B/s) of a path class that the topology states.

    None if it states none. The simulator adds the latency of links itself.
    """
    if name == NODE and topology.nodes[0].node_topology is None:
        local = topology.local_latency, topology.local_bandwidth
        return None if local[0] is None or local[1] is None else (local[0], local[1])
    if name == NETWORK:
        placement = Placement(topology, np.array([0, 1]))
        ends = np.array([0]), np.array([1])
    else:
        placement = Placement(topology, np.zeros(MAX_RANKS_PER_NODE, dtype=np.int64))
        ends = np.zeros(MAX_RANKS_PER_NODE - 1, dtype=np.int64), np.arange(1, MAX_RANKS_PER_NODE)
    found = find_paths(placement, HOST, *ends)
    rates = found.bandwidth[found.path_class == PATH_CLASS_INDEX[name]]
    return (0.0, float(rates[0])) if len(rates) and math.isfinite(rates[0]) else None


def _alpha_beta_cost(latency: float, bandwidth: float, factor: float) -> PathCost:
    return _with_uncertainty(PathCost.from_alpha_beta(latency, 1.0 / bandwidth), factor)


def _typical_reduction() -> ReductionCost:
    return ReductionCost(
        _uncertain_estimate(REDUCTION_LAUNCH_S, TYPICAL_UNCERTAINTY),
        _uncertain_estimate(REDUCTION_GAMMA_S_PER_BYTE, TYPICAL_UNCERTAINTY),
    )


def _with_uncertainty(cost: PathCost, factor: float) -> PathCost:
    """Return the cost with intervals widened to a factor."""

    def wide(segment: CostSegment) -> CostSegment:
        alpha, beta, lag = (
            _uncertain_estimate(one.value, factor)
            for one in (segment.alpha, segment.beta, segment.latency_per_byte)
        )
        return replace(segment, alpha=alpha, beta=beta, latency_per_byte=lag)

    return replace(
        cost,
        segments=tuple(map(wide, cost.segments)),
        overhead=_uncertain_estimate(cost.overhead.value, factor),
    )


def _uncertain_estimate(value: float, factor: float) -> Estimate:
    return Estimate(value, value / factor, value * factor)
