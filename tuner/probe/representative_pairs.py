"""Which hosts stand for others on a topology: a pair for each distance, pairs for each kind of link
between switches that share one, and sets of hosts that lie to one another as the first ones do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tuner.base.arrays import IntArray
from tuner.base.errors import InputError
from tuner.base.units import plural
from tuner.topology import HOST, Paths, Placement, Topology, find_paths
from tuner.topology.hosts import node_indices

MAX_PAIRS = 1 << 14  # of hosts, among which representatives are looked for
MAX_DISTANCES = 8  # that are measured; those of most pairs
MAX_UPLINK_KINDS = 4  # of uplinks that are measured; those that most pairs cross
MAX_LINKS_PER_KIND = 4  # links of a kind, among which the one with most pairs is looked for
MAX_UNEQUAL_SETS = 256  # sets of hosts that may lie otherwise before no more are looked for
LATENCY_DECIMALS = 12  # decimals of a second in which two latencies are one

HostPair = tuple[int, int]


@dataclass(frozen=True)
class ProbedHosts:
    """The hosts of a probe, by number, on a topology.

    Raises InputError when the names of hosts are not those of its nodes, or it has too few nodes.
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
        """All pairs in both directions, or some by chance, among them all with the first host."""
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
        """A pair for each of the distances that differ in links, latency or rate; nearest first."""
        found = self._paths
        latency = np.round(found.latency, LATENCY_DECIMALS)
        rows = np.stack([latency, found.hops, -found.bandwidth], axis=1)
        _, first, often = np.unique(rows, axis=0, return_index=True, return_counts=True)
        kept = np.sort(np.argsort(-often[1:], kind="stable")[: MAX_DISTANCES - 1]) + 1
        return [self._pair_at(first[0]), *(self._pair_at(first[k]) for k in kept)]

    def pairs_per_uplink_kind(self) -> list[list[HostPair]]:
        """For each kind of link between switches, pairs of different hosts that all cross one.

        A kind is a rate between two levels of switches. Only kinds that several pairs can cross.
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
        """The `count` hosts that are nearest to one, by latency, then by links and rate."""
        others = np.array([n for n in range(len(self.hosts)) if n != host])
        ends = np.full_like(others, host)
        found = find_paths(Placement(self.topology, self._nodes), HOST, ends, others)
        near = np.lexsort((-found.bandwidth, found.hops, np.round(found.latency, LATENCY_DECIMALS)))
        return [int(n) for n in others[near[:count]]]

    def find_equivalent_sets(self, nodes: int) -> list[int]:
        """First hosts of sets of `nodes` that follow one another, the first of them host 0.

        Hosts of each are alike and lie to one another as those of the first do, and the links
        between them are links of no other set: what is measured in one of them is so in all, also
        at once. `nodes` are at most all hosts.
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
        """What says whether sets of hosts are alike, and the links between its hosts.

        Looked at are hosts 1, 2, 4, ... apart, round the set: with whom ranks of most algorithms
        talk. Links are told by when they are first crossed, with their capacity.
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
        """Pairs that cross a link, no host in two of them."""
        taken: set[int] = set()
        found = []
        for number in np.flatnonzero((self._paths.links == link).any(axis=1)):
            pair = self._pair_at(int(number))
            if not taken & set(pair):
                taken |= set(pair)
                found.append(pair)
        return found
