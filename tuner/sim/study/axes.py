"""The axes of a study: what may vary, how its values are written, what they make of a topology."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tuner.errors import InputError, quoted
from tuner.topology import Link, Node, Topology
from tuner.units import format_size, format_time, parse_bandwidth, parse_time

MOST_RANKS = 1 << 16  # of one machine of a study
MOST_NODES = 1 << 13  # likewise: finding routes between all of them takes a gigabyte

Place = Mapping[str, float]  # axis -> value: seconds, bytes per second, or a number


@dataclass(frozen=True)
class Axis:
    """How a value of this axis is read from a study file and printed."""

    parse: Callable[[object], float]
    format: Callable[[float], str]


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_RANKS:
        raise InputError(f"{quoted(value)} is not a whole number from 1 to {MOST_RANKS}")
    return value


def _format_bandwidth(rate: float) -> str:
    return f"{rate / 1e9:.4g}GB/s"


_NUMBER = Axis(_whole, lambda value: str(int(value)))
_LATENCY = Axis(parse_time, format_time)
_BANDWIDTH = Axis(parse_bandwidth, _format_bandwidth)

AXES: Mapping[str, Axis] = {
    "nodes": _NUMBER,  # the first ones of the topology; a one-switch topology also grows
    "ppn": _NUMBER,
    "latency": _LATENCY,  # between two nodes of one switch, or joined by one link
    "bandwidth": _BANDWIDTH,  # of the links at nodes, all cables of one together
    "uplink_latency": _LATENCY,  # of each link between switches
    "uplink_bandwidth": _BANDWIDTH,
}
UPLINK = ("uplink_latency", "uplink_bandwidth")
NBYTES = "nbytes"  # the message size, which a choice depends on as it does on the axes
FORMATS: Mapping[str, Callable[[float], str]] = {
    **{name: axis.format for name, axis in AXES.items()}, NBYTES: format_size,
}  # fmt: skip


def varied(topology: Topology, at: Place) -> Topology:
    """The topology at one place of the axes.

    Raises InputError for more nodes than a topology that cannot grow has, and for an axis of links
    that it does not have.
    """
    chosen = _with_nodes(topology, int(at["nodes"]))
    hosts = {node.name for node in chosen.nodes}
    inner = {link for link in chosen.links if not {link.source, link.target} & hosts}
    changed = []
    for link in chosen.links:
        names = UPLINK if link in inner else ("latency", "bandwidth")
        changed.append(_changed(link, hosts, *(at.get(name) for name in names)))
    if not inner and set(UPLINK) & at.keys():
        raise InputError(
            f"topology {topology.name} has no links between switches: there is no"
            " uplink_latency or uplink_bandwidth to vary"
        )
    if len(topology.links) == len(inner) and {"latency", "bandwidth"} & at.keys():
        raise InputError(
            f"topology {topology.name} has no links at its nodes: there is no latency or bandwidth"
            " to vary"
        )
    return replace(chosen, links=tuple(changed))


def _changed(link: Link, hosts: set[str], latency: float | None, capacity: float | None) -> Link:
    """A node's link to a switch has half of the latency from node to node."""
    half = (link.source in hosts) != (link.target in hosts)
    own = link.latency if latency is None else latency / 2 if half else latency
    return replace(link, latency=own, capacity=link.capacity if capacity is None else capacity)


def _with_nodes(topology: Topology, wanted: int) -> Topology:
    if wanted > len(topology.nodes):
        return _grown(topology, wanted)
    nodes = topology.nodes[:wanted]
    gone = {node.name for node in topology.nodes[wanted:]}
    links = tuple(link for link in topology.links if not {link.source, link.target} & gone)
    return replace(topology, nodes=nodes, links=links)


def _grown(topology: Topology, wanted: int) -> Topology:
    """More nodes like the present ones on their one switch."""
    hosts = {node.name for node in topology.nodes}
    out = {(link.target, link.capacity, link.latency)
           for link in topology.links if link.source in hosts}  # fmt: skip
    back = {(link.source, link.capacity, link.latency)
            for link in topology.links if link.target in hosts}  # fmt: skip
    alike = len({node.cores for node in topology.nodes}) == 1 == len(topology.switches)
    if not alike or len(out) != 1 or len(back) != 1 or len(topology.links) != 2 * len(hosts):
        raise InputError(
            f"topology {topology.name} has {len(topology.nodes)} nodes, not {wanted}: only one in"
            " which all nodes hang alike on one switch can grow"
        )
    (_, up, rise), (_, down, fall) = out.pop(), back.pop()
    switch, cores = topology.switches[0], topology.nodes[0].cores
    new = [Node(f"{topology.name}+{number}", cores) for number in range(len(hosts), wanted)]
    links = [Link(node.name, switch, up, rise) for node in new]
    links += [Link(switch, node.name, down, fall) for node in new]
    return replace(topology, nodes=topology.nodes + tuple(new), links=topology.links + tuple(links))
