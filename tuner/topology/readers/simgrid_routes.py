"""Builds a topology from the routes between all hosts of a zone of SimGrid.

Routes list links, which have no ends of their own. The ends follow from the routes: where one link
of a route ends, the next one begins. A link that is SHARED by both directions is one way between
two switches, which its neighbours in routes lead to and from, over links that take no time. What
results is refused unless its shortest routes are those of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, count, permutations

import numpy as np

from tuner.base.errors import InputError, shortened_repr
from tuner.topology import Link, Node, Topology
from tuner.topology.readers.safe_xml import XmlElement
from tuner.topology.readers.simgrid_units import bandwidth, cores, seconds
from tuner.topology.readers.yaml_fields import MAX_NODES

FULL = "Full"
SHARED = "SHARED"
DUPLEX = ("SPLITDUPLEX", "FULLDUPLEX")  # the second is its former name
FAT_PIPE = "FATPIPE"  # messages do not share it
OPPOSITE = {"UP": "DOWN", "DOWN": "UP", "": ""}

BEGIN, END = "begin", "end"
MAX_NAMED = 8  # links in a message
MAX_STEPS = 1 << 22  # pairs of hosts times links of the longest route: 32 MiB

Channel = tuple[str, str]  # a link and its direction, "" of a link that both directions share
Vertex = tuple[str, ...]  # a host, or the begin or end of a channel
Pair = tuple[str, str]  # hosts
Routes = dict[Pair, tuple[XmlElement, list[Channel]]]  # from source to target


@dataclass
class _Zone:
    """The contents of a zone, and the ends of its links as far as they are known.

    routes      between different hosts
    loopbacks   from hosts to themselves
    gaps        ends of one link and begins of the next that are joined by a link of their own
    """

    hosts: dict[str, XmlElement]
    links: dict[str, XmlElement]
    routes: Routes = field(default_factory=dict)
    loopbacks: Routes = field(default_factory=dict)
    gaps: dict[tuple[Vertex, Vertex], None] = field(default_factory=dict)
    _same: dict[Vertex, Vertex] = field(default_factory=dict)

    def root(self, vertex: Vertex) -> Vertex:
        """Return the vertex that stands for all that are known to be the same, hosts first."""
        while (other := self._same.get(vertex, vertex)) != vertex:
            self._same[vertex] = self._same.get(other, other)  # so that chains stay short
            vertex = other
        return vertex

    def join(self, a: Vertex, b: Vertex, route: XmlElement) -> None:
        """Note that one link ends where the next one begins; raise InputError for two hosts."""
        a, b = sorted((self.root(a), self.root(b)), key=len)
        if len(a) == len(b) == 1 and a != b:
            raise InputError(
                f"{route}: by this and other routes its links would join hosts {a[0]} and {b[0]}"
                " without any link between them"
            )
        if a != b:
            self._same[b] = a


def routed_topology(element: XmlElement, cautions: tuple[str, ...]) -> Topology:
    """Return the topology of a zone; raise InputError naming line and element."""
    if element.attributes.get("routing") != FULL:
        said = shortened_repr(element.attributes.get("routing", ""))
        raise InputError(f"{element}: routing {said} is not read, only {FULL}")
    zone = _Zone(_by_id(element, "host"), _by_id(element, "link"))
    if not 1 <= len(zone.hosts) <= MAX_NODES:
        raise InputError(f"{element}: it has {len(zone.hosts)} hosts, not 1 to {MAX_NODES}")
    for route in (child for child in element.children if child.name == "route"):
        _add_route(zone, route)
    missing = next((pair for pair in permutations(zone.hosts, 2) if pair not in zone.routes), None)
    if missing:
        raise InputError(f"{element}: expected a <route> from {missing[0]} to {missing[1]}")
    longest = max((len(channels) for _, channels in zone.routes.values()), default=0)
    if len(zone.routes) * longest > MAX_STEPS:
        raise InputError(
            f"{element}: {len(zone.routes)} routes of up to {longest} links are too many: the"
            f" product is at most {MAX_STEPS}"
        )
    for pair, (route, channels) in zone.routes.items():
        _join_ends(zone, pair, route, channels)
    return _topology(element, zone, cautions)


def _by_id(element: XmlElement, name: str) -> dict[str, XmlElement]:
    found = dict[str, XmlElement]()
    for child in (each for each in element.children if each.name == name):
        key = child.attributes.get("id", "")
        if not key or key in found:
            raise InputError(f"{child}: id {shortened_repr(key)} must be there, and once")
        found[key] = child
    return found


def _add_route(zone: _Zone, route: XmlElement) -> None:
    """Add a route and, unless it says otherwise, the way back."""
    source, target = (route.attributes.get(key, "") for key in ("src", "dst"))
    for end in (source, target):
        if end not in zone.hosts:
            raise InputError(f"{route}: {shortened_repr(end)} must be a host of its zone")
    steps = [child for child in route.children if child.name == "link_ctn"]
    channels = [_channel(zone, step, source == target) for step in steps]
    if not channels:
        raise InputError(f"{route}: a route without links is not read")
    symmetrical = route.attributes.get("symmetrical", "YES")
    if symmetrical.upper() not in ("YES", "NO"):
        raise InputError(f"{route}: symmetrical is YES or NO, not {shortened_repr(symmetrical)}")
    routes = {(source, target): channels}
    if symmetrical.upper() == "YES":
        routes[target, source] = [(link, OPPOSITE[way]) for link, way in reversed(channels)]
    known = zone.loopbacks if source == target else zone.routes
    for pair, way in routes.items():
        if pair in known:
            raise InputError(
                f"{route}: the route from {pair[0]} to {pair[1]} is already on line"
                f" {known[pair][0].line}"
            )
        known[pair] = route, way


def _channel(zone: _Zone, step: XmlElement, is_loopback: bool) -> Channel:
    link, way = (step.attributes.get(key, "") for key in ("id", "direction"))
    if link not in zone.links:
        raise InputError(f"{step}: {shortened_repr(link)} must be a link of its zone")
    policy = zone.links[link].attributes.get("sharing_policy", SHARED)
    known = (FAT_PIPE,) if is_loopback else (SHARED, *DUPLEX)
    if policy not in known:
        where = "from a host to itself" if is_loopback else "between hosts"
        raise InputError(
            f"{zone.links[link]}: sharing_policy {shortened_repr(policy)} of a link {where} is not"
            f" read, only {', '.join(known)}"
        )
    if policy in DUPLEX and way not in ("UP", "DOWN"):
        raise InputError(f"{step}: a link that is {policy} is used in direction UP or DOWN")
    return link, way if policy in DUPLEX else ""


def _join_ends(zone: _Zone, pair: Pair, route: XmlElement, channels: list[Channel]) -> None:
    """Note what the links of a route have in common with each other and with its hosts."""
    ends: list[Vertex] = [(pair[0],), *((*channel, END) for channel in channels)]
    begins: list[Vertex] = [*((*channel, BEGIN) for channel in channels), (pair[1],)]
    for one, other in zip(ends, begins, strict=True):
        if "" in (*one[1:], *other[1:]):
            zone.gaps[one, other] = None
        else:
            zone.join(one, other, route)
    for link, way in channels:
        if way:  # both directions have the same ends
            zone.join((link, way, BEGIN), (link, OPPOSITE[way], END), route)
            zone.join((link, way, END), (link, OPPOSITE[way], BEGIN), route)


def _topology(element: XmlElement, zone: _Zone, cautions: tuple[str, ...]) -> Topology:
    used = list(dict.fromkeys(chain.from_iterable(way for _, way in zone.routes.values())))
    named = {
        link for _, way in (*zone.routes.values(), *zone.loopbacks.values()) for link, _ in way
    }
    if unused := [link for link in zone.links if link not in named]:
        more = ", ..." if len(unused) > MAX_NAMED else ""
        cautions += (f"no route uses the links {', '.join(unused[:MAX_NAMED])}{more}",)
    links = tuple(_links(zone, used))
    local_bandwidth, local_latency = _loopback(element, zone)
    ends = dict.fromkeys(chain.from_iterable((link.source, link.target) for link in links))
    topology = Topology(
        element.attributes.get("id", "zone"),
        tuple(Node(name, cores(host)) for name, host in zone.hosts.items()),
        tuple(end for end in ends if end not in zone.hosts),
        links,
        routing="first",
        cautions=cautions,
        local_bandwidth=local_bandwidth,
        local_latency=local_latency,
    )
    _check_routes(topology, zone, used)
    return topology


def _links(zone: _Zone, used: list[Channel]) -> Iterator[Link]:
    """Yield the links of the channels, in their order, and then those over gaps."""
    names = dict[Vertex, str]()
    free = (one for one in map("switch{}".format, count()) if one not in zone.hosts)

    def name(vertex: Vertex) -> str:
        root = zone.root(vertex)
        if len(root) == 1:
            return root[0]
        if root not in names:
            names[root] = next(free)
        return names[root]

    seen = dict[tuple[str, str], str]()
    for channel in used:
        link = zone.links[channel[0]]
        ends = name((*channel, BEGIN)), name((*channel, END))
        if ends[0] == ends[1] or ends in seen:
            what = f"beside link {seen[ends]}" if ends in seen else "from an end to the same end"
            raise InputError(f"{link}: by the routes it leads {what}, which is not read")
        seen[ends] = channel[0]
        yield Link(*ends, bandwidth(link, "bandwidth"), seconds(link, "latency"))
    plenty = sum(bandwidth(zone.links[link], "bandwidth") for link, _ in used)
    for ends in dict.fromkeys((name(one), name(other)) for one, other in zone.gaps):
        yield Link(*ends, plenty, 0.0)


def _loopback(element: XmlElement, zone: _Zone) -> tuple[float | None, float | None]:
    """Return bandwidth and latency within a node, None if not told; hosts may not differ."""
    told = dict[tuple[float | None, float | None], str]()
    for host in zone.hosts:
        _, channels = zone.loopbacks.get((host, host), (element, []))
        links = [zone.links[link] for link, _ in channels]
        rate = min((bandwidth(link, "bandwidth") for link in links), default=None)
        told[rate, sum(seconds(link, "latency") for link in links) if links else None] = host
    if len(told) > 1:
        a, b = list(told.values())[:2]
        raise InputError(f"{element}: {a} and {b} need the same <route> to themselves, or none")
    return next(iter(told))


def _check_routes(topology: Topology, zone: _Zone, used: list[Channel]) -> None:
    """Raise InputError where a route of the file is not the shortest one."""
    number = {name: i for i, name in enumerate(zone.hosts)}
    ends = np.array([[number[a], number[b]] for a, b in zone.routes], dtype=np.int64).reshape(-1, 2)
    found = topology.graph.routes(ends[:, 0], ends[:, 1])
    for row, (pair, (route, channels)) in zip(found, zone.routes.items(), strict=True):
        shortest = [used[link] for link in row.tolist() if 0 <= link < len(used)]
        if shortest != channels:
            raise InputError(
                f"{route}: from {pair[0]} to {pair[1]} a shorter way over"
                f" {', '.join(link for link, _ in shortest[:MAX_NAMED])} exists; such routes are"
                " not read"
            )
