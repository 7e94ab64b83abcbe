"""Choose hosts that represent others on a topology.

There is a pair for each distance, there are pairs for each kind of link between switches that
share one, a set of hosts that are all near to one another, and sets of hosts that are connected as
the first ones are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tuner.base.arrays import FloatArray, IntArray
from tuner.base.errors import InputError
from tuner.base.units import plural
from tuner.topology import HOST, Paths, Placement, Topology, find_paths
from tuner.topology.host_names import node_indices

MAX_PAIRS = 1 << 14  # pairs of hosts among which representatives are searched
MAX_DISTANCES = 8  # distances that are measured: those of most pairs
MAX_NEAR_HOSTS = 64  # hosts that are all near to one another, with which exchanges are measured
MAX_UPLINK_KINDS = 4  # kinds of uplinks that are measured: those that most pairs cross
MAX_LINKS_PER_KIND = 4  # links of a kind among which the one with most pairs is searched
MAX_UNEQUAL_SETS = 256  # unequal sets of hosts after which the search ends
LATENCY_DECIMALS = 12  # decimals of a second to which latencies are compared

HostPair = tuple[int, int]


@dataclass(frozen=True)
class ProbedHosts:
    """The hosts of a probe, by number, on a topology.

    Raises InputError when the host names are not those of its nodes, or it has too few nodes.
    """

    topology: Topology
    hosts: Sequence[str]

    @cached_property
    def _nodes(self) -> IntArray:
        numbers = node_indices(self.topology, self.hosts)
        if len(numbers) < len(self.hosts):
            raise InputError(
                f"topology {self.topology.name} has {plural(len(numbers), 'node')},"
                f" {len(self.hosts)} hosts are to be probed: give the topology of these hosts"
            )
        return np.array(numbers[: len(self.hosts)])

    @cached_property
    def _pairs(self) -> tuple[IntArray, IntArray]:
        """All pairs in both directions, or a random subset with all pairs of the first host."""
        first, second = np.triu_indices(len(self.hosts), 1)
        if len(first) > MAX_PAIRS:
            others = np.flatnonzero(first > 0)
            chosen = np.random.default_rng(1).choice(others, MAX_PAIRS, replace=False)
            kept = np.sort(np.concatenate([np.flatnonzero(first == 0), chosen]))
            first, second = first[kept], second[kept]
        return np.concatenate([first, second]), np.concatenate([second, first])

    @cached_property
    def _paths(self) -> Paths:
        return find_paths(Placement(self.topology, self._nodes), HOST, *self._pairs)

    def pair_per_distance(self) -> list[HostPair]:
        """Return a pair for each distance, nearest first.

        Distances differ in links, latency or rate.
        """
        rows = _distance_rows(self._paths)
        _, first, often = np.unique(rows, axis=0, return_index=True, return_counts=True)
        kept = np.sort(np.argsort(-often[1:], kind="stable")[: MAX_DISTANCES - 1]) + 1
        return [self._pair_at(first[0]), *(self._pair_at(first[k]) for k in kept)]

    def largest_near_set(self) -> list[int]:
        """Return the largest set of hosts that are all as near to one another as the nearest two.

        On a tree these are the hosts of the largest switch among those with the fastest links. Of
        more than MAX_NEAR_HOSTS the first ones are returned.
        """
        first, second = self.pair_per_distance()[0]
        nearest = self._distances(np.array([first]), np.array([second]))[0]
        left, best = np.arange(len(self.hosts)), np.array([], dtype=np.int64)
        while len(left) > len(best):
            chosen = self._near_hosts(left, nearest)
            left = np.setdiff1d(left, chosen)
            best = max(best, chosen, key=len)
        return [int(host) for host in best]

    def _near_hosts(self, hosts: IntArray, nearest: FloatArray) -> IntArray:
        """Return the first of `hosts` and those at the nearest distance from it and each other."""
        from_first = self._distances(np.full(len(hosts) - 1, hosts[0]), hosts[1:])
        near = hosts[1:][(from_first == nearest).all(axis=1)][: MAX_NEAR_HOSTS - 1]
        near = np.append(hosts[:1], near)
        one, other = np.triu_indices(len(near), 1)
        joined = np.eye(len(near), dtype=bool)
        joined[other, one] = (self._distances(near[one], near[other]) == nearest).all(axis=1)
        chosen: list[int] = []
        for number in range(len(near)):
            if joined[number, chosen].all():
                chosen.append(number)
        return near[chosen]

    def _distances(self, first: IntArray, second: IntArray) -> FloatArray:
        """Return latency, links and negative rate from first to second hosts, shape (pairs, 3)."""
        return _distance_rows(
            find_paths(Placement(self.topology, self._nodes), HOST, first, second)
        )

    def pairs_per_uplink_kind(self) -> list[list[HostPair]]:
        """Return disjoint pairs of hosts that all cross one link, for each kind of uplink.

        A kind is a rate between two levels of switches. Only kinds that several pairs can cross are
        returned.
        """
        crossed = np.bincount(
            self._paths.links[self._paths.links >= 0], minlength=len(self.topology.links)
        )
        kinds: dict[tuple[int, int, float], list[int]] = {}
        for number, link in enumerate(self.topology.links):
            ends = [self.topology.switch_levels.get(name, 0) for name in (link.source, link.target)]
            if 0 < ends[0] <= ends[1] and crossed[number]:
                kinds.setdefault((ends[0], ends[1], link.capacity), []).append(number)
        busiest = sorted(kinds.values(), key=lambda links: -sum(crossed[links]))[:MAX_UPLINK_KINDS]
        found = []
        for links in busiest:
            fullest = sorted(links, key=lambda number: -crossed[number])[:MAX_LINKS_PER_KIND]
            found.append(max(map(self._disjoint_pairs, fullest), key=len))
        return [pairs for pairs in found if len(pairs) > 1]

    def nearest_hosts(self, host: int, count: int) -> list[int]:
        """Return the `count` hosts nearest to `host`, by latency, then by links and rate."""
        others = np.array([n for n in range(len(self.hosts)) if n != host])
        ends = np.full_like(others, host)
        found = find_paths(Placement(self.topology, self._nodes), HOST, ends, others)
        near = np.lexsort((-found.bandwidth, found.hops, np.round(found.latency, LATENCY_DECIMALS)))
        return [int(n) for n in others[near[:count]]]

    def find_equivalent_sets(self, nodes: int) -> list[int]:
        """Return the first hosts of equivalent sets of `nodes` consecutive hosts, from host 0 on.

        Hosts of each set are alike and connected as those of the first set are, and the links
        between them are in no other set: what is measured in one set holds for all, also at the
        same time. `nodes` is at most the number of all hosts.
        """
        wanted, taken = self._describe_set(0, nodes)
        found, begin, unlike = [0], nodes, 0
        while begin + nodes <= len(self.hosts) and unlike < MAX_UNEQUAL_SETS:
            own, links = self._describe_set(begin, nodes)
            if own == wanted and not taken & links:
                found.append(begin)
                taken |= links
                begin += nodes
            else:
                begin, unlike = begin + 1, unlike + 1
        return found

    def _describe_set(self, begin: int, nodes: int) -> tuple[object, set[int]]:
        """Return a description by which sets of hosts can be compared, and the links between them.

        Only hosts 1, 2, 4, ... apart, cyclically, are looked at, with which ranks of most
        algorithms communicate. Links are numbered in the order in which they are first crossed, and
        given with their capacity.
        """
        steps = np.array([1 << k for k in range((nodes - 1).bit_length())], dtype=np.int64)
        low = np.tile(np.arange(nodes), len(steps))
        high = (low + np.repeat(steps, nodes)) % nodes
        ends = begin + np.concatenate([low, high]), begin + np.concatenate([high, low])
        found = find_paths(Placement(self.topology, self._nodes), HOST, *ends)
        crossed = list(dict.fromkeys(found.links[found.links >= 0].tolist()))
        name = {link: number for number, link in enumerate(crossed)} | {-1: -1}
        there = [self.topology.nodes[node] for node in self._nodes[begin : begin + nodes]]
        alike = (
            [(node.cores, node.node_topology) for node in there],
            [name[link] for link in found.links.ravel().tolist()],
            self.topology.capacity[crossed].tolist(),
            np.round(found.latency, LATENCY_DECIMALS).tolist(),
        )
        return alike, set(crossed)

    def _pair_at(self, number: int) -> HostPair:
        return int(self._pairs[0][number]), int(self._pairs[1][number])

    def _disjoint_pairs(self, link: int) -> list[HostPair]:
        """Return pairs that cross a link, with every host in at most one of them."""
        taken: set[int] = set()
        found = []
        for number in np.flatnonzero((self._paths.links == link).any(axis=1)):
            pair = self._pair_at(int(number))
            if not taken & set(pair):
                taken |= set(pair)
                found.append(pair)
        return found


def _distance_rows(paths: Paths) -> FloatArray:
    """Return latency, number of links and negative rate of each path, shape (paths, 3)."""
    latency = np.round(paths.latency, LATENCY_DECIMALS)
    return np.stack([latency, paths.hops, -paths.bandwidth], axis=1)
