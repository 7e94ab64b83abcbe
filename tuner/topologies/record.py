"""A topology as JSON holds it, complete and exact."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from tuner.errors import InputError
from tuner.files import from_record
from tuner.topologies.short import MOST_NODES
from tuner.topology import Topology

FORMAT_VERSION = 1


def topology_record(topology: Topology) -> dict[str, Any]:
    """Every field of `Topology`; null where it is not known, "inf" for no limit."""
    bus = topology.memory_bandwidth
    return {
        "kind": "topology",
        "version": FORMAT_VERSION,
        "name": topology.name,
        "nodes": [asdict(node) for node in topology.nodes],
        "switches": list(topology.switches),
        "links": [asdict(link) for link in topology.links],
        "local_latency": topology.local_latency,
        "local_bandwidth": topology.local_bandwidth,
        "memory_bandwidth": "inf" if math.isinf(bus) else bus,
    }


def topology_from_record(record: Any) -> Topology:
    """The reverse. Raises InputError for anything else."""
    try:
        _require_size(record)
        if (record.get("kind"), record.get("version")) != ("topology", FORMAT_VERSION):
            raise ValueError(f"it must be of kind topology and version {FORMAT_VERSION}")
        own = {name: record[name] for name in record if name not in ("kind", "version")}
        topology = from_record(Topology, own)
    except (ValueError, TypeError) as reason:
        raise InputError(f"not the record of a topology: {reason}") from None
    _require_sound(topology)
    return topology


def _require_size(record: Any) -> None:
    """Before a topology checks itself, which needs a node."""
    if not isinstance(record, dict) or not isinstance(record.get("nodes"), list):
        raise ValueError("it must be a mapping with a list of nodes")
    if not 1 <= len(record["nodes"]) <= MOST_NODES:
        raise ValueError(f"it must have 1 to {MOST_NODES} nodes")


def _require_sound(topology: Topology) -> None:
    """What the short form cannot even say."""
    widths = [link.capacity for link in topology.links]
    widths += [topology.local_bandwidth or 1.0, topology.memory_bandwidth]
    times = [link.latency for link in topology.links] + [topology.local_latency or 0.0]
    if min(widths) <= 0.0 or not 0.0 <= min(times) <= max(times) < math.inf:
        raise InputError(
            f"topology {topology.name}: a bandwidth must be above 0, a latency finite and not"
            " below 0"
        )
    if min(node.cores for node in topology.nodes) < 1:
        raise InputError(f"topology {topology.name}: a node has at least one core")
