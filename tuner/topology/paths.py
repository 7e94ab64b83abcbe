"""The paths of messages between ranks: the links they cross and their path class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.base.arrays import BoolArray, FloatArray, IntArray
from tuner.core.path_classes import (
    CROSS_SOCKET,
    CUDA,
    NETWORK,
    NODE,
    NODE_OVERSUBSCRIBED,
    NVLINK,
    PATH_CLASSES,
    PCIE,
    SAME_GPU,
)
from tuner.topology.machine import GPU_LINK_KINDS, Topology
from tuner.topology.placement import Placement, RankDevices

PATH_CLASS_INDEX = {name: number for number, name in enumerate(PATH_CLASSES)}


@dataclass(frozen=True)
class Paths:
    """k paths between pairs of ranks.

    links           resource numbers, shape (k, most links), -1 where there is none: links of the
                    topology, and after them one memory bus for each node
    load_factor     bytes that cross each of them for one byte sent, same shape: 1, or the share of
                    a stripe
    latency         seconds, shape (k,): sum over the links; of several stripes, the largest
    bandwidth       bytes per second, shape (k,): of the resource that limits the path
    port_bandwidth  bytes per second that the links of the sender's and of the receiver's node let
                    through, shape (k, 2), the links between these nodes and the network included
    hops            number of links, shape (k,); of several stripes, the largest
    path_class      indices into `PATH_CLASSES`, shape (k,)
    """

    links: IntArray
    load_factor: FloatArray
    latency: FloatArray
    bandwidth: FloatArray
    port_bandwidth: FloatArray
    hops: IntArray
    path_class: IntArray


def find_paths(
    placement: Placement,
    memory: str,
    source: IntArray,
    target: IntArray,
    *,
    staged: bool = False,
    striped: bool = False,
) -> Paths:
    """Return the paths between the buffers of ranks.

    source, target  ranks, shape (k,), different in every pair
    memory          kind of memory that holds the buffers
    staged          send through the host memory of both ends
    striped         between nodes, send equal parts over all NICs of both at once

    Raises InputError as `Placement.rank_devices` does.
    """
    routes = _RouteFinder(placement, memory, source, target)
    stripes = routes.striped_routes() if striped else [routes.single_routes(staged)]
    topology = placement.topology
    number = np.sum([(links >= 0).any(axis=1) for links in stripes], axis=0)
    latency = _elementwise_max([topology.resource_latency[links].sum(axis=1) for links in stripes])
    hops = _elementwise_max([_is_link(topology, links).sum(axis=1) for links in stripes])
    links = _pack_links(np.hstack(stripes))
    use = np.where(links >= 0, 1.0 / np.maximum(1, number)[:, None], 0.0)
    if staged or striped:  # stripes or staging may cross a link more than once
        links, use = _merge_links(links, use)
    width, ports = routes.bandwidths(links, use)
    return Paths(links, use, latency, width, ports, hops, routes.path_class())


class _RouteFinder:
    """Finds the routes that paths between given ranks consist of."""

    def __init__(
        self, placement: Placement, memory: str, source: IntArray, target: IntArray
    ) -> None:
        self.topology, self.memory = placement.topology, memory
        self.source, self.target = source, target
        self.node = placement.node_of
        self.rank_devices: RankDevices = placement.rank_devices(memory)
        self.is_local = self.node[source] == self.node[target]
        self.is_oversubscribed = placement.is_oversubscribed[source]

    def single_routes(self, staged: bool) -> IntArray:
        """Return one route per pair, direct or through the host memory of both ends."""
        at, places = (self.source, self.target), self.rank_devices
        first, last = (places.device[rank] for rank in at)
        if not staged:
            return self._route(first, last, places.nic)
        through = [places.cpu[rank] for rank in at]
        return np.hstack(
            [
                self._within_node(self.node[self.source], first, through[0]),
                self._route(through[0], through[1], places.cpu_nic),
                self._within_node(self.node[self.target], through[1], last),
            ]
        )

    def striped_routes(self) -> list[IntArray]:
        """Return one array of routes per NIC that both nodes have; pairs within a node use one."""
        first, ports = (
            of[self.node] for of in (self.topology.first_port, self.topology.port_counts)
        )
        number = np.where(self.is_local, 1, np.minimum(ports[self.source], ports[self.target]))
        ends = (self.rank_devices.device[self.source], self.rank_devices.device[self.target])
        return [
            _where_or_none(self._route(*ends, first + np.minimum(rail, ports - 1)), rail < number)
            for rail in range(int(number.max(initial=1)))
        ]

    def _route(self, first: IntArray, last: IntArray, port: IntArray) -> IntArray:
        """Return the routes between devices; between nodes over the given port of each rank.

        first, last     devices of the sender and the receiver, shape (k,)
        port            network port of every rank, shape (p,)
        """
        a, b = self.node[self.source], self.node[self.target]
        local = self.is_local
        out, back = port[self.source], self._same_rail(port)
        nothing = np.full((len(a), 0), -1)
        between = nothing if local.all() else self._across_network(~local, out, back)
        own = _where_or_none(self._within_node(a, first, last), local)
        if self.memory != CUDA:  # messages within a node's host memory share its bus
            bus = len(self.topology.capacity) + a
            own = np.hstack([own, np.where(local, bus, -1)[:, None]])
        leave = _where_or_none(self._within_node(a, first, self._nic(a, out)), ~local)
        enter = _where_or_none(self._within_node(b, self._nic(b, back), last), ~local)
        return np.hstack([own, leave, between, enter])

    def _across_network(self, remote: BoolArray, out: IntArray, back: IntArray) -> IntArray:
        found = self.topology.graph.routes(out[remote], back[remote])
        between = np.full((len(remote), found.shape[1]), -1)
        between[remote] = found
        return between

    def _same_rail(self, port: IntArray) -> IntArray:
        """Return the receiver's port, or one on the sender's rail if rails are separate."""
        part, nodes = self.topology.graph.components, np.arange(len(self.topology.nodes))
        out, back = part[port[self.source]], part[port[self.target]]
        if (out == back).all():
            return port[self.target]
        node = np.repeat(nodes, self.topology.port_counts)
        rails, first = np.unique(node * len(part) + part[: len(node)], return_index=True)
        same = np.searchsorted(rails, self.node[self.target] * len(part) + out)
        return np.where(out == back, port[self.target], first[same])

    def _nic(self, node: IntArray, port: IntArray) -> IntArray:
        """Return the device number of the NIC at each port; -1 in a node without NICs."""
        device = np.full(len(node), -1)
        for interior, nodes in self.topology.node_topologies:
            nics = interior.device_indices("nic")
            if len(nics):
                mine = np.isin(node, nodes)
                device[mine] = nics[port[mine] - self.topology.first_port[node[mine]]]
        return device

    def _within_node(self, node: IntArray, first: IntArray, last: IntArray) -> IntArray:
        """Return the links between two devices of a node, as numbers of `Topology` links."""
        width = max((i.routes.shape[2] for i, _ in self.topology.node_topologies), default=0)
        found = np.full((len(node), width), -1)
        for interior, nodes in self.topology.node_topologies:
            mine = np.flatnonzero(np.isin(node, nodes) & (first >= 0) & (last >= 0))
            route = interior.routes[first[mine], last[mine]]
            start = self.topology.first_node_link[node[mine]][:, None]
            found[mine, : route.shape[1]] = np.where(route >= 0, route + start, -1)
        return found

    def bandwidths(self, links: IntArray, load_factor: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return `Paths.bandwidth` and `Paths.port_bandwidth` of paths over `links`."""
        from tuner.topology.route_arrays import narrowest_links  # as below

        width, ports = np.full(len(links), np.inf), np.full((len(links), 2), np.inf)
        capacity, nodes = self.topology.resource_capacity, self.topology.resource_nodes
        ends = self.node[np.stack([self.source, self.target], axis=1)]
        narrowest_links(links, load_factor, capacity, nodes, ends, width, ports)
        return width, ports

    def path_class(self) -> IntArray:
        """Return the path class of each pair, as indices into `PATH_CLASSES`."""
        first, last = (self.rank_devices.device[rank] for rank in (self.source, self.target))
        same = first == last
        if self.memory != CUDA:
            near = np.where(
                self.is_oversubscribed,
                PATH_CLASS_INDEX[NODE_OVERSUBSCRIBED],
                PATH_CLASS_INDEX[NODE],
            )
            inside = np.where(same, near, PATH_CLASS_INDEX[CROSS_SOCKET])
        else:
            kind = self._kind_of_links(first, last)
            inside = np.where(same, PATH_CLASS_INDEX[SAME_GPU], kind)
        return np.where(self.is_local, inside, PATH_CLASS_INDEX[NETWORK])

    def _kind_of_links(self, first: IntArray, last: IntArray) -> IntArray:
        """Return the class of each pair of GPUs within a node.

        The class is NVLINK if the route consists of `GPU_LINK_KINDS`, CROSS_SOCKET if it crosses
        the bus between CPUs, and PCIE otherwise.
        """
        node = self.node[self.source]
        found = np.full(len(node), PATH_CLASS_INDEX[PCIE])
        for interior, nodes in self.topology.node_topologies:
            mine = np.flatnonzero(np.isin(node, nodes) & self.is_local)
            kinds = np.array([*(link.kind for link in interior.links), ""])
            crossed = kinds[interior.routes[first[mine], last[mine]]]
            nvlink = np.isin(crossed, (*GPU_LINK_KINDS, "")).all(axis=1)
            socket = (crossed == "socket").any(axis=1)
            found[mine] = np.select(
                [nvlink, socket],
                [PATH_CLASS_INDEX[NVLINK], PATH_CLASS_INDEX[CROSS_SOCKET]],
                PATH_CLASS_INDEX[PCIE],
            )
        return found


def _where_or_none(links: IntArray, where: BoolArray) -> IntArray:
    return np.where(where[:, None], links, -1)


def _is_link(topology: Topology, links: IntArray) -> BoolArray:
    """Return which resources are links; memory buses are not."""
    return (links >= 0) & (links < len(topology.capacity))


def _elementwise_max(stripes: list[NDArray[np.generic]]) -> Any:
    return stripes[0] if len(stripes) == 1 else np.max(stripes, axis=0)


def _pack_links(links: IntArray) -> IntArray:
    """Return the routes with their links moved to the front and empty columns removed."""
    from tuner.topology.route_arrays import move_to_front  # numba, which routes alone need

    packed = np.full((len(links), max(1, int((links >= 0).sum(axis=1).max(initial=0)))), -1)
    move_to_front(links, packed)
    return packed


def _merge_links(links: IntArray, load_factor: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return each link of a route once, with the sum of its load factors."""
    same = links[:, :, None] == links[:, None, :]
    load = np.where(same, load_factor[:, None, :], 0.0).sum(axis=2)
    before = np.tri(links.shape[1], k=-1, dtype=bool)
    again = (same & before).any(axis=2)
    return np.where(again, -1, links), np.where(again | (links < 0), 0.0, load)
