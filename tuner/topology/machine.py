"""Where ranks live and what lies between them.

A `Topology` is nodes, switches and directed links; a `Placement` maps ranks to nodes. Routes are
shortest paths in hops (ties: the smaller latency).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, dijkstra

from tuner.errors import InputError

NODE = "node"  # path class: two ranks of one node, each with a core of its own
NODE_OVERSUBSCRIBED = "node_oversubscribed"  # the same with more ranks than cores on the node
MOST_RANKS = 1 << 20
MEMORY_BUS = "memory_bus"  # the shared resource inside a node

Indices = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Link:
    """One directed link; parallel cables are one link with their joint capacity."""

    source: str
    target: str
    capacity: float  # bytes per second, all cables together
    latency: float  # seconds


@dataclass(frozen=True)
class Node:
    """A host: `cores` bound how many ranks run undisturbed."""

    name: str
    cores: int = 1


@dataclass(frozen=True)
class Topology:
    """Raises InputError when a node cannot reach another one.

    Inside a node: `local_latency` and `local_bandwidth` of one message (None: not known), and
    `memory_bandwidth`, the capacity that all messages inside one node share.
    """

    name: str
    nodes: tuple[Node, ...]
    switches: tuple[str, ...]
    links: tuple[Link, ...]
    local_latency: float | None = None
    local_bandwidth: float | None = None
    memory_bandwidth: float = float("inf")

    def __post_init__(self) -> None:
        if len(self._index) < len(self.nodes) + len(self.switches):
            raise InputError(f"topology {self.name}: two nodes or switches have the same name")
        seen: set[tuple[str, str]] = set()
        for link in self.links:
            for end in (link.source, link.target):
                if end not in self._index:
                    raise InputError(
                        f"topology {self.name}: link {link.source} -> {link.target}: there is no"
                        f" node or switch {end!r}; declare it or mend the link"
                    )
            if (link.source, link.target) in seen:
                raise InputError(
                    f"topology {self.name}: link {link.source} -> {link.target} is written twice;"
                    " write it once with a count"
                )
            seen.add((link.source, link.target))
        self._require_connected()

    @property
    def cores(self) -> Indices:
        """Cores per node, shape (nodes,)."""
        return np.array([node.cores for node in self.nodes])

    @cached_property
    def _index(self) -> dict[str, int]:
        names = [*(node.name for node in self.nodes), *self.switches]
        return {name: number for number, name in enumerate(names)}

    def _require_connected(self) -> None:
        for graph, direction in ((self._graph, "from"), (self._graph.T.tocsr(), "to")):
            reached = breadth_first_order(graph, 0, return_predecessors=False)
            missing = set(range(len(self.nodes))) - set(reached.tolist())
            if missing:
                raise InputError(
                    f"topology {self.name}: node {self.nodes[min(missing)].name} cannot be reached"
                    f" {direction} {self.nodes[0].name}; add the missing link"
                )

    def _matrix(self, values: ArrayLike) -> csr_array:
        """One value per link as a sparse matrix over (source, target)."""
        ends = [[self._index[link.source] for link in self.links],
                [self._index[link.target] for link in self.links]]  # fmt: skip
        return csr_array((values, ends), shape=(len(self._index), len(self._index)))

    @cached_property
    def _graph(self) -> csr_array:
        """Hops as weights, with latencies as a tie-break too small to add up to one hop."""
        total = sum(link.latency for link in self.links) or 1.0
        return self._matrix([1.0 + 0.5 * link.latency / total for link in self.links])

    def routes(self, source: Indices, target: Indices) -> Routes:
        """Shortest routes between nodes, given by index; shapes (k,), source != target."""
        origins, row = np.unique(source, return_inverse=True)
        _, before = dijkstra(self._graph, indices=origins, return_predecessors=True)
        number = self._matrix(np.arange(1, len(self.links) + 1))
        at, hops = np.asarray(target), []
        while (at != source).any():
            previous = np.where(at == source, at, before[row, at])
            hops.append(np.where(at == source, 0, number[previous, at]) - 1)
            at = previous
        links = np.array(hops[::-1], dtype=np.int64).reshape(len(hops), len(at)).T
        return Routes(self, links)


@dataclass(frozen=True)
class Routes:
    """`links[i]`: the link numbers of the i-th route, -1 where a route is shorter than others."""

    topology: Topology
    links: Indices

    @property
    def latency(self) -> Floats:
        """Seconds per route: the sum over its links."""
        latency = np.array([*(link.latency for link in self.topology.links), 0.0])
        total: Floats = latency[self.links].sum(axis=1)
        return total

    @property
    def bandwidth(self) -> Floats:
        """Bytes per second per route: the narrowest of its links."""
        capacity = np.array([*(link.capacity for link in self.topology.links), np.inf])
        narrowest: Floats = capacity[self.links].min(axis=1, initial=np.inf)
        return narrowest

    @property
    def hops(self) -> Indices:
        """Links per route."""
        number: Indices = (self.links >= 0).sum(axis=1)
        return number


@dataclass(frozen=True)
class Placement:
    """`node_of[r]` is the index of the node that rank r runs on."""

    topology: Topology
    node_of: Indices

    @classmethod
    def consecutive(cls, topology: Topology, ppn: int, p: int | None = None) -> Placement:
        """Ranks 0..ppn-1 on the first node, and so on. Raises InputError when they do not fit."""
        if ppn < 1:
            raise InputError(f"ppn must be at least 1, not {ppn}")
        available = ppn * len(topology.nodes)
        wanted = available if p is None else p
        if wanted > MOST_RANKS:
            raise InputError(f"{wanted} ranks are more than can be simulated ({MOST_RANKS})")
        if not 1 <= wanted <= available:
            raise InputError(
                f"{wanted} ranks do not fit on topology {topology.name}:"
                f" {len(topology.nodes)} nodes x {ppn} ranks per node = {available}"
            )
        return cls(topology, np.arange(wanted) // ppn)

    @property
    def p(self) -> int:
        """Number of ranks."""
        return len(self.node_of)
