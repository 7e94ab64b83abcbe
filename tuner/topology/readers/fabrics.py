"""Networks between nodes that are generated from a shape: switches, links and routing.

Every fabric is a frozen record of its shape with a method `cabling(ports)`. A port is where a cable
of the fabric is attached to a node: `node3`, or `node3.nic1` where a node has several NICs. A link
between two switches has the latency of one switch crossing, so that a message through one switch
only has none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tuner.topology import Link, Node, Topology
from tuner.topology.readers.cabling import (
    Cabling,
    NetworkCable,
    NodePorts,
    check_fabric_size,
    flatten_names,
    ports_of_nodes,
)
from tuner.topology.readers.direct import Dragonfly, Torus

__all__ = [
    "Cabling",
    "Dragonfly",
    "Fabric",
    "FatTree",
    "NetworkCable",
    "NodePorts",
    "OneSwitch",
    "Torus",
    "fabric_topology",
]


class Fabric(Protocol):
    """Interface of all fabrics."""

    @property
    def node_cable(self) -> NetworkCable:
        """The cable between a NIC, or a node without one, and its switch."""

    @property
    def summary(self) -> str:
        """Description in one line."""

    def cabling(self, ports: NodePorts) -> Cabling:
        """Return the switches and links for these ports; raise InputError when they do not fit."""


def fabric_topology(
    name: str, nodes: int | Sequence[Node], fabric: Fabric, **fields: Any
) -> Topology:
    """Return a topology of nodes on a fabric.

    nodes       the nodes, or their number; then they are called node0, node1, ...
    fields      further fields of `Topology`

    Raises InputError when the nodes do not fit on the fabric.
    """
    if isinstance(nodes, int):
        nodes = [Node(f"node{number}") for number in range(nodes)]
    wiring = fabric.cabling(ports_of_nodes(nodes))
    return Topology(
        name, tuple(nodes), wiring.switches, wiring.links, routing=wiring.routing, **fields
    )


@dataclass(frozen=True)
class OneSwitch:
    """All ports on one switch that is never the bottleneck."""

    node_cable: NetworkCable

    @property
    def summary(self) -> str:
        return "one switch"

    def cabling(self, ports: NodePorts) -> Cabling:
        """Return one switch with a link pair per port; raise InputError for too many ports."""
        names = flatten_names(ports)
        check_fabric_size(len(names), 2 * len(names))
        links = [link for end in names for link in self.node_cable.links_between(end, "switch")]
        return Cabling(("switch",), tuple(links))


@dataclass(frozen=True)
class FatTree:
    """A tree of switches with `down[0]` ports and `up[0]` uplinks at each leaf.

    With one entry each, every uplink of a leaf goes to a spine of its own. With two, a switch of
    the second level has `down[1]` leaves below it and `up[1]` uplinks, and so on: an extended
    generalised fat tree (Oehring et al., IPPS 1995). The taper of a level is down / up; a
    fractional number of uplinks is rounded up, with cables of less capacity, so that the total
    capacity stays the same.

    rails           connect the NICs of a node to different leaves: the first NICs of `down[0]`
                    nodes share one leaf, the second NICs the next
    uplink_cable    cable between switches; None: as `node_cable`
    uplink_counts   how many such cables each uplink has, level by level; empty: one
    """

    node_cable: NetworkCable
    down: tuple[int, ...] = (16,)
    up: tuple[float, ...] = (16.0,)
    rails: bool = False
    uplink_cable: NetworkCable | None = None
    uplink_counts: tuple[int, ...] = ()

    @property
    def taper(self) -> float:
        """Capacity into a leaf from below divided by its capacity upwards."""
        return self.down[0] / self.up[0]

    @property
    def summary(self) -> str:
        taper = "non-blocking" if self.taper <= 1 else f"{self.taper:g}:1 above the leaves"
        rails = ", one rail per NIC" if self.rails else ""
        levels = f"{len(self.down) + 1} levels, {self.down[0]} ports per leaf"
        return f"fat tree of {levels}{rails}, {taper}"

    def cabling(self, ports: NodePorts) -> Cabling:
        """Return only as many switches as the ports need, with their links."""
        leaves = list(self._leaves(ports))
        names = [f"leaf{number}" for number in range(len(leaves))]
        check_fabric_size(sum(map(len, leaves)), 2 * self._size(sum(map(len, leaves)), len(leaves)))
        switches = list(names)
        links = [
            link
            for name, below in zip(names, leaves, strict=True)
            for end in below
            for link in self.node_cable.links_between(end, name)
        ]
        pods = [[name] for name in names]  # the topmost switches of each subtree
        for level, up in enumerate(self.up, start=1):
            width = self.down[level] if level < len(self.down) else len(pods)
            if len(pods) == 1:
                break
            pods, new = self._add_level(pods, max(width, 1), level, up, links)
            switches += new
        return Cabling(tuple(switches), tuple(links))

    def _leaves(self, ends: NodePorts) -> Iterator[list[str]]:
        """Yield the ports below each leaf."""
        if not self.rails:
            names = flatten_names(ends)
            for first in range(0, len(names), self.down[0]):
                yield names[first : first + self.down[0]]
            return
        for first in range(0, len(ends), self.down[0]):
            unit = ends[first : first + self.down[0]]
            for rail in range(max(map(len, unit))):
                yield [of_node[rail] for of_node in unit if rail < len(of_node)]

    def _size(self, ends: int, leaves: int) -> int:
        """Return a lower bound on the number of cables."""
        cables, switches = ends, leaves
        for level, up in enumerate(self.up, start=1):
            cables += switches * math.ceil(up)
            below = self.down[level] if level < len(self.down) else leaves
            switches = max(1, switches // below) * math.ceil(up)
        return cables

    def _add_level(
        self, pods: list[list[str]], width: int, level: int, up: float, links: list[Link]
    ) -> tuple[list[list[str]], list[str]]:
        """Join each `width` subtrees under a new level; return the new subtrees and switches.

        pods    topmost switches of each subtree
        level   number of the new level, 1 above the leaves
        up      uplinks per switch below; may be fractional
        links   list that the new links are appended to
        """
        whole = math.ceil(up)
        trunk = self.uplink_cable or self.node_cable
        count = self.uplink_counts[level - 1] if self.uplink_counts else 1
        cable = NetworkCable(trunk.capacity * count * up / whole, trunk.latency)
        top = level == len(self.up)
        joined, new = [], []
        for number, first in enumerate(range(0, len(pods), width)):
            below = pods[first : first + width]
            above = [
                f"spine{i}" if top else f"level{level}.{number}.{i}"
                for i in range(len(below[0]) * whole)
            ]
            for pod in below:
                for place, switch in enumerate(pod):
                    for above_it in above[place * whole : (place + 1) * whole]:
                        links += cable.links_between(switch, above_it)
            joined.append(above)
            new += above
        return joined, new
