"""What every fabric is made of: cables, and what connecting them gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.base.errors import InputError
from tuner.topology import NIC, Link, Node

MAX_PORTS = 1 << 19  # of all nodes together; more would take gigabytes
MAX_LINKS = 1 << 20  # both directions counted
MAX_NODE_LINKS = 1 << 22  # of all nodes together
NodePorts = Sequence[Sequence[str]]  # per node


@dataclass(frozen=True)
class NetworkCable:
    """One cable, the same in both directions: bytes per second, seconds."""

    capacity: float
    latency: float = 0.0

    def links_between(self, a: str, b: str, count: int = 1) -> tuple[Link, Link]:
        """`count` such cables side by side, one link per direction."""
        there = Link(a, b, self.capacity * count, self.latency, "network", count)
        return there, Link(b, a, there.capacity, self.latency, "network", count)


@dataclass(frozen=True)
class Cabling:
    """What a fabric adds to the nodes; `routing` as in `Topology`."""

    switches: tuple[str, ...]
    links: tuple[Link, ...]
    routing: str = "spread"


def ports_of_nodes(nodes: Sequence[Node]) -> list[tuple[str, ...]]:
    """Where cables meet each node. InputError, before anything grows, for more than can be held."""
    number, inner = 0, 0
    interiors = {id(node.node_topology): node.node_topology for node in nodes}
    for key, alike in Counter(id(node.node_topology) for node in nodes).items():
        interior = interiors[key]
        devices = interior.devices if interior else ()
        number += alike * max(1, sum(device.kind == NIC for device in devices))
        inner += alike * (len(interior.links) if interior else 0)
    check_fabric_size(number, 2 * number)
    if inner > MAX_NODE_LINKS:
        raise InputError(
            f"{len(nodes)} nodes have {inner} links inside: at most {MAX_NODE_LINKS} can be"
            " simulated; take fewer nodes"
        )
    return [node.ports for node in nodes]


def flatten_names(ends: NodePorts) -> list[str]:
    """All ends, node after node."""
    return [end for of_node in ends for end in of_node]


def check_fabric_size(ports: int, links: int) -> None:
    """InputError for more than can be simulated."""
    if ports > MAX_PORTS or links > MAX_LINKS:
        raise InputError(
            f"a fabric for {ports} ends needs {links} links: at most {MAX_PORTS} ends and"
            f" {MAX_LINKS} links can be simulated; make it smaller"
        )
