"""Platforms of SimGrid: clusters of all shapes, zones with routes, units, and what is refused."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tuner.base.errors import InputError
from tuner.machines.topology_files import parse_topology
from tuner.topology import Topology
from tuner.topology.readers import simgrid_routes
from tuner.topology.readers.safe_xml import XmlElement
from tuner.topology.readers.simgrid_units import bandwidth, seconds


def platform(inside: str, version: str = "4.1") -> str:
    return (
        "<?xml version='1.0'?>\n"
        '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">\n'
        f'<platform version="{version}">\n{inside}\n</platform>\n'
    )


def cluster(radical: str = "0-3", **more: str) -> str:
    told = {"prefix": "n", "suffix": ".x", "speed": "1Gf", "bw": "125MBps", "lat": "50us", **more}
    words = " ".join(f'{key}="{value}"' for key, value in told.items())
    return platform(
        f'<zone id="world" routing="Full">\n<cluster id="c" radical="{radical}" {words}/>\n</zone>'
    )


def read(text: str) -> Topology:
    found, topology = parse_topology(text)
    assert found == "simgrid"
    return topology


def path(topology: Topology, a: int, b: int) -> list[tuple[float, float]]:
    """Return bandwidth and latency of the links between two nodes, without those of no latency."""
    (route,) = topology.graph.routes(np.array([a]), np.array([b])).tolist()
    links = [topology.links[link] for link in route if link >= 0]
    return [(link.capacity, link.latency) for link in links if link.latency]


WIRE = (125e6, 50e-6)


def test_a_flat_cluster_is_one_switch() -> None:
    topology = read(cluster("0-1,7", core="4", loopback_bw="1GBps", loopback_lat="1us"))
    assert [node.name for node in topology.nodes] == ["n0.x", "n1.x", "n7.x"]
    assert {node.cores for node in topology.nodes} == {4}
    assert (topology.local_bandwidth, topology.local_latency) == (1e9, 1e-6)
    assert path(topology, 0, 2) == [WIRE] * 2
    assert topology.is_star
    assert topology.cautions == ()
    assert read(cluster(loopback_bw="0", loopback_lat="0")).local_bandwidth is None


def test_a_cluster_without_a_zone_is_read_too() -> None:
    text = cluster().replace('<zone id="world" routing="Full">', "").replace("</zone>", "")
    assert len(read(text).nodes) == 4
    assert len(read(text.replace("4.1", "4")).nodes) == 4


def test_all_messages_cross_a_backbone() -> None:
    topology = read(cluster(bb_bw="10Gbps", bb_lat="1us"))
    assert path(topology, 0, 1) == path(topology, 3, 2) == [WIRE, (1.25e9, 1e-6), WIRE]
    assert path(read(cluster(bb_bw="0", bb_lat="0")), 0, 1) == [WIRE] * 2
    (backbone,) = [link for link in topology.links if link.latency == 1e-6]
    assert (backbone.source, backbone.target) == ("switch_up", "switch_down")


def test_messages_do_not_share_a_fat_pipe() -> None:
    wide = cluster(bb_bw="125MBps", bb_lat="1us", bb_sharing_policy="FATPIPE")
    assert path(read(wide), 0, 1)[1][0] == 4 * 125e6
    with pytest.raises(InputError, match="bb_sharing_policy 'FATPIPE' of a backbone of 1MBps"):
        read(wide.replace('bb_bw="125MBps"', 'bb_bw="1MBps"'))


def test_a_fat_tree_has_its_parallel_cables() -> None:
    topology = read(cluster("0-15", topology="FAT_TREE", topo_parameters="3; 2,4,2; 1,2,1; 3,2,5"))
    assert len(topology.switches) == 8 + 4 + 2
    assert path(topology, 0, 1) == [(375e6, 50e-6)] * 2
    middle, top = [(250e6, 50e-6)] * 2, [(625e6, 50e-6)] * 2
    assert path(topology, 0, 7) == [(375e6, 50e-6), *middle, (375e6, 50e-6)]
    assert path(topology, 0, 15) == [(375e6, 50e-6), middle[0], *top, middle[1], (375e6, 50e-6)]


def test_a_fat_tree_of_one_level_is_a_switch() -> None:
    topology = read(cluster("0-3", topology="FAT_TREE", topo_parameters="1;4;1;1"))
    assert (len(topology.switches), path(topology, 0, 3)) == (1, [WIRE] * 2)


def test_hosts_of_a_torus_are_neighbours_along_each_dimension() -> None:
    """The first dimension is the fastest; a route has as many links as steps round the rings."""
    shape = (4, 3, 2)
    topology = read(cluster("0-23", topology="TORUS", topo_parameters="4,3,2"))
    places = [place[::-1] for place in product(*map(range, shape[::-1]))]
    for number, place in enumerate(places):
        steps = [min(n, size - n) for n, size in zip(place, shape, strict=True)]
        assert path(topology, 0, number) == [WIRE] * sum(steps)
    assert path(topology, 5, 6) == [WIRE]


def test_a_dragonfly_has_one_router_for_each_other_group() -> None:
    topology = read(cluster("0-47", topology="DRAGONFLY", topo_parameters="3,4;2,3;4,2;2"))
    green, black, blue = ((125e6 * n, 50e-6) for n in (2, 3, 4))
    assert len(topology.switches) == 24
    assert path(topology, 0, 1) == [WIRE] * 2
    assert path(topology, 0, 2) == [WIRE, green, WIRE]
    assert path(topology, 0, 8) == [WIRE, black, WIRE]
    # group 0 reaches group 1 from its second router, which arrives at the first one there
    assert path(topology, 2, 16) == [WIRE, blue, WIRE]
    assert sorted(path(topology, 8, 31)[1:-1]) == sorted([green, black, blue, green, black])


def test_routes_of_a_dragonfly_cross_one_cable_between_groups() -> None:
    """Check that no route leads over a third group, although as many links may do so."""
    topology = read(cluster("0-31", topology="DRAGONFLY", topo_parameters="4,9;1,1;4,1;2"))
    source, target = np.divmod(np.arange(32 * 32), 32)
    routes = topology.graph.routes(source, target)
    capacity = np.array([*(link.capacity for link in topology.links), 0.0])
    assert set((capacity[routes] == 9 * 125e6).sum(axis=1).tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("bw", "1Gbps", 125e6),
        ("bw", "1.25GBps", 1.25e9),
        ("bw", "2MiBps", 2.0 * 2**20),
        ("bw", "8Kibps", 1024.0),
        ("bw", "1e3kbps", 125e3),
        ("bw", "7", 7.0),
        ("lat", "50us", 5e-5),
        ("lat", ".5ms", 5e-4),
        ("lat", "3ns", 3e-9),
        ("lat", "2m", 120.0),
        ("lat", "0", 0.0),
    ],
)
def test_units_are_exact(key: str, text: str, value: float) -> None:
    element = XmlElement("link", {key: text}, 1)
    assert (bandwidth if key == "bw" else seconds)(element, key) == value


LINK = '<link id="{}" bandwidth="1Gbps" latency="{}us" sharing_policy="SPLITDUPLEX"/>\n'


def zone(links: str, routes: str, hosts: str = "abc") -> str:
    nodes = "".join(f'<host id="{name}" speed="1Gf" core="2"/>\n' for name in hosts)
    return platform(f'<zone id="z" routing="Full">\n{nodes}{links}{routes}</zone>')


def route(source: str, target: str, *steps: str, symmetrical: str = "YES") -> str:
    ways = {"+": "UP", "-": "DOWN", "": "NONE"}
    inside = "".join(
        f'<link_ctn id="{step.strip("+-")}" direction="{ways[step.strip("l1234567890")]}"/>'
        for step in steps
    )
    ends = f'src="{source}" dst="{target}" symmetrical="{symmetrical}"'
    return f"<route {ends}>{inside}</route>\n"


STAR = route("a", "b", "l1+", "l2-") + route("a", "c", "l1+", "l3-") + route("b", "c", "l2+", "l3-")
DUPLEX = "".join(LINK.format(f"l{n}", n) for n in (1, 2, 3))
OWN = LINK.format("l9", 9).replace("SPLITDUPLEX", "FATPIPE")
SHARED = DUPLEX.replace("SPLITDUPLEX", "SHARED")


def test_links_of_routes_meet_in_a_switch() -> None:
    topology = read(zone(DUPLEX, STAR))
    assert (len(topology.switches), len(topology.links)) == (1, 6)
    assert path(topology, 2, 0) == [(125e6, 3e-6), (125e6, 1e-6)]
    assert [(node.name, node.cores) for node in topology.nodes] == [("a", 2), ("b", 2), ("c", 2)]


def test_a_switch_has_another_name_than_hosts() -> None:
    """Check that the zone is the same whatever its hosts are called."""
    text = zone(DUPLEX, STAR).replace('"a"', '"switch0"')
    assert read(text).switches == ("switch1",)


def test_hosts_may_be_joined_without_a_switch() -> None:
    topology = read(zone(LINK.format("l1", 1), route("a", "b", "l1+"), "ab"))
    assert (topology.switches, len(topology.links)) == ((), 2)


def test_both_directions_cross_a_shared_link_the_same_way() -> None:
    topology = read(zone(SHARED, STAR.replace("UP", "NONE").replace("DOWN", "NONE")))
    for a, b in ((0, 1), (1, 0), (2, 1)):
        assert path(topology, a, b) == [(125e6, (a + 1) * 1e-6), (125e6, (b + 1) * 1e-6)]
    timed = [link for link in topology.links if link.latency]
    assert len(timed) == 3
    assert min(link.capacity for link in topology.links) == 125e6


def test_a_link_to_oneself_is_that_of_messages_within_a_node() -> None:
    own = "".join(route(name, name, "l9") for name in "abc")
    topology = read(zone(DUPLEX + OWN, STAR + own))
    assert (topology.local_bandwidth, topology.local_latency) == (125e6, 9e-6)


def test_what_no_topology_has_is_named() -> None:
    text = zone(DUPLEX + LINK.format("l4", 4), STAR).replace(
        'core="2"/>', 'core="2"><prop id="watt" value="1"/><disk id="d"/></host>'
    )
    assert read(text).cautions == (
        "not read, as topologies have none: <prop> (line 5), <disk> (line 5)",
        "no route uses the links l4",
    )


TREE = {"topology": "FAT_TREE", "topo_parameters": "2;4,4;1,2;1,2"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (platform("", "3"), "line 3, element <platform>: SimGrid's XML begins with <platform"),
        (platform(""), "line 3, element <platform>: expected a zone or a cluster"),
        (cluster(topology="RING"), "line 5, element <cluster>: topology 'RING' is none of FLAT"),
        (cluster(sharing_policy="SHARED"), "sharing_policy 'SHARED' is not read, only SPLITDUPLEX"),
        (cluster(limiter_link="1MBps"), "limiter_link of a FLAT cluster is not read"),
        (cluster(state_file="f"), "element <cluster>: state_file='f' is not read: remove it"),
        (cluster("0-x"), "radical is like 0-15,20 .*, not '0-x'"),
        (cluster("0-99999999"), "means 1 to 65536 hosts, not '0-99999999'"),
        (cluster(bw="fast"), "bw is written like 125MBps or 1Gbps, not 'fast'"),
        (cluster(bw="1GB/s"), "bw is written like"),
        (cluster(bw="0Bps"), "bw: a bandwidth of zero moves nothing"),
        (cluster(lat="5lightyears"), "lat is written like 50us, not '5lightyears'"),
        (cluster("0-15", **TREE | {"bb_bw": "1GBps"}), "bb_bw of a FAT_TREE cluster is not read"),
        (cluster("0-15", **TREE | {"bb_lat": "1us"}), "bb_lat of a FAT_TREE cluster is not read"),
        (
            cluster(topology="TORUS", topo_parameters="2,2", bb_sharing_policy="SHARED"),
            "bb_sharing_policy of a TORUS cluster is not read",
        ),
        (cluster(topo_parameters="2,2"), "topo_parameters of a FLAT cluster is not read"),
        (cluster(bb_sharing_policy="FATPIPE"), "bb_sharing_policy is of no backbone: add bb_bw"),
        (cluster(bb_lat="1us"), "bb_bw is written like 125MBps or 1Gbps, not ''"),
        (cluster(bb_bw="0", bb_lat="1us"), "bb_bw: a bandwidth of zero moves nothing"),
        (cluster("0-3,9-5"), "radical is like 0-15,20 .*, not '0-3,9-5'"),
        (cluster(core="0"), "element <cluster>: core must be 1 to 65536, not 0"),
        (cluster(lat="1e30w"), "lat is at most 3600s, not '1e30w'"),
        (cluster(bw="1e30Bps"), "bw is at most 1e.18Bps, not '1e30Bps'"),
        (cluster(prefix="n" * 201), "prefix is at most 200 printable characters, not 'nnn"),
        (cluster(suffix="&#10;x"), r"suffix is at most 200 printable characters, not '.n?x'"),
        (zone(DUPLEX, STAR, "a").replace('"z"', '"&#155;z"'), r"id is at most .*, not '.x9bz'"),
        (
            cluster("0-15", **TREE | {"prefix": "leaf", "suffix": ""}),
            "host 'leaf0' has the name of a switch of this topology: change its prefix or suffix",
        ),
        (cluster("0-15", **TREE | {"topo_parameters": "2,9;4,4;1,2;1,2"}), "of a FAT_TREE are"),
        (
            cluster(topology="TORUS", topo_parameters=",".join(["1"] * 17)),
            "'; each part has at most 16 numbers with a product of at most 65536",
        ),
        (
            cluster(topology="TORUS", topo_parameters=",".join(["999999"] * 800)),
            "'; each part has at most 16 numbers with a product of at most 65536",
        ),
        (
            cluster(topology="TORUS", topo_parameters="256,257"),
            "'; each part has at most 16 numbers with a product of at most 65536",
        ),
        (cluster("0-14", **TREE), "topo_parameters are of 16 hosts, but radical names 15"),
        (cluster("0-15", **TREE | {"topo_parameters": "2;4,4;2,2;1,2"}), "below 2 switches each"),
        (cluster("0-15", **TREE | {"topo_parameters": "3;4,4;1,2;1,2"}), "of a FAT_TREE are like"),
        (cluster("0-15", **TREE | {"topo_parameters": "2;4,4;1,2"}), "of a FAT_TREE are like"),
        (cluster(topology="TORUS"), "topo_parameters of a TORUS are like 4,4,2, not ''"),
        (cluster("0-7", topology="DRAGONFLY", topo_parameters="4,1;2,1;1,1;1"), "4 groups of a"),
        (cluster().replace("</zone>", "</zone><zone id='w' routing='Full'/>"), "several zones"),
        (cluster().replace("</zone>", "<link id='l'/></zone>"), "line 6, element <link>: several"),
        (cluster().replace("</zone>", "<zoneRoute/></zone>"), "element <zoneRoute>: not read"),
        (
            cluster().replace("/>\n</zone>", "><host id='h'/></cluster>\n</zone>"),
            "line 5, element <host>: it is not read inside <cluster>: remove it",
        ),
        (
            zone(DUPLEX, STAR).replace('core="2"/>', 'core="2"><link id="l"/></host>'),
            "line 5, element <link>: it is not read inside <host>: remove it",
        ),
        (
            zone(DUPLEX, STAR).replace("</route>", '<host id="l1"/></route>'),
            "line 11, element <host>: it is not read inside <route>: remove it",
        ),
        (zone(DUPLEX, STAR).replace('core="2"', 'core="0"'), "core must be 1 to 65536, not 0"),
        (
            zone(DUPLEX, STAR.replace("YES", "maybe")),
            "line 11, element <route>: symmetrical is YES or NO, not 'maybe'",
        ),
        (zone(DUPLEX, STAR).replace("Full", "Floyd"), "routing 'Floyd' is not read, only Full"),
        (zone(DUPLEX, STAR, "abcd"), "expected a <route> from a to d"),
        (zone(DUPLEX, STAR, ""), "it has 0 hosts"),
        (zone(DUPLEX, STAR, "ab"), "element <route>: 'c' must be a host of its zone"),
        (zone(DUPLEX * 2, STAR), "element <link>: id 'l1' must be there, and once"),
        (zone(DUPLEX[90:], STAR), "element <link_ctn>: 'l1' must be a link of its zone"),
        (zone(DUPLEX, STAR + route("b", "a", "l2+", "l1-")), "from b to a is already on line 11"),
        (zone(DUPLEX, STAR.replace("UP", "NONE")), "is used in direction UP or DOWN"),
        (zone(DUPLEX, route("a", "b"), "ab"), "a route without links is not read"),
        (zone(DUPLEX.replace("SPLITDUPLEX", "FATPIPE"), STAR), "'FATPIPE' of a link between hosts"),
        (zone(DUPLEX, STAR + route("a", "a", "l1+")), "'SPLITDUPLEX' of a link from a host to"),
        (
            zone(DUPLEX, route("a", "b", "l1+") + route("a", "c", "l1+") + route("b", "c", "l2+")),
            "would join hosts b and c without any link",
        ),
        (
            zone(
                DUPLEX,
                STAR.replace(
                    route("b", "c", "l2+", "l3-"), route("b", "c", "l2+", "l1-", "l1+", "l3-")
                ),
            ),
            "from b to c a shorter way over l2, l3 exists; such routes are not read",
        ),
        (zone(DUPLEX, route("a", "b", "l1+", "l1-"), "ab"), "would join hosts|same end"),
        (
            zone(
                OWN + OWN.replace("l9", "l8").replace("9us", "8us") + DUPLEX,
                STAR + route("a", "a", "l9") + route("b", "b", "l8"),
            ),
            "line 4, element <zone>: a and b need the same <route> to themselves, or none",
        ),
        (
            zone(DUPLEX + OWN, STAR + route("b", "b", "l9")),
            "line 4, element <zone>: c and b need the same <route> to themselves, or none",
        ),
        (
            zone(DUPLEX + OWN, STAR + route("b", "b", "l9") * 2),
            "line 16, element <route>: the route from b to b is already on line 15",
        ),
    ],
)
def test_what_is_not_represented_is_named(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read(text)


def test_a_property_of_a_route_is_no_link() -> None:
    text = zone(DUPLEX, STAR).replace("</route>", '<prop id="l1" value="1"/></route>')
    topology = read(text)
    assert path(topology, 0, 1) == path(read(zone(DUPLEX, STAR)), 0, 1)
    assert topology.cautions == ("not read, as topologies have none: <prop> (line 11)",)


def test_many_long_routes_are_refused_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simgrid_routes, "MAX_STEPS", 12)
    assert len(read(zone(DUPLEX, STAR)).nodes) == 3
    monkeypatch.setattr(simgrid_routes, "MAX_STEPS", 11)
    with pytest.raises(
        InputError, match=r"<zone>: 6 routes of up to 2 links are too many: .* at most 11"
    ):
        read(zone(DUPLEX, STAR))
