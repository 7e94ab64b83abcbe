"""Networks of common shapes for the nodes of a machine, with a taper: `dragonfly:2`.

A taper is the rate of what hangs below over the rate of the links that lead on: at a leaf of a fat
tree, out of a group of a dragonfly, and along one direction of a torus.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.base.spelling import unknown_name
from tuner.topology.readers.cabling import NetworkCable
from tuner.topology.readers.fabrics import Dragonfly, Fabric, FatTree, Torus

FAT_TREE, RAIL_OPTIMISED, DRAGONFLY, TORUS = SHAPES = (
    "fat_tree",
    "rail_optimised",  # a fat tree with the NICs of a node on different leaves
    "dragonfly",
    "torus",
)
MAX_TAPER = 64
LEAF_PORTS = 32  # half of the ports of a switch, as in the DGX SuperPOD reference architecture
ROUTER_PORTS = (
    16  # for NICs; with twice as many routers in a group balanced (Kim et al., ISCA 2008)
)
GROUP_ROUTERS = 2 * ROUTER_PORTS


@dataclass(frozen=True)
class ShapedNodes:
    """The nodes for which a fabric is made.

    nics        of each node
    cable       between a NIC and its switch
    latency     seconds of a switch crossing
    leaf_ports  NICs at each leaf of a fat tree
    """

    nodes: int
    nics: int
    cable: NetworkCable
    latency: float
    leaf_ports: int = LEAF_PORTS

    def wire(self, cables: float) -> NetworkCable:
        """Return a link between switches with the rate of so many cables of a NIC."""
        return NetworkCable(self.cable.capacity * cables, self.latency)


def read_shape(what: str, value: Any) -> str:
    """Return a shape such as `torus` or `dragonfly:2`; raise InputError for another one."""
    name, colon, text = str(value).partition(":")
    if name not in SHAPES:
        raise InputError(f"{what}: {unknown_name('fabric', value, SHAPES)}")
    if colon and not 1 <= taper_of(str(value)) <= MAX_TAPER:
        raise InputError(
            f"{what}: the taper of {name} must be a number from 1 to {MAX_TAPER}, such as"
            f" {name}:2, not {shortened_repr(text)}"
        )
    return str(value)


def taper_of(shape: str) -> float:
    """Return the taper of a shape, 1 where it states none; NaN for what is no number."""
    _, colon, text = shape.partition(":")
    try:
        return float(text) if colon else 1.0
    except ValueError:
        return math.nan


def format_shape(shape: object) -> str:
    """Return a shape as text for people, such as `dragonfly 2:1`."""
    name, colon, taper = str(shape).partition(":")
    return name.replace("_", " ") + (f" {taper}:1" if colon else "")


def shaped_fabric(shape: str, around: ShapedNodes) -> Fabric:
    """Return the fabric of a shape that `read_shape` has read."""
    name, taper = shape.partition(":")[0], taper_of(shape)
    if name == DRAGONFLY:
        return _dragonfly(taper, around)
    if name == TORUS:
        link = around.wire(around.nics / taper)
        return Torus(around.cable, _torus_shape(around.nodes), 1, link)
    ports = around.leaf_ports
    if taper > ports:
        raise InputError(f"a taper of these leaves is at most {ports}, their ports, not {taper:g}")
    rails = name == RAIL_OPTIMISED
    return FatTree(around.cable, (ports,), (ports / taper,), rails, around.wire(1))


def _dragonfly(taper: float, around: ShapedNodes) -> Dragonfly:
    """Return groups with one link between each pair of routers, and equal links to other groups."""
    of_router = max(1, ROUTER_PORTS // around.nics)
    groups = math.ceil(around.nodes / (GROUP_ROUTERS * of_router))
    others = max(1, groups - 1)
    links = min(GROUP_ROUTERS * ROUTER_PORTS // others, GROUP_ROUTERS)  # to each other group
    injected = GROUP_ROUTERS * of_router * around.nics
    return Dragonfly(
        around.cable,
        (GROUP_ROUTERS,),
        of_router,
        ROUTER_PORTS,
        (around.wire(1),),
        around.wire(injected / taper / (others * links)),
    )


def _torus_shape(nodes: int) -> tuple[int, ...]:
    """Return three factors of a number of nodes that are as alike as possible."""
    shapes = [
        (a, b, nodes // (a * b))
        for a in range(1, math.isqrt(nodes) + 1)
        if nodes % a == 0
        for b in range(a, math.isqrt(nodes // a) + 1)
        if (nodes // a) % b == 0
    ]
    return min(shapes, key=lambda shape: (max(shape), -min(shape)))
