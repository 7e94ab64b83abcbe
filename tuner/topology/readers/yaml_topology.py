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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from tuner.base.file_settings import (
    COUNT,
    NAME,
    NAMES,
    RATE,
    TIME,
    Kind,
    Rate,
    Seconds,
    optional,
    parse_int,
    parse_names,
    read_record,
)
from tuner.topology import Link, NcclCosts, Node, NodeTopology, Topology
from tuner.topology.readers.cabling import flatten_names, ports_of_nodes
from tuner.topology.readers.fabrics import Fabric, fabric_topology
from tuner.topology.readers.yaml_fields import parse_fabric, parse_links
from tuner.topology.readers.yaml_interior import parse_node_topology


@dataclass(frozen=True, kw_only=True)
class LocalSettings:
    """The costs of messages inside a node."""

    latency: Annotated[float | None, TIME] = None
    bandwidth: Annotated[float | None, RATE] = None
    memory_bandwidth: Annotated[float | None, optional(RATE)] = None


def parse_local_costs(what: str, local: Any) -> dict[str, Any]:
    """Return the fields of `Topology` on messages inside a node; raise InputError."""
    own = read_record(LocalSettings, local, what)
    return {
        "local_latency": own.latency,
        "local_bandwidth": own.bandwidth,
        "memory_bandwidth": own.memory_bandwidth or math.inf,
    }


def _read_nodes(what: str, value: Any) -> list[str]:
    """Return the names of the nodes of a list or of a number of them."""
    if isinstance(value, list) and value:
        return parse_names(what, value)
    return [f"node{number}" for number in range(parse_int(what, value))]


NODES = Kind("nodes", _read_nodes)
LOCAL = Kind("local", parse_local_costs)
INTERIOR = Kind("interior", lambda _, value: parse_node_topology(value))
NCCL = Kind("nccl", lambda what, value: read_record(NcclCosts, value, what))
FABRIC = Kind("fabric", lambda _, value: parse_fabric(value))
LINKS = Kind("links", lambda _, value: parse_links(value))


@dataclass(frozen=True, kw_only=True)
class TopologySettings:
    """The settings that all forms of a topology share; None: left out."""

    name: Annotated[str, NAME]
    nodes: Annotated[list[str], NODES]
    cores: Annotated[int | None, COUNT] = None
    local: Annotated[dict[str, Any] | None, LOCAL] = None
    interior: Annotated[NodeTopology | None, INTERIOR] = None
    offers: Annotated[Sequence[str], NAMES] = ()
    nccl: Annotated[NcclCosts | None, NCCL] = None


@dataclass(frozen=True, kw_only=True)
class SingleSwitchSettings(TopologySettings):
    """The settings of a topology of one switch, with the end-to-end latency."""

    latency: Seconds
    bandwidth: Rate


@dataclass(frozen=True, kw_only=True)
class LinkedSettings(TopologySettings):
    """The settings of a topology with its links."""

    links: Annotated[list[Link], LINKS]
    switches: Annotated[Sequence[str], NAMES] = ()


@dataclass(frozen=True, kw_only=True)
class FabricSettings(TopologySettings):
    """The settings of a topology with a fabric that is given by its shape."""

    fabric: Annotated[Fabric, FABRIC]


def topology_from_yaml(record: Any) -> Topology:
    """Return the topology of parsed YAML or JSON; raise InputError for an invalid record."""
    has = record if isinstance(record, dict) else {}
    linked: type[TopologySettings] = LinkedSettings if "links" in has else SingleSwitchSettings
    form = FabricSettings if "fabric" in has and "links" not in has else linked
    own = read_record(form, record, "the topology")
    devices = own.interior.devices if own.interior else ()
    cores = parse_int("cores", own.cores or sum(device.cores for device in devices) or 1)
    nodes = [Node(name, cores, own.interior) for name in own.nodes]
    fields = {**(own.local or {}), "capabilities": frozenset(own.offers), "nccl": own.nccl}
    if isinstance(own, FabricSettings):
        return fabric_topology(own.name, nodes, own.fabric, **fields)
    ports_of_nodes(nodes)  # raises InputError for too many
    if isinstance(own, LinkedSettings):
        switches, links = own.switches, own.links
    elif isinstance(own, SingleSwitchSettings):
        switches, links = ("switch",), _star(nodes, own.latency, own.bandwidth)
    return Topology(own.name, tuple(nodes), tuple(switches), tuple(links), **fields)


def _star(nodes: list[Node], latency: float, bandwidth: float) -> list[Link]:
    """Return links to and from one switch, each with half of the end-to-end latency."""
    ports = flatten_names(ports_of_nodes(nodes))
    up = [Link(port, "switch", bandwidth, latency / 2) for port in ports]
    down = [Link("switch", port, bandwidth, latency / 2) for port in ports]
    return up + down
