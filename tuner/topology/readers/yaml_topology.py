"""Topologies in YAML.

One full-duplex switch, with the end-to-end latency:

    name: flat64
    nodes: 64
    latency: 2us
    bandwidth: 12.5GB/s

Nodes, switches and links by name; `between` is both directions, `from`/`to` one:

    name: pair
    nodes: [a, b]
    switches: [s]
    links:
      - {between: [a, s], latency: 1us, bandwidth: 12.5GB/s, count: 2}
      - {between: [b, s], latency: 1us, bandwidth: 12.5GB/s}

A fabric sized for its nodes (see `yaml_fields`), with latency and bandwidth of one cable:

    name: tree
    nodes: 256
    fabric: {kind: fat_tree, per_leaf: 16, taper: 2, latency: 1us, bandwidth: 12.5GB/s}

A predefined machine of any size, with other GPUs, NICs or taper:

    preset: dgx-h100
    nodes: 64
    gpu: H200

All but the last may add `cores` per node, `local: {latency, bandwidth, memory_bandwidth}` inside a
node, `offers` of the network and the `interior` of every node (see `yaml_fields`).
"""

from __future__ import annotations

import math
from typing import Any

from tuner.base.file_settings import parse_int, parse_name, parse_names, require_keys
from tuner.base.units import parse_bandwidth, parse_time
from tuner.topology import Link, Node, NodeTopology, Topology
from tuner.topology.readers.cabling import flatten_names, ports_of_nodes
from tuner.topology.readers.fabrics import fabric_topology
from tuner.topology.readers.yaml_fields import parse_fabric, parse_links
from tuner.topology.readers.yaml_interior import parse_node_topology

COMMON_KEYS = {"name", "nodes", "cores", "local", "interior", "offers"}
SINGLE_SWITCH_KEYS = COMMON_KEYS | {"latency", "bandwidth"}
LINKED_KEYS = COMMON_KEYS | {"switches", "links"}
FABRIC_KEYS = COMMON_KEYS | {"fabric"}
LOCAL_KEYS = {"latency", "bandwidth", "memory_bandwidth"}


def topology_from_yaml(record: Any) -> Topology:
    """Return the topology of parsed YAML or JSON; raise InputError for an invalid record."""
    known, needed = _keys(record)
    require_keys("the topology", record, known, needed)
    name = parse_name("name", record["name"])
    interior = parse_node_topology(record["interior"]) if "interior" in record else None
    nodes = _nodes(record["nodes"], _cores(record, interior), interior)
    fields = {
        **parse_local_costs(record.get("local", {})),
        "capabilities": frozenset(parse_names("offers", record.get("offers", []))),
    }
    if "fabric" in record:
        return fabric_topology(name, nodes, parse_fabric(record["fabric"]), **fields)
    if "links" in record:
        ports_of_nodes(nodes)  # raises InputError for too many
        switches = parse_names("switches", record.get("switches", []))
        links = parse_links(record["links"])
    else:
        switches = ["switch"]
        links = _star(nodes, parse_time(record["latency"]), parse_bandwidth(record["bandwidth"]))
    return Topology(name, tuple(nodes), tuple(switches), tuple(links), **fields)


def _keys(record: Any) -> tuple[set[str], set[str]]:
    """Return the keys that this form of record may have, and those it must have."""
    has = record if isinstance(record, dict) else {}
    if "links" in has:
        return LINKED_KEYS, {"name", "nodes"}
    if "fabric" in has:
        return FABRIC_KEYS, {"name", "nodes"}
    return SINGLE_SWITCH_KEYS, {"name", "nodes", "latency", "bandwidth"}


def _cores(record: dict[str, Any], interior: NodeTopology | None) -> int:
    """Return the stated number of cores per node, else that of the interior's CPUs, at least 1."""
    told = sum(device.cores for device in interior.devices) if interior else 0
    return parse_int("cores", record.get("cores", told or 1))


def _nodes(value: Any, cores: int, interior: NodeTopology | None) -> list[Node]:
    if isinstance(value, list) and value:
        return [Node(name, cores, interior) for name in parse_names("nodes", value)]
    return [Node(f"node{number}", cores, interior) for number in range(parse_int("nodes", value))]


def parse_local_costs(local: Any) -> dict[str, Any]:
    """Return the fields of `Topology` on messages inside a node; raise InputError."""
    require_keys("local", local, LOCAL_KEYS, set())
    bus = local.get("memory_bandwidth")
    return {
        "local_latency": parse_time(local["latency"]) if "latency" in local else None,
        "local_bandwidth": parse_bandwidth(local["bandwidth"]) if "bandwidth" in local else None,
        "memory_bandwidth": math.inf if bus is None else parse_bandwidth(bus),
    }


def _star(nodes: list[Node], latency: float, bandwidth: float) -> list[Link]:
    """Return links to and from one switch, each with half of the end-to-end latency."""
    ports = flatten_names(ports_of_nodes(nodes))
    up = [Link(port, "switch", bandwidth, latency / 2) for port in ports]
    down = [Link("switch", port, bandwidth, latency / 2) for port in ports]
    return up + down
