"""Shortest routes in a graph of named vertices and directed links.

The length of a route is its number of links; among routes with equally many links, the one with
the smaller latency is shorter. The routing decides among routes that are still equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tuner.base.arrays import BoolArray, FloatArray, IntArray
from tuner.base.compiled import compiled

if TYPE_CHECKING:
    from scipy.sparse import csr_array

LENGTH_TOLERANCE = 1e-12  # lengths that differ by less are equal
MAX_DISTANCES_AT_ONCE = 1 << 24  # distances held in memory at once: 128 MiB


class Edge(Protocol):
    """Interface of a link in a `RouteGraph`."""

    @property
    def source(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def latency(self) -> float: ...


class RouteGraph:
    """Directed graph of named vertices with shortest routes between its ports.

    Routes begin and end at the ports, the vertices [0, n_ports); most ports have a link to one
    other vertex only.

    names       names of the vertices, ports first
    links       directed links between them
    n_ports     number of ports
    routing     "spread" to choose among equal routes by destination, else the first one is taken
    """

    def __init__(
        self, names: Sequence[str], links: Sequence[Edge], n_ports: int = 0, routing: str = "spread"
    ) -> None:
        number = {name: i for i, name in enumerate(names)}
        self.n_vertices = len(names)
        self.n_ports = n_ports
        self.spread_by_destination = routing == "spread"
        self.source = np.array([number[link.source] for link in links], dtype=np.int64)
        self.target = np.array([number[link.target] for link in links], dtype=np.int64)
        latency = np.array([link.latency for link in links])
        # all latencies together count for less than one link
        self.lengths = 1.0 + 0.5 * latency / (latency.sum() or 1.0)

    def _matrix(self, links: IntArray) -> csr_array:
        """Return the lengths of the links as a sparse matrix (source, target)."""
        from scipy.sparse import csr_array  # as long to load as a small call to simulate

        ends = (self.source[links], self.target[links])
        return csr_array((self.lengths[links], ends), shape=(self.n_vertices, self.n_vertices))

    @cached_property
    def components(self) -> IntArray:
        """Strongly connected component of each vertex, shape (vertices,)."""
        on = self._leaf_attachments[0]
        if not len(self._trunks):
            return on
        from scipy.sparse.csgraph import connected_components

        matrix = self._matrix(self._trunks)
        part = connected_components(matrix, directed=True, connection="strong")[1]
        return np.asarray(part, dtype=np.int64)[on]

    def parts(self, kept: BoolArray) -> IntArray:
        """Return the part of each vertex in which some links connect it, shape (vertices,).

        kept    which links there are, shape (links,); they connect in both directions
        """
        from scipy.sparse.csgraph import connected_components

        matrix = self._matrix(np.flatnonzero(kept))
        return np.asarray(connected_components(matrix, directed=False)[1], dtype=np.int64)

    def is_reachable(self, a: int, b: int) -> bool:
        from scipy.sparse.csgraph import dijkstra

        distance = dijkstra(self._matrix(np.arange(len(self.source))), indices=a, unweighted=True)
        return bool(np.isfinite(distance[b]))

    def all_routes(self, is_endpoint: BoolArray) -> tuple[IntArray, FloatArray]:
        """Return routes and lengths between all vertices.

        is_endpoint     vertices that begin and end routes but never forward, shape (vertices,)

        Routes are link numbers of shape (vertices, vertices, most links), -1 where there is none.
        Lengths have shape (vertices, vertices) and are infinite where there is no route.
        """
        from scipy.sparse.csgraph import dijkstra

        n = self.n_vertices
        distance, found = np.full((n, n), np.inf), []
        link_of = {
            (a, b): i
            for i, (a, b) in enumerate(zip(self.source.tolist(), self.target.tolist(), strict=True))
        }
        for a in range(n):
            forwards = ~is_endpoint[self.source] | (self.source == a)
            distance[a], before = dijkstra(
                self._matrix(np.flatnonzero(forwards)), indices=a, return_predecessors=True
            )
            found += [_trace_back(before.tolist(), a, b, link_of) for b in range(n)]
        routes = np.full((n * n, max(map(len, found), default=0)), -1)
        for row, route in enumerate(found):
            routes[row, : len(route)] = route
        return routes.reshape(n, n, -1), distance

    @cached_property
    def _leaf_attachments(self) -> tuple[IntArray, IntArray, IntArray]:
        """The vertex that each port is attached to, and the links up to it and down from it.

        Only ports with exactly one link out and one link in, both to the same vertex that is not a
        port, are attached; other vertices have themselves and -1. No route leads through an
        attached port.
        """
        on, up, down = np.arange(self.n_vertices), *np.full((2, self.n_vertices), -1)
        out = np.bincount(self.source, minlength=self.n_vertices)
        back = np.bincount(self.target, minlength=self.n_vertices)
        first_out = np.zeros(self.n_vertices, np.int64)
        first_back = np.zeros(self.n_vertices, np.int64)
        first_out[self.source], first_back[self.target] = (np.arange(len(self.source)),) * 2
        single = (out == 1) & (back == 1) & (np.arange(self.n_vertices) < self.n_ports)
        v = np.flatnonzero(single)
        v = v[self.target[first_out[v]] == self.source[first_back[v]]]
        v = v[self.target[first_out[v]] >= self.n_ports]
        on[v], up[v], down[v] = self.target[first_out[v]], first_out[v], first_back[v]
        return on, up, down

    @cached_property
    def _port_ranks(self) -> IntArray:
        """Number of each port, counted switch by switch; destinations are spread by it."""
        order = np.argsort(self._leaf_attachments[0][: self.n_ports], kind="stable")
        rank = np.empty(self.n_ports, np.int64)
        rank[order] = np.arange(self.n_ports)
        return rank

    def routes(self, source: IntArray, target: IntArray) -> IntArray:
        """Return the routes between ports as link numbers.

        source, target      port numbers, shape (k,); both ports of a pair must be in one component

        The result has shape (k, most links), -1 where there is no link.
        """
        _, up, down = self._leaf_attachments
        same = source == target
        ends = np.where(same, -1, up[source])[:, None], np.where(same, -1, down[target])[:, None]
        if not len(self._trunks):  # no links between switches
            return np.hstack(ends)
        return np.hstack([ends[0], self._routes_between_switches(source, target), ends[1]])

    def _routes_between_switches(self, source: IntArray, target: IntArray) -> IntArray:
        """Return the links between the vertices that the ports are attached to; see `routes`."""
        on = self._leaf_attachments[0]
        targets, column = np.unique(on[target], return_inverse=True)
        middle = np.full((len(source), 0), -1)
        few = max(1, MAX_DISTANCES_AT_ONCE // self.n_vertices)
        for begin in range(0, len(targets), few):
            mine = np.flatnonzero((begin <= column) & (column < begin + few))
            distance = self._distances_to(targets[begin : begin + few])
            found = self._trace_routes(
                on[source[mine]], target[mine], column[mine] - begin, distance
            )
            wider = max(0, found.shape[1] - middle.shape[1])
            middle = np.pad(middle, ((0, 0), (0, wider)), constant_values=-1)
            middle[mine, : found.shape[1]] = found
        return middle

    @cached_property
    def _trunks(self) -> IntArray:
        up = self._leaf_attachments[1]
        return np.flatnonzero((up[self.source] < 0) & (up[self.target] < 0))

    @cached_property
    def _reversed_matrix(self) -> csr_array:
        """Lengths of the trunks as a matrix (target, source)."""
        return self._matrix(self._trunks).T.tocsr()

    def _distances_to(self, targets: IntArray) -> FloatArray:
        """Return the distances to unattached vertices, shape (targets, vertices)."""
        from scipy.sparse.csgraph import dijkstra

        distance: FloatArray = dijkstra(self._reversed_matrix, indices=targets)
        return distance

    @cached_property
    def _outgoing_links(self) -> tuple[IntArray, IntArray]:
        """Links ordered by source, as (offsets, links).

        The links out of vertex v are links[offsets[v]:offsets[v + 1]]; offsets has shape
        (vertices + 1,).
        """
        order = np.argsort(self.source, kind="stable")
        return np.searchsorted(self.source[order], np.arange(self.n_vertices + 1)), order

    def _trace_routes(
        self, near: IntArray, target: IntArray, column: IntArray, distance: FloatArray
    ) -> IntArray:
        """Return the links from each vertex `near` to the vertex that its target is attached to.

        near        vertex numbers, shape (k,)
        target      port numbers, shape (k,)
        column      row of `distance` that belongs to each target, shape (k,)
        distance    distances to the targets, shape (targets, vertices)
        """
        first, order = self._outgoing_links
        found = np.full((len(near), int(distance[column, near].max(initial=0.0))), -1)
        _trace_links(
            near,
            self._leaf_attachments[0][target],
            column,
            self._port_ranks[target],
            distance,
            first,
            order,
            self.target,
            self.lengths,
            self.spread_by_destination,
            found,
        )
        return found


def _trace_back(
    before: list[int], a: int, b: int, link_of: dict[tuple[int, int], int]
) -> list[int]:
    route: list[int] = []
    while b != a and before[b] >= 0:
        route.append(link_of[before[b], b])
        b = before[b]
    return route[::-1]


@compiled()
def _trace_links(
    near: IntArray,
    far: IntArray,
    column: IntArray,
    rank: IntArray,
    distance: FloatArray,
    first: IntArray,
    order: IntArray,
    target: IntArray,
    length: FloatArray,
    spread: bool,
    found: IntArray,
) -> None:
    """Follow shortest routes link by link and write their links to `found`.

    Where n links lead on equally well, the number of the destination decides: its remainder modulo
    n at the first such vertex, the quotient's remainder at the next one, and so on.
    """
    for i in range(len(near)):
        at, to_go, hop = near[i], rank[i], 0
        while at != far[i]:
            left = distance[column[i], at]
            equal = 0
            for k in range(first[at], first[at + 1]):
                rest = distance[column[i], target[order[k]]] + length[order[k]]
                equal += abs(rest - left) < LENGTH_TOLERANCE
            chosen = to_go % equal if spread else 0
            to_go //= equal
            for k in range(first[at], first[at + 1]):
                rest = distance[column[i], target[order[k]]] + length[order[k]]
                if abs(rest - left) < LENGTH_TOLERANCE:
                    if chosen == 0:
                        found[i, hop] = order[k]
                        at = target[order[k]]
                        hop += 1
                        break
                    chosen -= 1
