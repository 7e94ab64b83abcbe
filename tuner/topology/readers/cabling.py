"""Cables of a network, limits on its size, and the switches and links that a fabric consists of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.base.errors import InputError
from tuner.topology import NIC, Link, Node

MAX_PORTS = 1 << 19  # of all nodes together; more would take gigabytes of memory
MAX_LINKS = 1 << 20  # counting both directions
MAX_NODE_LINKS = 1 << 22  # of all nodes together
NodePorts = Sequence[Sequence[str]]  # the port names of each node


@dataclass(frozen=True)
class NetworkCable:
    """A full-duplex network cable: capacity in bytes per second, latency in seconds."""

    capacity: float
    latency: float = 0.0

    def links_between(self, a: str, b: str) -> tuple[Link, Link]:
        """Return the links from a to b and back."""
        there = Link(a, b, self.capacity, self.latency, "network")
        return there, Link(b, a, self.capacity, self.latency, "network")


@dataclass(frozen=True)
class Cabling:
    """The switches and links that a fabric adds to the nodes; `routing` as in `Topology`."""

    switches: tuple[str, ...]
    links: tuple[Link, ...]
    routing: str = "spread"


def ports_of_nodes(nodes: Sequence[Node]) -> list[tuple[str, ...]]:
    """Return the port names of each node.

    Raises InputError, before large structures are built, for more ports or links than can be
    simulated.
    """
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
    """Return the ports of all nodes, node after node."""
    return [end for of_node in ends for end in of_node]


def check_fabric_size(ports: int, links: int) -> None:
    """Raise InputError for more ports or links than can be simulated."""
    if ports > MAX_PORTS or links > MAX_LINKS:
        raise InputError(
            f"a fabric for {ports} ends needs {links} links: at most {MAX_PORTS} ends and"
            f" {MAX_LINKS} links can be simulated; make it smaller"
        )
