"""Costs on machines whose file has no latencies: those of other machines, in `assumed.yaml`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from tuner.core.calibration import Calibration
from tuner.core.path_classes import NETWORK
from tuner.machines.catalog import assumed_record, known_gpus, known_parts
from tuner.machines.machine_spec import PathKey
from tuner.machines.provenance import (
    SourcedPathCost,
    SourcedReduction,
    SourcedSegment,
    SourcedValue,
)
from tuner.machines.sourced_fields import SourcedReader
from tuner.machines.spec_fields import parse_paths, parse_reductions
from tuner.topology import Link, Topology

ASSUMED_KEY = "assumed"  # in the provenance of such costs
LINK_RATE = SourcedValue(math.inf, "B/s", "that of the links", "computed")


@dataclass(frozen=True)
class AssumedCosts:
    """Costs of other machines.

    between_nodes   messages between nodes
    inside_nodes    messages and local copies inside a node
    reduction       reductions by kind of memory
    """

    between_nodes: dict[PathKey, SourcedPathCost]
    inside_nodes: dict[PathKey, SourcedPathCost]
    reduction: dict[str, SourcedReduction]


@cache
def known_costs() -> AssumedCosts:
    """Return the costs of `assumed.yaml`."""
    record = assumed_record()
    reader = SourcedReader(known_parts() | known_gpus()[record["gpu"]].parts())
    latencies = {
        (path_class, memory): reader.number(f"latencies: {memory}: {path_class}", value, "s")
        for memory, values in record["latencies"].items()
        for path_class, value in values.items()
    }
    messages = {
        key: SourcedPathCost((SourcedSegment(0.0, latency, LINK_RATE),))
        for key, latency in latencies.items()
    }
    between = {key: cost for key, cost in messages.items() if key[0] == NETWORK}
    inside = {key: cost for key, cost in messages.items() if key[0] != NETWORK}
    return AssumedCosts(
        between,
        inside | parse_paths(record["paths"], reader),
        parse_reductions(record["reductions"], reader),
    )


def assumed_costs(topology: Topology) -> dict[PathKey, SourcedPathCost]:
    """Return the costs of messages and copies to assume, by path class and memory.

    Those between nodes are for topologies that have links between nodes, none of them with a
    latency; those inside nodes likewise.
    """
    inside = [link for node, _ in topology.node_topologies for link in node.links]
    return {
        **(known_costs().between_nodes if _lack_latencies(topology.links) else {}),
        **(known_costs().inside_nodes if _lack_latencies(inside) else {}),
    }


def _lack_latencies(links: Sequence[Link]) -> bool:
    return len(links) > 0 and not any(link.latency for link in links)


def with_assumed_costs(costs: Calibration, topology: Topology) -> Calibration:
    """Return costs with those to assume of messages, local copies and reductions."""
    assumed = assumed_costs(topology)
    if not assumed:
        return costs
    return replace(
        costs,
        paths={key: cost.to_path_cost() for key, cost in assumed.items()},
        reduction={
            memory: cost.to_reduction_cost() for memory, cost in known_costs().reduction.items()
        },
        provenance={ASSUMED_KEY: True},
    )
