"""The model of a machine: nodes with their devices, switches, and the links between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import numpy as np

from tuner.base.arrays import FloatArray, IntArray
from tuner.base.errors import InputError
from tuner.base.file_settings import TIME, Rate, Seconds, optional
from tuner.core.path_classes import NVLINK

if TYPE_CHECKING:
    from tuner.topology.graph import RouteGraph

GPU, CPU, NIC, SWITCH = DEVICE_KINDS = ("gpu", "cpu", "nic", "switch")
XGMI_LINK = "xgmi"
GPU_LINK_KINDS = {NVLINK: "NVLink", XGMI_LINK: "xGMI"}  # those of GPUs -> what people call them
LINK_KINDS = ("network", *GPU_LINK_KINDS, "pcie", "socket", "memory")
MULTICAST, SWITCH_REDUCTION, NVSWITCH_REDUCTION = NETWORK_CAPABILITIES = (
    "multicast",
    "switch_reduction",
    "nvswitch_reduction",
)
CONFIGURED_CAPABILITIES = frozenset({MULTICAST, SWITCH_REDUCTION})  # by the administrators
ROUTINGS = ("spread", "first")


@dataclass(frozen=True)
class Link:
    """A directed link; parallel cables form one link with their total capacity."""

    source: str
    target: str
    capacity: float  # bytes per second of all cables together
    latency: float  # seconds
    kind: str = "network"
    count: int = 1  # number of cables


@dataclass(frozen=True)
class Device:
    """A device of a node: a GPU, a CPU (one socket with its memory), a NIC, or a switch.

    Switches are PCIe or NVLink switches.
    """

    name: str
    kind: str
    product: str = ""
    cores: int = 0  # nonzero for CPUs only


@dataclass(frozen=True)
class NodeTopology:
    """The devices inside a node and the links between them; GPUs and NICs never forward messages.

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
        return np.array([i for i, d in enumerate(self.devices) if d.kind == kind], dtype=np.int64)

    @cached_property
    def _routes(self) -> tuple[IntArray, FloatArray]:
        from tuner.topology.graph import RouteGraph  # SciPy and numba, which routes alone need

        graph = RouteGraph([device.name for device in self.devices], self.links)
        ends = [device.kind in (GPU, NIC) for device in self.devices]
        return graph.all_routes(np.array(ends))

    @property
    def routes(self) -> IntArray:
        """Link numbers from device to device, shape (devices, devices, most links), -1 for none."""
        return self._routes[0]

    @property
    def distances(self) -> FloatArray:
        """Length of the route from device to device, shape (devices, devices).

        It is the number of links plus a fraction that grows with their latencies.
        """
        return self._routes[1]


@dataclass(frozen=True)
class Node:
    """A host.

    cores           number of ranks that run without sharing a core
    node_topology   its interior, None where unknown; identical nodes share one object
    """

    name: str
    cores: int = 1
    node_topology: NodeTopology | None = None

    @cached_property
    def ports(self) -> tuple[str, ...]:
        """Names of the ends of network links: the node's own, or one per NIC if it has several."""
        if self.node_topology is None:
            return (self.name,)
        nics = [d.name for d in self.node_topology.devices if d.kind == NIC]
        return (self.name,) if len(nics) < 2 else tuple(f"{self.name}.{nic}" for nic in nics)


@dataclass(frozen=True, kw_only=True)
class NcclCosts:
    """The costs of NCCL on a kind of GPU; its own constants are the same for all kinds.

    launch      seconds of a call in LL before its first hop
    hop         seconds of a hop inside a node in LL
    simple      seconds of a call in Simple in addition to what NCCL counts more for it than for LL
    copy_rate   bytes per second at which a rank copies the part of the buffer that is its own
    full_channel
                seconds that a call takes more that occupies all threads of a channel, as a ring in
                LL does from a size on; None: what it takes on other GPUs of the generation
    """

    launch: Seconds
    hop: Seconds
    simple: Seconds
    copy_rate: Rate
    full_channel: Annotated[float | None, optional(TIME)] = None


@dataclass(frozen=True)
class Topology:
    """A machine: nodes, switches and the links of the network between them.

    Raises InputError when a node cannot reach another one.

    local_latency       seconds of one message inside a node without a known interior; None: unknown
    local_bandwidth     bytes per second of one such message; None: unknown
    memory_bandwidth    bytes per second that all messages in the host memory of one node share
    routing             how one of several shortest routes is chosen: "spread" by destination
                        (D-mod-k: E. Zahavi, D-Mod-K routing, Technion CCIT 776, 2010), "first" the
                        first one in the order of links (dimension order in a torus whose links are
                        ordered by dimension)
    capabilities        what the network can do besides moving messages, from `NETWORK_CAPABILITIES`
    cautions            what its files leave open or contradict, in sentences without a full stop
    nccl                what NCCL takes on its GPUs, if measured; None: what it takes on their kind
    """

    name: str
    nodes: tuple[Node, ...]
    switches: tuple[str, ...]
    links: tuple[Link, ...]
    local_latency: float | None = None
    local_bandwidth: float | None = None
    memory_bandwidth: float = float("inf")
    routing: str = "spread"
    capabilities: frozenset[str] = frozenset()
    cautions: tuple[str, ...] = ()
    nccl: NcclCosts | None = None

    def __post_init__(self) -> None:
        where = f"topology {self.name}"
        names = [*(node.name for node in self.nodes), *self.switches]
        if len(set(names)) < len(names):
            raise InputError(f"{where}: two nodes or switches have the same name")
        if self.routing not in ROUTINGS:
            raise InputError(f"{where}: routing is one of {', '.join(ROUTINGS)}")
        if not self.capabilities <= set(NETWORK_CAPABILITIES):
            raise InputError(f"{where}: offers are some of {', '.join(NETWORK_CAPABILITIES)}")
        validate_links(where, self.links, [*self.ports, *self.switches])
        self._require_connected()

    @cached_property
    def ports(self) -> tuple[str, ...]:
        """Names of the network ports of all nodes, node after node."""
        return tuple(port for node in self.nodes for port in node.ports)

    @cached_property
    def first_port(self) -> IntArray:
        """Offsets of the nodes' ports: node n has ports first_port[n] .. first_port[n + 1] - 1."""
        return cumulative_offsets([len(node.ports) for node in self.nodes])

    @cached_property
    def port_counts(self) -> IntArray:
        """Number of ports of each node, shape (nodes,)."""
        return np.diff(self.first_port)

    @cached_property
    def is_star(self) -> bool:
        """Return whether all nodes are alike, each with one port, linked alike to one switch."""
        if len(self.switches) != 1 or len(self.ports) != len(self.nodes):
            return False
        kinds = {(node.cores, id(node.node_topology)) for node in self.nodes}
        widths = {(link.capacity, link.latency) for link in self.links}
        ends = {(link.source, link.target) for link in self.links}
        wanted = {(port, self.switches[0]) for port in self.ports}
        to_switch = ends == wanted | {(switch, port) for port, switch in wanted}
        return to_switch and len(kinds) == len(widths) == 1

    @cached_property
    def graph(self) -> RouteGraph:
        """The graph of the network; its vertices are the ports, then the switches."""
        from tuner.topology.graph import RouteGraph  # as above

        return RouteGraph([*self.ports, *self.switches], self.links, len(self.ports), self.routing)

    @cached_property
    def switch_levels(self) -> dict[str, int]:
        """Distance of each switch from the nearest node, in links.

        Switches that no node can reach are left out.
        """
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

    @cached_property
    def cores_per_node(self) -> IntArray:
        """Number of cores of each node, shape (nodes,)."""
        return np.array([node.cores for node in self.nodes])

    @cached_property
    def node_topologies(self) -> tuple[tuple[NodeTopology, IntArray], ...]:
        """Each distinct node interior with the numbers of the nodes that have it."""
        found: dict[int, tuple[NodeTopology, list[int]]] = {}
        for number, node in enumerate(self.nodes):
            if node.node_topology is not None:
                found.setdefault(id(node.node_topology), (node.node_topology, []))[1].append(number)
        return tuple((interior, np.array(nodes)) for interior, nodes in found.values())

    @property
    def has_gpus(self) -> bool:
        return all(
            n.node_topology is not None and len(n.node_topology.device_indices(GPU))
            for n in self.nodes
        )

    @cached_property
    def first_node_link(self) -> IntArray:
        """Offsets of the links inside nodes.

        Node n has the links first_node_link[n] .. first_node_link[n + 1] - 1; the links of the
        network come before the first of them.
        """
        inside = [len(node.node_topology.links) if node.node_topology else 0 for node in self.nodes]
        return len(self.links) + cumulative_offsets(inside)

    @cached_property
    def capacity(self) -> FloatArray:
        """Capacity of every link in bytes per second, first of the network, then of the nodes."""
        return np.array([link.capacity for link in self._all_links()])

    @cached_property
    def latency(self) -> FloatArray:
        """Latency of every link in seconds, first of the network, then of the nodes."""
        return np.array([link.latency for link in self._all_links()])

    @cached_property
    def link_nodes(self) -> IntArray:
        """Numbers of the nodes in which each link begins and ends, -1 for switches, (links, 2)."""
        port_node = np.repeat(np.arange(len(self.nodes)), self.port_counts)
        node_of = np.append(port_node, np.full(len(self.switches), -1))
        network = np.stack([node_of[self.graph.source], node_of[self.graph.target]], axis=1)
        inside = np.repeat(np.arange(len(self.nodes)), np.diff(self.first_node_link))
        return np.concatenate([network, np.stack([inside, inside], axis=1)])

    @cached_property
    def resource_capacity(self) -> FloatArray:
        """Capacity of every resource in bytes per second: the links, then a memory bus per node.

        The last value is that of no resource, number -1: infinity.
        """
        buses = np.full(len(self.nodes), self.memory_bandwidth)
        return np.concatenate([self.capacity, buses, [np.inf]])

    def resource_name(self, resource: int) -> str:
        """Return the name of a resource, in the order of `resource_capacity`, for people."""
        if resource < len(self.links):
            return f"{self.links[resource].source} -> {self.links[resource].target}"
        if resource < len(self.capacity):
            node = int(np.searchsorted(self.first_node_link, resource, side="right")) - 1
            inside = self.nodes[node].node_topology
            assert inside is not None
            link = inside.links[resource - int(self.first_node_link[node])]
            return f"{link.source} -> {link.target} in {self.nodes[node].name}"
        return f"memory of {self.nodes[resource - len(self.capacity)].name}"

    @cached_property
    def resource_latency(self) -> FloatArray:
        """Latency of every resource in seconds, in the same order; memory buses have none."""
        return np.append(self.latency, np.zeros(len(self.nodes) + 1))

    @cached_property
    def resource_nodes(self) -> IntArray:
        """Nodes in which every resource begins and ends as in `link_nodes`, in the same order."""
        buses = np.repeat(np.arange(len(self.nodes))[:, None], 2, axis=1)
        return np.concatenate([self.link_nodes, buses, [[-1, -1]]])

    def _all_links(self) -> Iterator[Link]:
        yield from self.links
        for node in self.nodes:
            yield from node.node_topology.links if node.node_topology else ()

    def _require_connected(self) -> None:
        """Raise InputError unless every node has a port on each rail of the first node.

        A rail is a strongly connected component of the network.
        """
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
    """Return where each of consecutive runs of these sizes begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def validate_links(where: str, links: Sequence[Link], names: Sequence[str]) -> None:
    """Raise InputError unless the names differ and every link joins two of them, once.

    where       what contains the links, for the message
    """
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
