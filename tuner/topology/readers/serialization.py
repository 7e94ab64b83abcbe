"""Topologies as JSON records, complete and exact.

Version 2: nodes refer to a `node_topology` by its index in a list, null for none; links have a kind
and a number of cables; `routing` and `capabilities` are included.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from tuner.base.atomic_io import dataclass_from_record, encode_infinities
from tuner.base.errors import InputError, shortened_repr
from tuner.topology import Device, Link, NcclCosts, Node, NodeTopology, Topology
from tuner.topology.readers.yaml_fields import MAX_DEVICES, MAX_NODES

FORMAT_VERSION = 2
# in all interiors together; finding their routes takes seconds
MAX_DEVICE_PAIRS = 2 * MAX_DEVICES**2


@dataclass(frozen=True)
class _NodeRecord:
    name: str
    cores: int = 1
    node_topology: int | None = None


@dataclass(frozen=True)
class _NodeTopologyRecord:
    """The interior of a node as written: not validated, without routes."""

    devices: tuple[Device, ...]
    links: tuple[Link, ...]


@dataclass(frozen=True)
class _TopologyRecord:
    """The fields of `Topology` in JSON."""

    name: str
    nodes: tuple[_NodeRecord, ...]
    switches: tuple[str, ...]
    links: tuple[Link, ...]
    node_topologies: tuple[_NodeTopologyRecord, ...] = ()
    local_latency: float | None = None
    local_bandwidth: float | None = None
    memory_bandwidth: float = math.inf
    routing: str = "spread"
    capabilities: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    nccl: NcclCosts | None = None


def topology_to_record(topology: Topology) -> dict[str, Any]:
    """Return every field of `Topology`, null where it is unknown and "inf" for no limit."""
    number = {id(interior): i for i, (interior, _) in enumerate(topology.node_topologies)}
    nodes = tuple(
        _NodeRecord(node.name, node.cores, number.get(id(node.node_topology)))
        for node in topology.nodes
    )
    interiors = tuple(
        _NodeTopologyRecord(inside.devices, inside.links) for inside, _ in topology.node_topologies
    )
    record = _TopologyRecord(
        topology.name,
        nodes,
        topology.switches,
        topology.links,
        interiors,
        topology.local_latency,
        topology.local_bandwidth,
        topology.memory_bandwidth,
        topology.routing,
        tuple(sorted(topology.capabilities)),
        topology.cautions,
        topology.nccl,
    )
    fields: dict[str, Any] = encode_infinities(asdict(record))
    return {"kind": "topology", "version": FORMAT_VERSION, **fields}


def topology_from_record(record: Any) -> Topology:
    """Return the topology of a record; raise InputError for an invalid record."""
    try:
        _require_size(record)
        if record.get("kind") != "topology" or record.get("version") != FORMAT_VERSION:
            raise ValueError(f"it must be of kind topology and version {FORMAT_VERSION}")
        own = {name: record[name] for name in record if name not in ("kind", "version")}
        read = dataclass_from_record(_TopologyRecord, own)
    except (ValueError, TypeError) as reason:
        raise InputError(f"not the record of a topology: {reason}") from None
    _validate_record(read)
    interiors = [NodeTopology(inside.devices, inside.links) for inside in read.node_topologies]
    nodes = tuple(
        Node(
            node.name,
            node.cores,
            None if node.node_topology is None else interiors[node.node_topology],
        )
        for node in read.nodes
    )
    return Topology(
        read.name,
        nodes,
        read.switches,
        read.links,
        read.local_latency,
        read.local_bandwidth,
        read.memory_bandwidth,
        read.routing,
        frozenset(read.capabilities),
        read.cautions,
        read.nccl,
    )


def _require_size(record: Any) -> None:
    """Raise ValueError unless the record has 1 to `MAX_NODES` nodes.

    This runs before anything large is built.
    """
    if not isinstance(record, dict) or not isinstance(record.get("nodes"), list):
        raise ValueError("it must be a mapping with a list of nodes")
    if not 1 <= len(record["nodes"]) <= MAX_NODES:
        raise ValueError(f"it must have 1 to {MAX_NODES} nodes")


def _validate_record(record: _TopologyRecord) -> None:
    """Raise InputError for values that `Topology` does not check itself."""
    where = f"topology {record.name}"
    sizes = [len(inside.devices) for inside in record.node_topologies]
    if min(sizes, default=1) < 1 or sum(size**2 for size in sizes) > MAX_DEVICE_PAIRS:
        raise InputError(
            f"{where}: an interior has at least one device, and all interiors together"
            f" at most some {MAX_DEVICES}"
        )
    for node in record.nodes:
        if node.node_topology is not None and not 0 <= node.node_topology < len(
            record.node_topologies
        ):
            raise InputError(
                f"{where}: node_topology of {shortened_repr(node.name)} is {node.node_topology},"
                f" but only {len(record.node_topologies)} are listed"
            )
    links = [*record.links, *(link for inside in record.node_topologies for link in inside.links)]
    cores = [device.cores for inside in record.node_topologies for device in inside.devices]
    _require_numbers(
        where,
        links,
        [record.local_bandwidth or 1.0, record.memory_bandwidth],
        record.local_latency or 0.0,
    )
    if min(node.cores for node in record.nodes) < 1 or min(cores, default=0) < 0:
        raise InputError(f"{where}: a node has at least one core, a device at least none")


def _require_numbers(
    where: str, links: Iterable[Link], widths: list[float], latency: float
) -> None:
    times, counts = [latency], [1]
    for link in links:
        widths.append(link.capacity)
        times.append(link.latency)
        counts.append(link.count)
    if min(widths) <= 0.0 or not 0.0 <= min(times) <= max(times) < math.inf or min(counts) < 1:
        raise InputError(
            f"{where}: a bandwidth must be above 0, a latency finite and not below 0, a count above"
            " 0"
        )
