"""Networks whose nodes hang on routers that are joined without a level above: dragonfly, torus."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from tuner.base.errors import InputError
from tuner.topology import Link
from tuner.topology.readers.cabling import Ends, Wire, Wiring, flat, require_room


@dataclass(frozen=True)
class Dragonfly:
    """Groups of routers, all groups linked with one another (Kim et al., ISCA 2008).

    Inside a group of `routers` = (a,) all routers are neighbours: at most 3 links between routers.
    With (a, b), as on Cray Aries, they form a grid whose rows and columns are complete (a
    flattened butterfly): at most 5. Each router has `outward` cables to other groups, which are
    dealt out evenly to the other groups, router by router.
    """

    port: Wire
    routers: tuple[int, ...] = (4,)
    per_router: int = 2  # nodes
    outward: int = 2
    local: tuple[Wire, ...] = ()  # one per dimension of `routers`; like `port` when empty
    across: Wire | None = None  # between groups; like `port` when None
    groups: int | None = None  # as many as the nodes need when None

    @property
    def summary(self) -> str:
        """One line for people."""
        shape = " x ".join(map(str, self.routers))
        return f"dragonfly, groups of {shape} routers, {self.per_router} nodes per router"

    def wiring(self, ends: Ends) -> Wiring:
        """Raises InputError for more groups than cables between them reach."""
        size = math.prod(self.routers)
        needed = math.ceil(len(ends) / (size * self.per_router))
        groups = needed if self.groups is None else self.groups
        self._require_reach(groups, needed, size)
        require_room(len(ends), groups * size * (sum(self.routers) + self.outward))
        names = [[f"group{g}.{r}" for r in range(size)] for g in range(groups)]
        routers = flat(names)
        links = [
            link
            for number, of_node in enumerate(ends)
            for end in of_node
            for link in self.port.between(end, routers[number // self.per_router])
        ]
        for group in names:
            links += self._inside(group)
        links += self._between(names)
        return Wiring(tuple(routers), tuple(links))

    def _require_reach(self, groups: int, needed: int, size: int) -> None:
        if groups < needed:
            raise InputError(
                f"{groups} groups of a dragonfly are too few: the nodes need {needed}; give more"
                " groups or more routers"
            )
        if groups - 1 > size * self.outward:
            raise InputError(
                f"a dragonfly of {groups} groups needs {groups - 1} cables out of each, but"
                f" {size} routers with {self.outward} each have {size * self.outward}"
            )

    def _inside(self, group: list[str]) -> Iterator[Link]:
        """Complete rows, complete columns, ..."""
        wires = self.local or (self.port,) * len(self.routers)
        places = list(product(*map(range, reversed(self.routers))))  # the first dimension fastest
        number = {place: index for index, place in enumerate(places)}
        for place in places:
            for dimension, (width, wire) in enumerate(zip(self.routers, wires, strict=True)):
                axis = len(place) - 1 - dimension
                for other in range(place[axis] + 1, width):
                    there = (*place[:axis], other, *place[axis + 1 :])
                    yield from wire.between(group[number[place]], group[number[there]])

    def _between(self, names: list[list[str]]) -> Iterator[Link]:
        """The cables of a group to each other one, on routers that take turns."""
        groups, size = len(names), len(names[0])
        cables = size * self.outward // max(groups - 1, 1)
        cables = min(cables, size)  # at most one per router and pair
        wire = self.across or self.port
        for a in range(groups):
            for b in range(a + 1, groups):
                for cable in range(cables):
                    here = ((b - a - 1) * cables + cable) % size
                    there = ((a - b - 1) % groups * cables + cable) % size
                    yield from wire.between(names[a][here], names[b][there])


@dataclass(frozen=True)
class Torus:
    """A grid of routers that closes in every dimension; routes go dimension by dimension."""

    port: Wire
    shape: tuple[int, ...] = (4, 4, 4)
    per_router: int = 1  # nodes
    link: Wire | None = None  # between routers; like `port` when None

    @property
    def summary(self) -> str:
        """One line for people."""
        return f"torus {' x '.join(map(str, self.shape))}"

    def wiring(self, ends: Ends) -> Wiring:
        """Raises InputError for more nodes than the shape has room for."""
        room = math.prod(self.shape) * self.per_router
        if len(ends) > room:
            raise InputError(f"{len(ends)} nodes do not fit on a {self.summary}: it has {room}")
        require_room(len(ends), 2 * len(self.shape) * math.prod(self.shape))
        places = list(product(*map(range, self.shape)))
        names = {place: "router" + ".".join(map(str, place)) for place in places}
        routers = list(names.values())
        links = [
            link
            for number, of_node in enumerate(ends)
            for end in of_node
            for link in self.port.between(end, routers[number // self.per_router])
        ]
        wire = self.link or self.port
        for axis, width in enumerate(self.shape):
            pairs = [
                wire.between(names[place], names[_beside(place, axis, width)])
                for place in places
                if width > 2 or place[axis] == 0 < width - 1  # a ring of two has one cable
            ]
            links += [up for up, _ in pairs] + [down for _, down in pairs]
        return Wiring(tuple(routers), tuple(links), "first")


def _beside(place: tuple[int, ...], axis: int, width: int) -> tuple[int, ...]:
    """The next place along one axis, round the end."""
    return (*place[:axis], (place[axis] + 1) % width, *place[axis + 1 :])
