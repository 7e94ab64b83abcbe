"""The network that emulates a topology: hosts, links, and which links a frame crosses."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tuner.base.arrays import IntArray
from tuner.base.errors import InputError
from tuner.base.units import format_time
from tuner.topology import Link, Topology

MAX_HOSTS = 64
MTU = 9000  # bytes of a frame without its Ethernet header
MAX_RELIABLE_CAPACITY = 50e6  # B/s: with faster hosts two cores, not the links, are the bottleneck
MIN_RELIABLE_LATENCY_S = 50e-6  # least time that the kernel and the switch take for one frame
# Beyond these limits a frame takes too long on one link to be useful.
MIN_CAPACITY = 1e5  # B/s
MAX_LATENCY_S = 10.0  # s
HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class EmulatedNetwork:
    """The hosts by name, directed links, and for each pair of hosts the numbers of its links."""

    name: str
    hosts: tuple[str, ...]
    links: tuple[Link, ...]
    routes: dict[tuple[int, int], tuple[int, ...]]

    @property
    def switch_table(self) -> str:
        """The switch's input: sizes; ns per byte and latency in ns of each link; routes."""
        return "\n".join([*self._lines(), ""])

    def _lines(self) -> Iterator[str]:
        yield f"{len(self.hosts)} {len(self.links)}"
        for link in self.links:
            yield f"{1e9 / link.capacity!r} {round(1e9 * link.latency)}"
        for (a, b), route in self.routes.items():
            yield " ".join(map(str, [a, b, len(route), *route]))

    def latency(self, a: int, b: int) -> float:
        """Return the seconds from host to host, without the time that the bytes take."""
        return math.fsum(self.links[i].latency for i in self.routes[a, b])

    def capacity(self, a: int, b: int) -> float:
        """Return the bytes per second of the slowest link between two hosts.

        Ethernet, IP and TCP headers count as bytes.
        """
        return min(self.links[i].capacity for i in self.routes[a, b])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences on what this computer is probably too slow for."""
        return tuple(filter(None, [self._bandwidth_warning(), self._latency_warning()]))

    def _bandwidth_warning(self) -> str:
        ends = {number for route in self.routes.values() for number in (route[0], route[-1])}
        fastest = max(self.links[number].capacity for number in ends)
        if fastest <= MAX_RELIABLE_CAPACITY:
            return ""
        return (
            f"hosts have links of {8e-6 * fastest:g} Mbit/s: above"
            f" {8e-6 * MAX_RELIABLE_CAPACITY:g} the"
            " processors of this computer, not the links, may set the pace"
        )

    def _latency_warning(self) -> str:
        nearest = min(self.latency(a, b) for a, b in self.routes)
        if nearest >= MIN_RELIABLE_LATENCY_S:
            return ""
        return (
            f"some hosts are {format_time(nearest)} apart: below"
            f" {format_time(MIN_RELIABLE_LATENCY_S)} the"
            " kernel of this computer takes longer than the links"
        )


def emulated_network(topology: Topology) -> EmulatedNetwork:
    """Return the network for a topology; raises InputError for what cannot be emulated."""
    where = f"topology {topology.name}"
    for node in topology.nodes:
        if node.node_topology is not None:
            raise InputError(
                f"{where}: the devices inside {node.name} cannot be emulated; leave"
                " out the interior"
            )
        if not HOST_NAME.fullmatch(node.name):
            raise InputError(
                f"{where}: {node.name!r} cannot be the name of a host; use letters,"
                " digits and hyphens"
            )
    if topology.capabilities:
        offered = ", ".join(sorted(topology.capabilities))
        raise InputError(f"{where}: a network with {offered} cannot be emulated; leave out offers")
    if not 2 <= len(topology.nodes) <= MAX_HOSTS:
        raise InputError(
            f"{where}: {len(topology.nodes)} nodes; an emulated cluster has 2 to {MAX_HOSTS} hosts"
        )
    for link in topology.links:
        _check_link(where, link)
    return EmulatedNetwork(
        topology.name,
        tuple(node.name for node in topology.nodes),
        topology.links,
        _routes(topology),
    )


def _check_link(where: str, link: Link) -> None:
    what = f"{where}: link {link.source} -> {link.target}"
    if not link.capacity >= MIN_CAPACITY:
        raise InputError(
            f"{what}: an emulated cluster has capacities from {MIN_CAPACITY / 1e3:g}kB/s"
        )
    if not 0 <= link.latency <= MAX_LATENCY_S:
        raise InputError(f"{what}: an emulated cluster has latencies from 0s to {MAX_LATENCY_S:g}s")


def _routes(topology: Topology) -> dict[tuple[int, int], tuple[int, ...]]:
    """Return the routes that the simulation uses, too, as numbers of links."""
    hosts = np.arange(len(topology.nodes))
    pairs: IntArray = np.array([(a, b) for a in hosts for b in hosts if a != b])
    found = topology.graph.routes(pairs[:, 0], pairs[:, 1])
    return {
        (int(a), int(b)): tuple(int(link) for link in route if link >= 0)
        for (a, b), route in zip(pairs, found, strict=True)
    }
