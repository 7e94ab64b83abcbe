"""Direct networks, whose nodes are attached to routers of one level: dragonfly and torus."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from tuner.base.errors import InputError
from tuner.topology import Link
from tuner.topology.readers.cabling import (
    Cabling,
    NetworkCable,
    NodePorts,
    check_fabric_size,
    flatten_names,
)


@dataclass(frozen=True)
class Dragonfly:
    """Groups of routers, with links between all pairs of groups (Kim et al., ISCA 2008).

    In a group of shape (a,) all routers are neighbours: a route has at most 3 links between
    routers. With (a, b), as on Cray Aries, they form a grid whose rows and columns are complete (a
    flattened butterfly): at most 5 links. Each router has `global_ports` cables to other groups,
    which are distributed evenly over the other groups, router by router.

    group_shape         number of routers of a group along each dimension
    nodes_per_router    number of nodes attached to each router
    local_cables        cables within a group, one per dimension; empty: as `node_cable`
    global_cable        cable between groups; None: as `node_cable`
    groups              number of groups; None: as many as the nodes need
    """

    node_cable: NetworkCable
    group_shape: tuple[int, ...] = (4,)
    nodes_per_router: int = 2
    global_ports: int = 2
    local_cables: tuple[NetworkCable, ...] = ()
    global_cable: NetworkCable | None = None
    groups: int | None = None

    @property
    def summary(self) -> str:
        shape = " x ".join(map(str, self.group_shape))
        return f"dragonfly, groups of {shape} routers, {self.nodes_per_router} nodes per router"

    def cabling(self, ports: NodePorts) -> Cabling:
        """Return the routers and links.

        Raises InputError for more groups than their cables can join, and for too few.
        """
        size = math.prod(self.group_shape)
        needed = math.ceil(len(ports) / (size * self.nodes_per_router))
        groups = needed if self.groups is None else self.groups
        self._check_global_ports(groups, needed, size)
        check_fabric_size(len(ports), groups * size * (sum(self.group_shape) + self.global_ports))
        names = [[f"group{g}.{r}" for r in range(size)] for g in range(groups)]
        routers = flatten_names(names)
        links = [
            link
            for number, of_node in enumerate(ports)
            for end in of_node
            for link in self.node_cable.links_between(end, routers[number // self.nodes_per_router])
        ]
        for group in names:
            links += self._local_links(group)
        links += self.global_links(names)
        return Cabling(tuple(routers), tuple(links))

    def _check_global_ports(self, groups: int, needed: int, size: int) -> None:
        if groups < needed:
            raise InputError(
                f"{groups} groups of a dragonfly are too few: the nodes need {needed}; give more"
                " groups or more routers"
            )
        if groups - 1 > size * self.global_ports:
            raise InputError(
                f"a dragonfly of {groups} groups needs {groups - 1} cables out of each, but"
                f" {size} routers with {self.global_ports} each have {size * self.global_ports}"
            )

    def _local_links(self, group: list[str]) -> Iterator[Link]:
        """Yield the links within a group: complete rows, complete columns, and so on."""
        wires = self.local_cables or (self.node_cable,) * len(self.group_shape)
        places = list(
            product(*map(range, reversed(self.group_shape)))
        )  # the first dimension fastest
        number = {place: index for index, place in enumerate(places)}
        for place in places:
            for dimension, (width, wire) in enumerate(zip(self.group_shape, wires, strict=True)):
                axis = len(place) - 1 - dimension
                for other in range(place[axis] + 1, width):
                    there = (*place[:axis], other, *place[axis + 1 :])
                    yield from wire.links_between(group[number[place]], group[number[there]])

    def global_links(self, names: list[list[str]]) -> Iterator[Link]:
        """Yield the cables between each pair of groups, distributed over the routers in turn.

        names   routers by group
        """
        groups, size = len(names), len(names[0])
        cables = size * self.global_ports // max(groups - 1, 1)
        cables = min(cables, size)  # at most one per router and pair
        wire = self.global_cable or self.node_cable
        for a in range(groups):
            for b in range(a + 1, groups):
                for cable in range(cables):
                    here = ((b - a - 1) * cables + cable) % size
                    there = ((a - b - 1) % groups * cables + cable) % size
                    yield from wire.links_between(names[a][here], names[b][there])


@dataclass(frozen=True)
class Torus:
    """A grid of routers with wrap-around links and dimension-ordered routing.

    shape               number of routers along each dimension
    nodes_per_router    number of nodes attached to each router
    router_cable        cable between routers; None: as `node_cable`
    """

    node_cable: NetworkCable
    shape: tuple[int, ...] = (4, 4, 4)
    nodes_per_router: int = 1
    router_cable: NetworkCable | None = None

    @property
    def summary(self) -> str:
        return f"torus {' x '.join(map(str, self.shape))}"

    def cabling(self, ports: NodePorts) -> Cabling:
        """Return the routers and links; raise InputError for more nodes than the torus holds."""
        room = math.prod(self.shape) * self.nodes_per_router
        if len(ports) > room:
            raise InputError(f"{len(ports)} nodes do not fit on a {self.summary}: it has {room}")
        check_fabric_size(len(ports), 2 * len(self.shape) * math.prod(self.shape))
        places = list(product(*map(range, self.shape)))
        names = {place: "router" + ".".join(map(str, place)) for place in places}
        routers = list(names.values())
        links = [
            link
            for number, of_node in enumerate(ports)
            for end in of_node
            for link in self.node_cable.links_between(end, routers[number // self.nodes_per_router])
        ]
        wire = self.router_cable or self.node_cable
        for axis, width in enumerate(self.shape):
            pairs = [
                wire.links_between(names[place], names[_next_on_axis(place, axis, width)])
                for place in places
                if width > 2 or place[axis] == 0 < width - 1  # a ring of two has one cable
            ]
            links += [up for up, _ in pairs] + [down for _, down in pairs]
        return Cabling(tuple(routers), tuple(links), "first")


def _next_on_axis(place: tuple[int, ...], axis: int, width: int) -> tuple[int, ...]:
    """Return the next place along one axis, with wrap-around."""
    return (*place[:axis], (place[axis] + 1) % width, *place[axis + 1 :])
