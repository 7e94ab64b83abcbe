"""Nodes with what is inside them, switches, and the links between all of these: `Topology`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tuner.base.arrays import FloatArray, IntArray
from tuner.base.errors import InputError
from tuner.topology.graph import RouteGraph

GPU, CPU, NIC, SWITCH = DEVICE_KINDS = ("gpu", "cpu", "nic", "switch")
LINK_KINDS = ("network", "nvlink", "pcie", "socket", "memory")
MULTICAST, SWITCH_REDUCTION, NVSWITCH_REDUCTION = NETWORK_CAPABILITIES = (
    "multicast",
    "switch_reduction",
    "nvswitch_reduction",
)
ROUTINGS = ("spread", "first")


@dataclass(frozen=True)
class Link:
    """One directed link; parallel cables are one link with their joint capacity."""

    source: str
    target: str
    capacity: float  # bytes per second, all cables together
    latency: float  # seconds
    kind: str = "network"
    count: int = 1  # cables


@dataclass(frozen=True)
class Device:
    """A part of a node: a GPU, a CPU (a socket with its memory), a NIC, a PCIe or NVLink switch."""

    name: str
    kind: str
    product: str = ""
    cores: int = 0  # of a CPU


@dataclass(frozen=True)
class NodeTopology:
    """What is inside a node. GPUs and NICs end routes and never forward.

    Raises InputError for a link to an unknown device and for devices that cannot reach each other.
    """

    devices: tuple[Device, ...]
    links: tuple[Link, ...]

    def __post_init__(self) -> None:
        for device in self.devices:
            if device.kind not in DEVICE_KINDS:
                known = ", ".join(DEVICE_KINDS)
                raise InputError(f"device {device.name}: kind {device.kind!r} is none of {known}")
        validate_links("the node's interior", self.links, [device.name for device in self.devices])
        ends = np.flatnonzero([device.kind != SWITCH for device in self.devices])
        unreached = np.argwhere(np.isinf(self.distances[np.ix_(ends, ends)]))
        if len(unreached):
            a, b = (self.devices[ends[i]].name for i in unreached[0])
            raise InputError(f"inside a node {b} cannot be reached from {a}; add the missing link")

    def device_indices(self, kind: str) -> IntArray:
        """The devices of one kind, by number."""
        return np.array([i for i, d in enumerate(self.devices) if d.kind == kind], dtype=np.int64)

    @cached_property
    def _routes(self) -> tuple[IntArray, FloatArray]:
        graph = RouteGraph([device.name for device in self.devices], self.links)
        ends = [device.kind in (GPU, NIC) for device in self.devices]
        return graph.all_routes(np.array(ends))

    @property
    def routes(self) -> IntArray:
        """Link numbers from device to device, shape (devices, devices, most links), -1: none."""
        return self._routes[0]

    @property
    def distances(self) -> FloatArray:
        """Links from device to device and, below one, their latencies; shape (devices, devices)."""
        return self._routes[1]


@dataclass(frozen=True)
class Node:
    """A host: `cores` bound how many ranks run undisturbed; nodes alike share their interior."""

    name: str
    cores: int = 1
    node_topology: NodeTopology | None = None

    @cached_property
    def ports(self) -> tuple[str, ...]:
        """Where links of the network end: the node itself, or each of its several NICs."""
        if self.node_topology is None:
            return (self.name,)
        nics = [d.name for d in self.node_topology.devices if d.kind == NIC]
        return (self.name,) if len(nics) < 2 else tuple(f"{self.name}.{nic}" for nic in nics)


@dataclass(frozen=True)
class Topology:
    """Raises InputError when a node cannot reach another one.

    Inside a node without a known interior: `local_latency` and `local_bandwidth` of one message
    (None: not known). `memory_bandwidth`: what all messages in one node's host memory share.

    routing     which of equally short routes is taken: "spread" chooses by destination (D-mod-k:
                E. Zahavi, D-Mod-K routing, Technion CCIT 776, 2010), "first" the first in the order
                of links (dimension order in a torus whose links are so ordered)
    offers      what the network can do besides moving messages, of `NETWORK_CAPABILITIES`
    """

    name: str
    nodes: tuple[Node, ...]
    switches: tuple[str, ...]
    links: tuple[Link, ...]
    local_latency: float | None = None
    local_bandwidth: float | None = None
    memory_bandwidth: float = float("inf")
    routing: str = "spread"
    offers: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        where = f"topology {self.name}"
        names = [*(node.name for node in self.nodes), *self.switches]
        if len(set(names)) < len(names):
            raise InputError(f"{where}: two nodes or switches have the same name")
        if self.routing not in ROUTINGS:
            raise InputError(f"{where}: routing is one of {', '.join(ROUTINGS)}")
        if not self.offers <= set(NETWORK_CAPABILITIES):
            raise InputError(f"{where}: offers are some of {', '.join(NETWORK_CAPABILITIES)}")
        validate_links(where, self.links, [*self.ports, *self.switches])
        self._require_connected()

    @cached_property
    def ports(self) -> tuple[str, ...]:
        """All ends of the network at nodes, node after node."""
        return tuple(port for node in self.nodes for port in node.ports)

    @cached_property
    def first_port(self) -> IntArray:
        """Node n has ports first_port[n] .. first_port[n + 1] - 1."""
        return cumulative_offsets([len(node.ports) for node in self.nodes])

    @cached_property
    def port_counts(self) -> IntArray:
        """How many ports each node has, shape (nodes,)."""
        return np.diff(self.first_port)

    @cached_property
    def graph(self) -> RouteGraph:
        """The network: its vertices are the ports, then the switches."""
        return RouteGraph([*self.ports, *self.switches], self.links, len(self.ports), self.routing)

    @cached_property
    def switch_levels(self) -> dict[str, int]:
        """Each switch's distance from the nearest node, in links; none of those that nodes lack."""
        above: dict[str, list[str]] = {}
        for link in self.links:
            above.setdefault(link.source, []).append(link.target)
        reached, levels = list(self.ports), dict.fromkeys(self.ports, 0)
        while reached:
            level = 1 + levels[reached[0]]
            there = dict.fromkeys(t for name in reached for t in above.get(name, []))
            reached = [name for name in there if name not in levels]
            levels |= dict.fromkeys(reached, level)
        return {name: levels[name] for name in self.switches if name in levels}

    @property
    def cores_per_node(self) -> IntArray:
        """Cores per node, shape (nodes,)."""
        return np.array([node.cores for node in self.nodes])

    @cached_property
    def node_topologies(self) -> tuple[tuple[NodeTopology, IntArray], ...]:
        """Each distinct interior and the nodes, by number, that have it."""
        found: dict[int, tuple[NodeTopology, list[int]]] = {}
        for number, node in enumerate(self.nodes):
            if node.node_topology is not None:
                found.setdefault(id(node.node_topology), (node.node_topology, []))[1].append(number)
        return tuple((interior, np.array(nodes)) for interior, nodes in found.values())

    @property
    def has_gpus(self) -> bool:
        """Every node has one or more."""
        return all(
            n.node_topology is not None and len(n.node_topology.device_indices(GPU))
            for n in self.nodes
        )

    @cached_property
    def first_node_link(self) -> IntArray:
        """Links inside node n have the numbers first_inner_link[n] .. first_inner_link[n + 1] - 1;
        those of the network come before."""
        inside = [len(node.node_topology.links) if node.node_topology else 0 for node in self.nodes]
        return len(self.links) + cumulative_offsets(inside)

    @cached_property
    def capacity(self) -> FloatArray:
        """Bytes per second of every link, the network's and the nodes'."""
        return np.array([link.capacity for link in self._all_links()])

    @cached_property
    def latency(self) -> FloatArray:
        """Seconds of every link, the network's and the nodes'."""
        return np.array([link.latency for link in self._all_links()])

    def _all_links(self) -> Iterator[Link]:
        yield from self.links
        for node in self.nodes:
            yield from node.node_topology.links if node.node_topology else ()

    def _require_connected(self) -> None:
        """Every node has a port in each of the parts (rails) that the first node is on."""
        part = self.graph.components[: len(self.ports)]
        wanted = set(part[: self.first_port[1]].tolist())
        for number, node in enumerate(self.nodes):
            own = set(part[self.first_port[number] : self.first_port[number + 1]].tolist())
            if own != wanted:
                there = self.graph.is_reachable(0, int(self.first_port[number]))
                raise InputError(
                    f"topology {self.name}: node {node.name} cannot be reached"
                    f" {'to' if there else 'from'} {self.nodes[0].name}; add the missing link"
                )


def cumulative_offsets(sizes: Sequence[int]) -> IntArray:
    """Where each of consecutive runs begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def validate_links(where: str, links: Sequence[Link], names: Sequence[str]) -> None:
    """InputError unless the names differ and every link joins two of them, once."""
    known = set(names)
    if len(known) < len(names):
        raise InputError(f"{where}: two parts have the same name")
    seen: set[tuple[str, str]] = set()
    for link in links:
        what = f"{where}: link {link.source} -> {link.target}"
        for end in (link.source, link.target):
            if end not in known:
                raise InputError(
                    f"{what}: there is no node or switch {end!r}; declare it or mend the link"
                )
        if (link.source, link.target) in seen:
            raise InputError(f"{what} is written twice; write it once with a count")
        if link.kind not in LINK_KINDS:
            raise InputError(f"{what}: kind {link.kind!r} is none of {', '.join(LINK_KINDS)}")
        seen.add((link.source, link.target))
