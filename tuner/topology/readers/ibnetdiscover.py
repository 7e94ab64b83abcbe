"""Reads an InfiniBand fabric as `ibnetdiscover` prints it.

    Switch  65 "S-2c5eab0300b87b40"         # "leaf 4" enhanced port 0 lid 73 lmc 0
    [1]     "H-e09d7303007a4bd8"[1](e09d7303007a4bd8)       # "host7 mlx5_5" lid 647 4xNDR

Every node of the fabric is a paragraph with one line per active port, so that every cable appears
twice; a node without port lines is down and left out. Adapters whose descriptions say `HOST DEVICE`
are the NICs of that host. An adapter without a host name, or with the same description as another
one, becomes a host of its own, named by its GUID. The file does not describe what is behind a NIC;
the link to it is assumed to have the bandwidth of the NIC. Latencies are 0.

Aggregation nodes are not hosts: they show that a switch can reduce.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tuner.base.errors import InputError, shortened_repr
from tuner.topology import (
    CPU,
    MULTICAST,
    NIC,
    SWITCH_REDUCTION,
    Device,
    Link,
    Node,
    NodeTopology,
    Topology,
)
from tuner.topology.readers.yaml_fields import MAX_NODES

# Bytes per second of one lane by speed name: data rates of the InfiniBand
# Architecture Specification, volume 1 (8b/10b up to QDR, then 64b/66b; PAM4 with FEC from HDR on).
LANE_BANDWIDTHS = {
    "SDR": 2e9 / 8,
    "DDR": 4e9 / 8,
    "QDR": 8e9 / 8,
    "FDR10": 10e9 / 8,
    "FDR": 14.0625e9 * 64 / 66 / 8,
    "EDR": 25e9 / 8,
    "HDR": 50e9 / 8,
    "NDR": 100e9 / 8,
    "XDR": 200e9 / 8,
}
HEADER = re.compile(r'(Switch|Ca|Rt)\s+[0-9]{1,4}\s+"([SHR]-[0-9a-f]{1,16})"\s*(?:#\s*"(.*)")?')
PORT = re.compile(
    r'\[([0-9]{1,4})\](?:\[[^\]]*\])?(?:\([0-9a-f]+\))?\s*"([SHR]-[0-9a-f]{1,16})"\[([0-9]{1,4})\]'
)
RATE = re.compile(r"\b([0-9]{1,2})x(FDR10|[A-Z]DR)\b")
IGNORED_LINE = re.compile(r"\s*(#|$|(vend|dev|(sysimg|switch|ca|rt)gu)id=|DR path|Chassis|ibwarn)")
AGGREGATION_NODE = "Aggregation Node"  # the switch's own adapter for SHARP
HOST_AND_DEVICE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?: ([A-Za-z0-9._:/-]+))?")

PortId = tuple[str, int]  # GUID of a node of the fabric, and port number


@dataclass(frozen=True)
class _Port:
    """An active port: the other end of its cable, bytes per second (None: unknown), line number."""

    peer: PortId
    rate: float | None
    line: int


@dataclass
class _FabricNode:
    """A node of the fabric, with its active ports by number."""

    kind: str
    description: str
    line: int
    ports: dict[int, _Port] = field(default_factory=dict)


def parse_ibnetdiscover(text: str) -> Topology:
    """Return a topology of hosts and switches; raise InputError naming the line."""
    members = _parse_fabric_nodes(text)
    cables = _cables(members)
    up = {guid: member for guid, member in members.items() if member.ports}
    switches = _switch_names(up)
    hosts = _hosts(
        {
            guid: member
            for guid, member in up.items()
            if member.kind == "Ca" and AGGREGATION_NODE not in member.description
        }
    )
    if not hosts:
        last = max((member.line for member in members.values()), default=1)
        raise InputError(
            f"line {last}: so far no adapter of a host has a port that is up; this is not the whole"
            " fabric"
        )
    if len(hosts) > MAX_NODES:
        raise InputError(f"{len(hosts)} hosts are more than {MAX_NODES}")
    nodes, end_of = _nodes(hosts, cables, set(switches.values()))
    links = _links(cables, switches | end_of)
    return Topology(
        "infiniband",
        tuple(nodes),
        tuple(switches.values()),
        links,
        capabilities=_capabilities(up, cables),
    )


def _parse_fabric_nodes(text: str) -> dict[str, _FabricNode]:
    """Return the nodes of the fabric by GUID, in the order of the file."""
    members: dict[str, _FabricNode] = {}
    current: _FabricNode | None = None
    for number, line in enumerate(text.splitlines(), 1):
        header, port = HEADER.match(line), PORT.match(line)
        if header:
            if header[2] in members:
                raise InputError(
                    f"line {number}: {header[2]} is already on line {members[header[2]].line}"
                )
            current = members[header[2]] = _FabricNode(header[1], header[3] or "", number)
        elif port and current:
            if int(port[1]) in current.ports:
                raise InputError(
                    f"line {number}: port {port[1]} is already on line"
                    f" {current.ports[int(port[1])].line}"
                )
            rate = _rate(line, number)
            current.ports[int(port[1])] = _Port((port[2], int(port[3])), rate, number)
        elif not IGNORED_LINE.match(line):
            raise InputError(
                f"line {number}: neither a Switch or Ca nor one of its ports:"
                f" {shortened_repr(line)}"
            )
    return members


def _rate(line: str, number: int) -> float | None:
    found = RATE.search(line.rpartition('"')[2])
    if found is None:
        return None
    if found[2] not in LANE_BANDWIDTHS or not 1 <= int(found[1]) <= 12:
        raise InputError(
            f"line {number}: {found[0]} is not an InfiniBand link; known: 1 to 12 times"
            f" {', '.join(LANE_BANDWIDTHS)}"
        )
    return int(found[1]) * LANE_BANDWIDTHS[found[2]]


def _cables(members: dict[str, _FabricNode]) -> dict[tuple[PortId, PortId], float]:
    """Return the bandwidth of every cable in bytes per second, keyed by both directions.

    Raises InputError when the two ends of a cable contradict each other.
    """
    cables: dict[tuple[PortId, PortId], float] = {}
    for guid, member in members.items():
        for number, port in member.ports.items():
            peer, other = port.peer
            if peer not in members:
                raise InputError(
                    f"line {port.line}: there is no paragraph for {peer}; the file is not whole"
                )
            back = members[peer].ports.get(other)
            if back is None or back.peer != (guid, number):
                raise InputError(
                    f"line {port.line}: port {other} of {peer} does not say that it leads here; the"
                    " file is not whole"
                )
            rate = port.rate or back.rate
            if rate is None:
                raise InputError(
                    f"line {port.line}: neither end of this cable says a width and speed such as"
                    " 4xHDR"
                )
            cables[(guid, number), port.peer] = rate
    return cables


def _switch_names(members: dict[str, _FabricNode]) -> dict[str, str]:
    """Return the names of switches by GUID: their descriptions if unique, else their GUIDs."""
    switches = {guid: member for guid, member in members.items() if member.kind == "Switch"}
    uses = Counter(member.description for member in switches.values())
    return {
        guid: member.description if uses[member.description] == 1 and member.description else guid
        for guid, member in switches.items()
    }


def _hosts(adapters: dict[str, _FabricNode]) -> dict[str, dict[str, str]]:
    """Return for each host its adapters: GUID -> device name, both in natural order."""
    uses = Counter(member.description for member in adapters.values())
    hosts: dict[str, dict[str, str]] = {}
    for guid, member in adapters.items():
        match = HOST_AND_DEVICE.fullmatch(member.description)
        told = match is not None and uses[member.description] == 1
        host, device = (match[1], match[2] or "") if match and told else (guid, "")
        hosts.setdefault(host, {})[guid] = device
    ordered = sorted(hosts, key=lambda host: (host in adapters, _natural_sort_key(host)))
    return {
        host: dict(sorted(hosts[host].items(), key=lambda item: _natural_sort_key(item[1])))
        for host in ordered
    }


def _natural_sort_key(name: str) -> list[tuple[int, str]]:
    """Return a sort key that orders numbers by value: n9 before n10."""
    return [
        (int(part[:18]), "") if part.isdecimal() else (-1, part)
        for part in re.split(r"([0-9]+)", name)
    ]


def _nodes(
    hosts: dict[str, dict[str, str]], cables: dict[tuple[PortId, PortId], float], taken: set[str]
) -> tuple[list[Node], dict[str, str]]:
    """Return the nodes and the port name of each adapter.

    Nodes with the same NICs share one interior. `taken` holds the names that switches have.
    """
    rate = defaultdict[str, float](float)
    for (end, _), width in cables.items():
        rate[end[0]] += width
    interiors: dict[tuple[tuple[str, float], ...], NodeTopology] = {}
    nodes: list[Node] = []
    end_of: dict[str, str] = {}
    for host, adapters in hosts.items():
        name = next(iter(adapters)) if host in taken else host
        inside = tuple((device, rate[guid]) for guid, device in adapters.items())
        interior = interiors.setdefault(inside, _node_topology(inside)) if len(inside) > 1 else None
        nodes.append(Node(name, 1, interior))
        end_of |= dict(zip(adapters, nodes[-1].ports, strict=True))
    return nodes, end_of


def _node_topology(nics: tuple[tuple[str, float], ...]) -> NodeTopology:
    """Return one CPU with NICs, each linked to it by the bandwidth of its own ports."""
    devices = [Device("cpu0", CPU)]
    links = []
    for number, (product, rate) in enumerate(nics):
        devices.append(Device(f"nic{number}", NIC, product))
        links += [
            Link("cpu0", f"nic{number}", rate, 0.0, "pcie"),
            Link(f"nic{number}", "cpu0", rate, 0.0, "pcie"),
        ]
    return NodeTopology(tuple(devices), tuple(links))


def _links(cables: dict[tuple[PortId, PortId], float], name: dict[str, str]) -> tuple[Link, ...]:
    """Return one link per pair of vertices; cables to what is not in the topology are left out."""
    capacity: dict[tuple[str, str], list[float]] = {}
    for ((a, _), (b, _)), rate in cables.items():
        if a in name and b in name and name[a] != name[b]:
            capacity.setdefault((name[a], name[b]), []).append(rate)
    return tuple(
        Link(a, b, sum(rates), 0.0, count=len(rates)) for (a, b), rates in capacity.items()
    )


def _capabilities(
    members: dict[str, _FabricNode], cables: dict[tuple[PortId, PortId], float]
) -> frozenset[str]:
    """Return what the switches can do.

    All of them support multicast; they reduce if each one next to a host has an aggregation node.
    """
    near: dict[bool, set[str]] = {True: set(), False: set()}
    for (guid, _), (peer, _) in cables:
        if members[guid].kind == "Ca" and members[peer].kind == "Switch":
            near[AGGREGATION_NODE in members[guid].description].add(peer)
    reduces = near[False] and near[False] <= near[True]
    return frozenset({MULTICAST, SWITCH_REDUCTION} if reduces else {MULTICAST})
