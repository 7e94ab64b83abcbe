"""Locate measured pairs on the topology.

This gives the simulator's name for the distance between them, and the latency that it adds for the
links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tuner.base.errors import InputError
from tuner.base.units import format_time, plural
from tuner.core.path_classes import PATH_CLASSES
from tuner.topology import HOST, Paths, Placement, Topology, find_paths
from tuner.topology.host_names import node_indices

MAX_RANKS_PER_NODE = 64  # on a node, among which a pair of a path class is searched


@dataclass(frozen=True)
class HostDistance:
    """The distance between two ranks.

    name        the simulator's own name for it: links, latency, rate of the slowest
    latency     seconds that it adds to the cost of a path class
    bandwidth   bytes per second of the slowest link
    """

    name: str
    latency: float
    bandwidth: float


@dataclass(frozen=True)
class HostDistances:
    """The hosts of a probe on a topology, found by `node_indices`, which may raise InputError."""

    topology: Topology
    hosts: Sequence[str]

    @cached_property
    def _node_numbers(self) -> list[int]:
        return node_indices(self.topology, self.hosts)

    def between(self, first: int, second: int, memory: str = HOST) -> HostDistance:
        """Return the distance of two hosts by number; raise InputError for unknown hosts."""
        if max(first, second) >= len(self._node_numbers):
            raise InputError(
                f"host {max(first, second)} was probed, topology {self.topology.name} has"
                f" {plural(len(self._node_numbers), 'node')}: give the topology of the probed"
                " cluster"
            )
        ends = np.array([self._node_numbers[first], self._node_numbers[second]])
        return _make_host_distance(
            find_paths(Placement(self.topology, ends), memory, np.array([0]), np.array([1]))
        )

    def within(self, path_class: str, memory: str, ppn: int) -> HostDistance | None:
        """Return the distance of a node's first pair of this class; None if no ranks have one."""
        ranks = min(max(ppn, 2), MAX_RANKS_PER_NODE)
        placement = Placement(self.topology, np.zeros(ranks, dtype=np.int64))
        target = np.arange(1, ranks)
        found = find_paths(placement, memory, np.zeros_like(target), target)
        mine = np.flatnonzero(found.path_class == PATH_CLASSES.index(path_class))
        return _make_host_distance(found, int(mine[0])) if len(mine) else None

    def farthest(self, memory: str = HOST) -> HostDistance:
        """Return the distance from host 0 to the first of those with most links in between."""
        ends = np.array(self._node_numbers[: max(len(self.hosts), 2)])
        if len(ends) < 2:
            raise InputError(
                f"topology {self.topology.name} has one node, several hosts were probed: give the"
                " topology of the probed cluster"
            )
        target = np.arange(1, len(ends))
        found = find_paths(Placement(self.topology, ends), memory, np.zeros_like(target), target)
        return _make_host_distance(found, int(found.hops.argmax()))


def _make_host_distance(found: Paths, number: int = 0) -> HostDistance:
    """Return a distance with the name that `tuner.sim.connections` gives it."""
    hops, latency = int(found.hops[number]), float(found.latency[number])
    rate = float(found.bandwidth[number])
    return HostDistance(f"{hops} links, {format_time(latency)}, {rate:.4g}B/s", latency, rate)
