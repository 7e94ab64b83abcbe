"""Reads a platform of SimGrid: a `<cluster>`, or a zone with hosts, links and all their routes.

    <platform version="4.1"> <zone id="world" routing="Full">
      <cluster id="c" prefix="node-" radical="0-15" suffix="" speed="1Gf" bw="125MBps" lat="50us"
               topology="FAT_TREE" topo_parameters="2;4,4;1,2;1,2"/>
    </zone> </platform>

Numbers are taken as they are written; factors of SimGrid's network models, such as the share of a
bandwidth that TCP reaches, are no part of a platform. Nor are the speeds of hosts part of a
topology. Parallel cables become one link with their total bandwidth. A link without an end of its
own, such as a backbone, joins two switches. Source: simgrid.dtd, src/kernel/xml/sg_platf.cpp and
src/kernel/routing of SimGrid 4.1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from tuner.base.errors import InputError, shortened_repr
from tuner.topology import Link, Node, Topology
from tuner.topology.readers.cabling import Cabling, NetworkCable, ports_of_nodes
from tuner.topology.readers.direct import Dragonfly, Torus
from tuner.topology.readers.fabrics import FatTree, OneSwitch
from tuner.topology.readers.safe_xml import XmlElement, parse_xml
from tuner.topology.readers.simgrid_routes import DUPLEX, routed_topology
from tuner.topology.readers.simgrid_units import bandwidth, cores, seconds
from tuner.topology.readers.yaml_fields import MAX_NODES

VERSIONS = ("4", "4.1")
ZONES = ("zone", "AS", "cluster")
CLUSTER_ATTRIBUTES = (
    *("id", "prefix", "suffix", "radical", "speed", "core", "bw", "lat", "sharing_policy"),
    *("topology", "topo_parameters", "bb_bw", "bb_lat", "bb_sharing_policy", "router_id"),
    *("limiter_link", "loopback_bw", "loopback_lat"),
)
ATTRIBUTES = {  # of the elements that are read
    "platform": ("version",),
    "zone": ("id", "routing"),
    "AS": ("id", "routing"),
    "cluster": CLUSTER_ATTRIBUTES,
    "host": ("id", "speed", "core", "pstate"),
    "link": ("id", "bandwidth", "latency", "sharing_policy"),
    "route": ("src", "dst", "symmetrical"),
    "link_ctn": ("id", "direction"),
}
CHILDREN = {  # of those that have any, besides those that are not read
    "platform": ZONES,
    "zone": (*ZONES, "host", "link", "route"),
    "AS": (*ZONES, "host", "link", "route"),
    "route": ("link_ctn",),
}
NAMES = ("id", "prefix", "suffix")
MAX_NAME_LENGTH = 200
UNREAD = ("prop", "config", "process", "actor", "disk", "storage_type", "storage", "mount")
BACKBONE = ("bb_bw", "bb_lat")
LOOPBACK = ("loopback_bw", "loopback_lat")
NUMBERS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
MAX_PARAMETERS = 16  # in one part of topo_parameters; a fat tree or torus has a few levels
PARAMETER = r"\s*[1-9][0-9]{0,5}\s*"
PARAMETERS = re.compile(rf"{PARAMETER}(?:,{PARAMETER}){{0,{MAX_PARAMETERS - 1}}}")


def parse_simgrid(text: str) -> Topology:
    """Return a topology; raise InputError naming line and element of what is not represented."""
    root = parse_xml(text)
    if root.name != "platform" or root.attributes.get("version") not in VERSIONS:
        raise InputError(
            f"{root}: SimGrid's XML begins with <platform version=...>, of which"
            f" {' and '.join(VERSIONS)} are read"
        )
    unread = tuple(_check_elements(root))
    zone = _only_zone(root)
    cautions = [f"not read, as topologies have none: {', '.join(unread)}"] if unread else []
    if zone.name == "cluster":
        return _cluster(zone, tuple(cautions))
    return routed_topology(zone, tuple(cautions))


def _check_elements(element: XmlElement) -> Iterator[str]:
    """Yield the places of unread elements, the first of each name.

    Raises InputError for elements and attributes that change a topology and are not read.
    """
    waiting, seen = [element], set[str]()
    while waiting:
        element = waiting.pop()
        if element.name in UNREAD:
            if element.name not in seen:
                yield f"<{element.name}> (line {element.line})"
            seen.add(element.name)
            continue
        if element.name not in ATTRIBUTES:
            raise InputError(f"{element}: not read: known are {', '.join(ATTRIBUTES)}")
        _check_attributes(element)
        for child in element.children:
            if child.name in ATTRIBUTES and child.name not in CHILDREN.get(element.name, ()):
                raise InputError(f"{child}: it is not read inside <{element.name}>: remove it")
        waiting += reversed(element.children)


def _check_attributes(element: XmlElement) -> None:
    for key, value in element.attributes.items():
        if key not in ATTRIBUTES[element.name] and value:
            raise InputError(f"{element}: {key}={shortened_repr(value)} is not read: remove it")
        if key in NAMES and not (len(value) <= MAX_NAME_LENGTH and value.isprintable()):
            raise InputError(
                f"{element}: {key} is at most {MAX_NAME_LENGTH} printable characters, not"
                f" {shortened_repr(value)}"
            )


def _only_zone(element: XmlElement) -> XmlElement:
    """Return the cluster or the zone of hosts; raise InputError for more than one."""
    while True:
        inner = [child for child in element.children if child.name not in UNREAD]
        if element.name != "platform" and not any(child.name in ZONES for child in inner):
            return element
        if not inner:
            raise InputError(f"{element}: expected a zone or a cluster in it")
        if len(inner) > 1:
            raise InputError(
                f"{inner[1]}: several zones with routes between them are not read: leave one zone"
            )
        element = inner[0]


@dataclass(frozen=True)
class _RoutersByGroup(Dragonfly):
    """SimGrid's dragonfly: of each group, router n of the first chassis leads to group n."""

    def global_links(self, names: list[list[str]]) -> Iterator[Link]:
        wire = self.global_cable or self.node_cable
        for a, b in combinations(range(len(names)), 2):
            yield from wire.links_between(names[a][b], names[b][a])


def _cluster(cluster: XmlElement, cautions: tuple[str, ...]) -> Topology:
    shape = cluster.attributes.get("topology", "FLAT")
    makers = {"FLAT": _flat, "FAT_TREE": _fat_tree, "TORUS": _torus, "DRAGONFLY": _dragonfly}
    if shape not in makers:
        known = ", ".join(makers)
        raise InputError(f"{cluster}: topology {shortened_repr(shape)} is none of {known}")
    _check_shape(cluster, shape)
    nodes = _nodes(cluster)
    wiring = makers[shape](cluster, nodes, _cable(cluster))
    if taken := {node.name for node in nodes} & set(wiring.switches):
        raise InputError(
            f"{cluster}: host {shortened_repr(min(taken))} has the name of a switch of this"
            " topology: change its prefix or suffix"
        )
    has_loopback = _states(cluster, LOOPBACK)
    return Topology(
        cluster.attributes.get("id", "cluster"),
        tuple(nodes),
        wiring.switches,
        wiring.links,
        routing=wiring.routing,
        cautions=cautions,
        local_bandwidth=bandwidth(cluster, LOOPBACK[0]) if has_loopback else None,
        local_latency=seconds(cluster, LOOPBACK[1]) if has_loopback else None,
    )


def _states(cluster: XmlElement, keys: Sequence[str]) -> bool:
    return any(cluster.attributes.get(key, "") not in ("", "0") for key in keys)


def _check_shape(cluster: XmlElement, shape: str) -> None:
    """Raise InputError for links that both directions share, and for those of another shape."""
    policy = cluster.attributes.get("sharing_policy", DUPLEX[0])
    if policy not in DUPLEX:
        raise InputError(
            f"{cluster}: sharing_policy {shortened_repr(policy)} is not read, only {DUPLEX[0]}: a"
            " cable carries both directions at once"
        )
    unused = ("topo_parameters",) if shape == "FLAT" else (*BACKBONE, "bb_sharing_policy")
    for key in ("limiter_link", *unused):
        if _states(cluster, (key,)):
            raise InputError(f"{cluster}: {key} of a {shape} cluster is not read: remove it")


def _nodes(cluster: XmlElement) -> list[Node]:
    told = cluster.attributes
    numbers = [NUMBERS.fullmatch(part.strip()) for part in told.get("radical", "").split(",")]
    spans = [(int(one[1]), int(one[2] or one[1])) for one in numbers if one]
    lengths = [last - first + 1 for first, last in spans]
    if None in numbers or min(lengths) < 1 or sum(lengths) > MAX_NODES:
        raise InputError(
            f"{cluster}: radical is like 0-15,20 and means 1 to {MAX_NODES} hosts, not"
            f" {shortened_repr(told.get('radical', ''))}"
        )
    prefix, suffix, each = told.get("prefix", ""), told.get("suffix", ""), cores(cluster)
    return [
        Node(f"{prefix}{n}{suffix}", each) for first, last in spans for n in range(first, last + 1)
    ]


def _cable(cluster: XmlElement, count: int = 1) -> NetworkCable:
    return NetworkCable(bandwidth(cluster, "bw", count), seconds(cluster, "lat"))


def _flat(cluster: XmlElement, nodes: list[Node], cable: NetworkCable) -> Cabling:
    """Return one switch or, with a backbone that all messages cross, one at each of its ends."""
    ports = ports_of_nodes(nodes)
    if not _states(cluster, BACKBONE):
        if _states(cluster, ("bb_sharing_policy",)):
            raise InputError(f"{cluster}: bb_sharing_policy is of no backbone: add bb_bw")
        return OneSwitch(cable).cabling(ports)
    policy = cluster.attributes.get("bb_sharing_policy", "SHARED")
    width = bandwidth(cluster, "bb_bw")
    if policy == "FATPIPE" and width >= cable.capacity:
        width *= len(nodes)  # each message has it to itself
    elif policy != "SHARED":
        raise InputError(
            f"{cluster}: bb_sharing_policy {shortened_repr(policy)} of a backbone of"
            f" {cluster.attributes['bb_bw']} is not read: it limits each message alone"
        )
    switches = ("switch_up", "switch_down")
    backbone = Link(*switches, width, seconds(cluster, "bb_lat"))
    ends = [end for of_node in ports for end in of_node]
    up = [Link(end, switches[0], cable.capacity, cable.latency) for end in ends]
    down = [Link(switches[1], end, cable.capacity, cable.latency) for end in ends]
    return Cabling(switches, (*up, backbone, *down))


def _fat_tree(cluster: XmlElement, nodes: list[Node], cable: NetworkCable) -> Cabling:
    example = "2;4,4;1,2;1,2"
    levels, down, up, cables = _parameters(cluster, 4, example)
    if not (len(down),) == (len(up),) == (len(cables),) == levels:
        raise _parameters_error(cluster, example)
    if up[0] > 1:
        raise InputError(f"{cluster}: hosts below {up[0]} switches each are not read, only below 1")
    _check_number(cluster, nodes, math.prod(down))
    tree = FatTree(
        _cable(cluster, cables[0]), down, up[1:], uplink_cable=cable, uplink_counts=cables[1:]
    )
    return tree.cabling(ports_of_nodes(nodes))


def _torus(cluster: XmlElement, nodes: list[Node], cable: NetworkCable) -> Cabling:
    """Return routers that the hosts are part of, so that the way to them takes no time."""
    (shape,) = _parameters(cluster, 1, "4,4,2")
    _check_number(cluster, nodes, math.prod(shape))
    ports = ports_of_nodes(nodes)
    step = [math.prod(shape[:axis]) for axis in range(len(shape))]  # the first dimension is fastest
    places = product(*map(range, shape))
    ordered = [
        ports[sum(n * size for n, size in zip(place, step, strict=True))] for place in places
    ]
    within = NetworkCable(2 * len(shape) * cable.capacity)
    return Torus(within, shape, router_cable=cable).cabling(ordered)


def _dragonfly(cluster: XmlElement, nodes: list[Node], cable: NetworkCable) -> Cabling:
    example = "3,4;4,3;5,1;2"
    parameters = _parameters(cluster, 4, example)
    if [len(part) for part in parameters] != [2, 2, 2, 1]:
        raise _parameters_error(cluster, example)
    (groups, between), (chassis, black), (blades, green), (per_router,) = parameters
    if groups > blades:
        raise InputError(
            f"{cluster}: {groups} groups of a dragonfly need {groups} blades in a chassis, of which"
            f" each leads to one group, not {blades}"
        )
    _check_number(cluster, nodes, groups * chassis * blades * per_router)
    fabric = _RoutersByGroup(
        cable,
        (blades, chassis),
        per_router,
        1,
        (_cable(cluster, green), _cable(cluster, black)),
        _cable(cluster, between),
        groups,
    )
    wiring = fabric.cabling(ports_of_nodes(nodes))
    return replace(wiring, routing="first")  # over one cable between groups, not over two


def _parameters(cluster: XmlElement, parts: int, example: str) -> list[tuple[int, ...]]:
    """Return the numbers of `topo_parameters`, part by part."""
    words = cluster.attributes.get("topo_parameters", "").split(";")
    are_numbers = len(words) == parts and all(map(PARAMETERS.fullmatch, words))
    numbers = [tuple(map(int, part.split(","))) for part in words] if are_numbers else []
    if not numbers or max(map(math.prod, numbers)) > MAX_NODES:
        raise _parameters_error(cluster, example)
    return numbers


def _parameters_error(cluster: XmlElement, example: str) -> InputError:
    return InputError(
        f"{cluster}: topo_parameters of a {cluster.attributes.get('topology')} are like {example},"
        f" not {shortened_repr(cluster.attributes.get('topo_parameters', ''))}; each part has at"
        f" most {MAX_PARAMETERS} numbers with a product of at most {MAX_NODES}"
    )


def _check_number(cluster: XmlElement, nodes: Sequence[Node], wanted: int) -> None:
    if len(nodes) != wanted:
        raise InputError(
            f"{cluster}: topo_parameters are of {wanted} hosts, but radical names {len(nodes)}"
        )
