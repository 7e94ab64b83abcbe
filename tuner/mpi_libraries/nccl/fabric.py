"""What the links between switches leave of the bandwidth that NCCL expects between nodes.

NCCL takes a NIC at its own rate whatever lies behind it. Its rings send from each node to the next
one, its trees along the edges of two binary trees in both directions, over every NIC. In an
all-to-all each node sends to every other one; a GPU hands what goes there to the GPU of its node
whose NIC is on the rail of the receiver (PXN). Where routes are fixed, as in a torus, flows share
the links that their routes have in common. Elsewhere those that leave or enter the nodes of a
switch, or of a group of switches such as one of a dragonfly or a part of a fat tree of more than
two levels, share all its links to others, over which adaptive routing is taken to spread them
evenly, in a dragonfly also by detours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np

from tuner.algorithms import trees
from tuner.base.arrays import FloatArray, IntArray
from tuner.core.collective import Collective
from tuner.mpi_libraries.nccl.constants import LL, LL128, NVLS_TREE, RING, SIMPLE, TREE, AlgoProto
from tuner.mpi_libraries.nccl.model_v2_30 import ring_hops
from tuner.topology import CUDA, Placement, Topology

if TYPE_CHECKING:
    from tuner.topology.graph import RouteGraph

MAX_ROUTES = 1 << 16  # held in memory at once
WIRE_BYTES = {SIMPLE: 1.0, LL: 2.0, LL128: 128 / 120}  # bytes sent for one of the buffer


class FabricBound:
    """The bounds that the links between switches set to NCCL's algorithms on a placement.

    Rings, trees and all-to-alls have one.

    placement   with equally many ranks, one per GPU, on each node
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._nodes, self._ppn = placement.shape
        self._flow_rate = cache(self._slowest_flow)
        self._exchange_rate = cache(self._slowest_exchange)

    def bandwidth(self, collective: Collective, way: AlgoProto) -> float:
        """Return the bytes of the buffer per second that the links between switches let through.

        It is infinite for algorithms other than rings and trees.
        """
        if self._nodes == 1 or way.algorithm not in (RING, TREE, NVLS_TREE):
            return math.inf
        p = self._nodes * self._ppn
        crossings = ring_hops(collective, p) / p if way.algorithm == RING else 1.0
        sent = crossings * WIRE_BYTES[way.protocol]
        return self._flow_rate(way.algorithm == RING) * len(self._rails) / sent

    def exchange_bandwidth(self) -> float:
        """Return the bytes of the buffer per second of an all-to-all on the wire."""
        return self._exchange_rate()

    @cached_property
    def _ranks(self) -> IntArray:
        """Ranks by node, shape (nodes, ppn)."""
        order = np.argsort(self._placement.node_of, kind="stable")
        return order.reshape(self._nodes, self._ppn)

    @cached_property
    def _rails(self) -> IntArray:
        """One of the ranks of a node for each NIC that they use, as columns of `_ranks`."""
        nics = self._placement.rank_devices(CUDA).nic[self._ranks[0]]
        return np.sort(np.unique(nics, return_index=True)[1])

    def _slowest_flow(self, rings: bool) -> float:
        """Return the bytes per second of the slowest flow between two nodes."""
        topology, places = self._placement.topology, self._placement.rank_devices(CUDA)
        src, dst = (places.nic[ranks] for ranks in self._flows(rings))
        return _slowest(topology, src, dst, np.ones(len(src)))

    def _slowest_exchange(self) -> float:
        """Return the bytes of the buffer per second that the links let through in an all-to-all.

        Nodes on one switch, and rails on the same switches, use the same links.
        """
        topology, places = self._placement.topology, self._placement.rank_devices(CUDA)
        switch, nics = _switches(topology), places.nic[self._ranks[:, self._rails].T]
        _, first, alike = np.unique(switch[nics], axis=0, return_index=True, return_counts=True)
        flows = []
        for rail, rails in zip(nics[first], alike, strict=True):
            _, one, nodes = np.unique(switch[rail], return_index=True, return_counts=True)
            dst, src = (side.ravel() for side in np.meshgrid(rail[one], rail[one], indexing="ij"))
            flows.append((src, dst, rails * np.outer(nodes, nodes).ravel()))
        src, dst, pairs = (np.concatenate(side) for side in zip(*flows, strict=True))
        of_pair = self._ppn / (self._nodes * len(self._rails))  # ppn^2 of all p blocks, by rail
        return _slowest(topology, src, dst, of_pair * pairs)

    def _flows(self, rings: bool) -> tuple[IntArray, IntArray]:
        """Return senders and receivers of the flows between nodes, which run at the same time."""
        ends = []
        for number, rail in enumerate(self._rails):
            ranks = self._ranks[:, rail]
            if rings:
                ends.append((ranks, np.roll(ranks, -1)))
            else:
                edges = trees.broadcast_hops(trees.in_order_tree(self._nodes, number % 2))
                up, down = ranks[edges.dst], ranks[edges.src]
                ends += [(up, down), (down, up)]
        src, dst = (np.concatenate(side) for side in zip(*ends, strict=True))
        return src, dst


def _slowest(topology: Topology, src: IntArray, dst: IntArray, weight: FloatArray) -> float:
    """Return the bytes per second of a flow of weight 1, infinite where no links are shared.

    src, dst    network ports, shape (flows,)
    weight      bytes of each flow for one of such a flow, shape (flows,)
    """
    capacity = _capacity_between_switches(topology)
    sharing = _over_routes if topology.routing == "first" else _over_switches
    shared, rates = sharing(topology, capacity, src, dst, weight)
    used = (shared > 0.0) & (rates > 0.0)  # other nodes hang on no switch
    return float((rates[used] / shared[used]).min(initial=math.inf))


def _over_routes(
    topology: Topology, capacity: FloatArray, src: IntArray, dst: IntArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the weight of flows over each link, and its bytes per second; see `_slowest`.

    Both have shape (links of the network,).
    """
    shared = np.zeros(len(capacity))
    for begin in range(0, len(src), MAX_ROUTES):
        some = slice(begin, begin + MAX_ROUTES)
        links = topology.graph.routes(src[some], dst[some])
        weights = np.broadcast_to(weight[some, None], links.shape)
        shared += np.bincount(links[links >= 0], weights[links >= 0], len(capacity))
    return shared, capacity


def _over_switches(
    topology: Topology, capacity: FloatArray, src: IntArray, dst: IntArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return what leaves and enters each set of switches, and the bytes per second of its links.

    Both have shape (divisions of `_divisions` x 2 x vertices of the network,); see `_slowest`.
    """
    graph, switch = topology.graph, _switches(topology)
    shared, rates = list[FloatArray](), list[FloatArray]()
    flows = switch[src], switch[dst], weight, shared
    links = graph.source, graph.target, capacity, rates
    for part in _divisions(graph, capacity):
        for source, target, amount, found in (flows, links):
            between = np.where(part[source] != part[target], amount, 0.0)
            for end in (source, target):
                found.append(np.bincount(part[end], between, graph.n_vertices).astype(np.float64))
    return np.concatenate(shared), np.concatenate(rates)


def _divisions(graph: RouteGraph, capacity: FloatArray) -> Iterator[IntArray]:
    """Yield divisions of the vertices into sets: the set of each vertex, shape (vertices,).

    Sets are single vertices, and those that remain connected without the links of one rate and
    latency between switches, as groups of a dragonfly do without the links between them.

    capacity    bytes per second of links between switches, 0 for others, shape (links,)
    """
    yield np.arange(graph.n_vertices)
    kinds = np.stack([capacity, graph.lengths])
    for kind in np.unique(kinds[:, capacity > 0.0], axis=1).T:
        yield graph.parts((kinds != kind[:, None]).any(axis=0))


def _switches(topology: Topology) -> IntArray:
    """Return the switch of each network port, shape (ports,)."""
    source, target, ports = topology.graph.source, topology.graph.target, len(topology.ports)
    switch = np.arange(ports)
    switch[source[source < ports]] = target[source < ports]
    return switch


def _capacity_between_switches(topology: Topology) -> FloatArray:
    """Return the bytes per second of the links of the network; 0 for those at nodes."""
    source, target = topology.graph.source, topology.graph.target
    ports = len(topology.ports)
    between = (source >= ports) & (target >= ports)
    return np.where(between, topology.capacity[: len(topology.links)], 0.0)
