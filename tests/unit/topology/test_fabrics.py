"""Fabrics: how many switches and links, how messages spread, how far they go."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tuner.base.errors import InputError
from tuner.topology import Device, Link, Node, NodeTopology, Topology
from tuner.topology.readers.fabrics import (
    Dragonfly,
    Fabric,
    FatTree,
    NetworkCable,
    OneSwitch,
    Torus,
    fabric_topology,
)

WIRE = NetworkCable(12.5e9, 1e-6)


def routes(topology: Topology, source: list[int], target: list[int]) -> list[list[Link]]:
    """The links from port to port."""
    found = topology.graph.routes(np.array(source), np.array(target))
    return [[topology.links[link] for link in route if link >= 0] for route in found]


def every_pair(topology: Topology) -> tuple[list[int], list[int]]:
    n = len(topology.ports)
    return [a for a in range(n) for b in range(n) if a != b], [
        b for a in range(n) for b in range(n) if a != b
    ]


def hosts(number: int, nics: int) -> list[Node]:
    """Nodes of one CPU with so many NICs."""
    devices = [Device("cpu", "cpu"), *(Device(f"nic{i}", "nic") for i in range(nics))]
    links = [
        Link(*ends, 1e10, 0.0, "pcie")
        for i in range(nics)
        for ends in (("cpu", f"nic{i}"), (f"nic{i}", "cpu"))
    ]
    inside = NodeTopology(tuple(devices), tuple(links))
    return [Node(f"node{i}", 1, inside) for i in range(number)]


def test_one_switch() -> None:
    topology = fabric_topology("flat", 5, OneSwitch(WIRE))
    assert topology.switches == ("switch",)
    assert len(topology.links) == 10
    assert [len(route) for route in routes(topology, [0, 1], [4, 0])] == [2, 2]


@pytest.mark.parametrize(("uplinks", "sharing"), [(16, 1), (8, 2)])
def test_two_level_fat_tree_spreads_by_destination(uplinks: int, sharing: int) -> None:
    """All nodes send to the node of the same number on the next leaf: D-mod-k gives each uplink
    as many flows as the taper says, and no link two different ones."""
    topology = fabric_topology("tree", 64, FatTree(WIRE, (16,), (float(uplinks),)))
    assert len(topology.switches) == 4 + uplinks
    assert len(topology.links) == 2 * (64 + 4 * uplinks)
    found = routes(topology, list(range(64)), [(i + 16) % 64 for i in range(64)])
    assert {len(route) for route in found} == {4}
    up = Counter((route[1].source, route[1].target) for route in found)
    assert set(up.values()) == {sharing}
    for i, route in enumerate(found):
        assert route[1].target == f"spine{(i + 16) % 64 % uplinks}"


def test_taper_halves_the_uplinks() -> None:
    def upwards(tree: FatTree) -> float:
        links = fabric_topology("t", 64, tree).links
        return sum(x.capacity for x in links if (x.source[:4], x.target[:5]) == ("leaf", "spine"))

    full, tapered = (FatTree(WIRE, (16,), (up,)) for up in (16.0, 8.0))
    assert upwards(full) == 64 * WIRE.capacity
    assert upwards(tapered) == upwards(full) / 2
    assert (full.taper, tapered.taper) == (1.0, 2.0)
    assert upwards(FatTree(WIRE, (16,), (16 / 3,))) == pytest.approx(upwards(full) / 3)


def test_three_levels_use_every_switch() -> None:
    topology = fabric_topology("tree", 64, FatTree(WIRE, (4, 4), (4.0, 4.0)))
    assert len(topology.switches) == 16 + 16 + 16
    source, target = every_pair(topology)
    found = routes(topology, source, target)
    assert max(map(len, found)) == 6
    used = Counter(
        link.target for route in found for link in route if link.target in topology.switches[-16:]
    )
    assert len(used) == 16
    assert len(set(used.values())) == 1, "the spines carry alike"


def test_only_as_many_switches_as_needed() -> None:
    small = fabric_topology("tree", 10, FatTree(WIRE, (16,), (16.0,)))
    assert small.switches == ("leaf0",)
    partial = fabric_topology("tree", 20, FatTree(WIRE, (16, 4), (16.0, 16.0)))
    assert len(partial.switches) == 2 + 16


def test_rails_put_the_nics_of_a_node_on_different_leaves() -> None:
    topology = fabric_topology("rails", hosts(6, 2), FatTree(WIRE, (4,), (4.0,), rails=True))
    leaf = {link.source: link.target for link in topology.links if link.target.startswith("leaf")}
    assert [leaf[f"node{n}.nic{i}"] for n in (0, 3) for i in (0, 1)] == [
        "leaf0",
        "leaf1",
        "leaf0",
        "leaf1",
    ]
    assert [leaf[f"node{n}.nic{i}"] for n in (4, 5) for i in (0, 1)] == [
        "leaf2",
        "leaf3",
        "leaf2",
        "leaf3",
    ]


def test_a_switch_crossing_is_paid_between_switches() -> None:
    tree = FatTree(NetworkCable(1e10), (2,), (2.0,), uplink_cable=NetworkCable(2e10, 1e-7))
    topology = fabric_topology("tree", 4, tree)
    near, far = routes(topology, [0, 0], [1, 3])
    assert sum(link.latency for link in near) == 0.0
    assert sum(link.latency for link in far) == pytest.approx(2e-7)
    assert far[1].capacity == 2e10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "routers", "most"), [(36, (4,), 3), (50, (10,), 3), (300, (4, 3), 5)]
)
def test_dragonfly_is_never_far(nodes: int, routers: tuple[int, ...], most: int) -> None:
    """Canonical: local, global, local. A flattened butterfly inside adds one hop at either end."""
    topology = fabric_topology(
        "df", nodes, Dragonfly(WIRE, routers, nodes_per_router=1, global_ports=2)
    )
    found = routes(topology, *every_pair(topology))
    between = [
        sum(link.source in topology.switches and link.target in topology.switches for link in route)
        for route in found
    ]
    assert max(between) == most


def test_dragonfly_joins_every_pair_of_groups_alike() -> None:
    topology = fabric_topology("df", 72, Dragonfly(WIRE, (4,), nodes_per_router=2, global_ports=4))
    group = {name: name.partition(".")[0] for name in topology.switches}
    assert len(set(group.values())) == 9
    across = Counter(
        (group[link.source], group[link.target])
        for link in topology.links
        if link.source in group
        and link.target in group
        and group[link.source] != group[link.target]
    )
    assert len(across) == 72
    assert set(across.values()) == {2}
    leaving = Counter(
        link.source
        for link in topology.links
        if group.get(link.source) != group.get(link.target)
        and link.target in group
        and link.source in group
    )
    assert set(leaving.values()) == {4}, "every router has its four cables to other groups"


def test_torus_goes_dimension_by_dimension() -> None:
    topology = fabric_topology("torus", 60, Torus(WIRE, (5, 4, 3)))
    assert topology.routing == "first"
    assert len(topology.links) == 2 * 60 + 2 * 3 * 60

    def place(name: str) -> list[int]:
        return [int(part) for part in name.removeprefix("router").split(".")]

    for route in routes(topology, *every_pair(topology)):
        moved = [
            next(
                axis
                for axis, (a, b) in enumerate(zip(place(x.source), place(x.target), strict=True))
                if a != b
            )
            for x in route[1:-1]
        ]
        assert moved == sorted(moved)
        assert len(moved) <= 2 + 2 + 1


def test_a_torus_two_wide_has_one_cable() -> None:
    topology = fabric_topology("torus", 4, Torus(WIRE, (2, 2, 1)))
    assert len(topology.links) == 2 * 4 + 2 * 4


@pytest.mark.parametrize(
    ("nodes", "fabric", "sentence"),
    [
        (65, Torus(WIRE, (4, 4, 4)), "65 nodes do not fit on a torus 4 x 4 x 4: it has 64"),
        (72, Dragonfly(WIRE, (4,), 2, 1), "needs 8 cables out of each, but 4 routers with 1"),
        (72, Dragonfly(WIRE, (4,), 2, 2, groups=3), "3 groups .* too few: the nodes need 9"),
        (60000, FatTree(WIRE, (1,), (4096.0,)), "make it smaller"),
        (2, Torus(WIRE, (1000, 1000)), "make it smaller"),
        (60000, Dragonfly(WIRE, (30000,), 1, 1), "make it smaller"),
    ],
)
def test_what_does_not_fit_is_said(nodes: int, fabric: Fabric, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        fabric_topology("x", nodes, fabric)
