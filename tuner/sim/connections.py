"""The cost and the route of every connection of a call.

A connection is (sender, receiver, memory, traffic pattern): everything but the size that the cost
of a transfer depends on. Connections of one kind cost the same; the links crossed differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from tuner.base.arrays import AnyArray, BoolArray, FloatArray, Int32Array, IntArray
from tuner.base.errors import LimitExceededError, MissingCostError
from tuner.base.units import format_time
from tuner.core.calibration import Calibration, PathCost
from tuner.core.path_classes import PATH_CLASSES
from tuner.core.schedule import Schedule
from tuner.sim.cost_arrays import DIRECT, STAGED, STRIPED, ConnectionCost, CostArrays, pack_costs
from tuner.sim.traffic_pattern import PATH_CLASS_OF_PATTERN
from tuner.sim.unique import unique_inverse
from tuner.topology import (
    CUDA,
    HOST,
    MEMORY_BUS,
    NETWORK,
    NODE,
    NODE_OVERSUBSCRIBED,
    Paths,
    Placement,
    find_paths,
)

MAX_PATHS_PER_CHUNK = 1 << 16  # finding a path takes much more memory than keeping it
MAX_ROUTE_LINKS = 1 << 26  # of all routes of one transfer mode: some eight gigabytes in all


@dataclass(frozen=True)
class Routes:
    """The resources that n connections cross in one transfer mode.

    links           resource numbers, shape (n, most links), -1 for none
    load_factor     bytes that cross each of them per byte sent, same shape; a single value that is
                    repeated without memory if it is 1 everywhere
    """

    links: Int32Array
    load_factor: FloatArray


@dataclass(frozen=True)
class Connections:
    """The costs and routes of n connections.

    send_port, recv_port    ports of sender and receiver, of two per rank, shape (n,): rank r has
                            port r, and p + r for the network if that has ports of its own
    kind                    row of `costs`, shape (n,)
    routes_by_mode          transfer mode -> routes of the connections, for modes that some size
                            uses
    port_share              part of its beta for which a message keeps the ports of its sender and
                            its receiver busy, shape (n, 2)
    capacity                bytes per second of every resource
    """

    send_port: Int32Array
    recv_port: Int32Array
    kind: Int32Array
    costs: CostArrays
    routes_by_mode: dict[int, Routes]
    port_share: FloatArray
    capacity: FloatArray


class ConnectionFinder:
    """Finds the connections on a machine; those asked for last are kept.

    Both ways to simulate a call, by rounds and by events, ask for the same ones.
    """

    def __init__(self, placement: Placement, calibration: Calibration) -> None:
        self._placement, self._calibration = placement, calibration
        self._last: tuple[IntArray, Connections] | None = None

    def find(self, keys: IntArray) -> Connections:
        """Return the connections of some keys; raises as `build_connections` does.

        keys    (2 pattern + in device) p^2 + src p + dst, shape (n,)
        """
        if self._last is None or not np.array_equal(self._last[0], keys):
            self._last = keys, self._build(keys)
        return self._last[1]

    def _build(self, keys: IntArray) -> Connections:
        p = self._placement.p
        own, pair = (keys // (p * p)).astype(np.int8), keys % (p * p)
        src, dst = (pair // p).astype(np.int32), (pair % p).astype(np.int32)
        del pair  # as large as the routes
        return build_connections(
            self._placement, self._calibration, src, dst, own % 2 == 1, own // 2
        )


def build_connections(
    placement: Placement,
    calibration: Calibration,
    src: Int32Array,
    dst: Int32Array,
    cuda: BoolArray,
    pattern: AnyArray,
) -> Connections:
    """Look up the costs and routes of n connections.

    src, dst    ranks, shape (n,)
    cuda        whether the buffers are in device memory, shape (n,)
    pattern     traffic patterns (`tuner.sim.traffic_pattern`), shape (n,)

    Raises MissingCostError where a path has no cost, InputError where a node has no GPU,
    LimitExceededError for more than MAX_ROUTE_LINKS in the routes of a mode.
    """
    n, kinds = len(src), _ConnectionKinds(placement, calibration)
    direct, kind, share = _RouteColumns(n), np.zeros(n, np.int32), _UniformColumns(n, 2, 1.0)
    between_nodes = np.zeros(n, bool)
    for rows, paths in _find_paths(placement, src, dst, cuda):
        direct.set_rows(rows, paths)
        kind[rows] = kinds.numbers_of(paths, cuda[rows], pattern[rows])
        share.set_rows(rows, _port_share(paths, kinds.are_from_links()[kind[rows]]))
        between_nodes[rows] = paths.path_class == PATH_CLASSES.index(NETWORK)
    costs = kinds.pack_costs(kind[between_nodes])
    routes = {DIRECT: direct.routes()}
    for mode, is_used, way in (
        (STAGED, (costs.mode == STAGED).any(), {"staged": True}),
        (STRIPED, np.isfinite(costs.striping_threshold).any(), {"striped": True}),
    ):
        if is_used:
            routes[mode] = _RouteColumns(n).filled(_find_paths(placement, src, dst, cuda, **way))
    second = np.where(between_nodes & calibration.separate_network_port, placement.p, 0)
    send_port, recv_port = ((rank + second).astype(np.int32) for rank in (src, dst))
    capacity = _capacity(placement, calibration)
    return Connections(send_port, recv_port, kind, costs, routes, share.values, capacity)


def _find_paths(
    placement: Placement, src: Int32Array, dst: Int32Array, cuda: BoolArray, **way: bool
) -> Iterator[tuple[IntArray, Paths]]:
    """Yield the paths of all connections with their rows, MAX_PATHS_PER_CHUNK at a time."""
    for memory in (HOST, CUDA):
        rows = np.flatnonzero(cuda == (memory == CUDA))
        for at in range(0, len(rows), MAX_PATHS_PER_CHUNK):
            mine = rows[at : at + MAX_PATHS_PER_CHUNK]
            source, target = (rank[mine].astype(np.int64) for rank in (src, dst))
            yield mine, find_paths(placement, memory, source, target, **way)


class _UniformColumns:
    """A float array of shape (n, width) that takes no memory while all its values are alike."""

    def __init__(self, n: int, width: int, value: float) -> None:
        self.values: FloatArray = np.broadcast_to(value, (n, width))
        self._value = value

    def set_rows(self, rows: IntArray, values: FloatArray) -> None:
        """Set some rows; further columns are added if `values` has more."""
        n, width = self.values.shape
        wider = max(0, values.shape[1] - width)
        is_uniform = not self.values.flags.writeable
        if is_uniform and (values == self._value).all():
            self.values = np.broadcast_to(self._value, (n, width + wider))
            return
        if wider or is_uniform:
            before, self.values = self.values, np.full((n, width + wider), self._value)
            self.values[:, :width] = before
        self.values[rows, : values.shape[1]] = values


class _RouteColumns:
    """The routes of n connections while they are filled in."""

    def __init__(self, n: int) -> None:
        self._links = np.full((n, 1), -1, np.int32)
        self._load = _UniformColumns(n, 1, 1.0)

    def set_rows(self, rows: IntArray, paths: Paths) -> None:
        width = paths.links.shape[1]
        wider = max(0, width - self._links.shape[1])
        if len(self._links) * width > MAX_ROUTE_LINKS:
            raise LimitExceededError(
                f"{len(self._links)} pairs of ranks have routes over up to {width} links each, and"
                f" at most {MAX_ROUTE_LINKS} links in all can be kept: simulate fewer ranks"
            )
        if wider:
            self._links = np.pad(self._links, ((0, 0), (0, wider)), constant_values=-1)
        self._links[rows, :width] = paths.links
        self._load.set_rows(rows, np.where(paths.links >= 0, paths.load_factor, 1.0))

    def filled(self, parts: Iterator[tuple[IntArray, Paths]]) -> Routes:
        """Return the routes after setting the rows of all parts."""
        for rows, paths in parts:
            self.set_rows(rows, paths)
        return self.routes()

    def routes(self) -> Routes:
        return Routes(self._links, self._load.values)


class _ConnectionKinds:
    """The distinct costs of connections found so far; each is a kind with a number."""

    def __init__(self, placement: Placement, calibration: Calibration) -> None:
        self._cost: Callable[..., ConnectionCost] = lambda *figures: _cost(
            placement, calibration, *figures
        )
        self._calibration = calibration
        self._number: dict[tuple[float, ...], int] = {}
        self._costs: list[ConnectionCost] = []

    def numbers_of(self, direct: Paths, cuda: BoolArray, pattern: AnyArray) -> Int32Array:
        """Return the kind of each of these connections; costs are looked up for new kinds."""
        figures = (direct.path_class, direct.hops, direct.latency, direct.bandwidth, cuda, pattern)
        code = np.zeros(len(cuda), np.int64)
        for figure in figures:  # number the distinct combinations of figures
            bits = np.ascontiguousarray(figure, dtype=np.float64).view(np.int64)
            values, own = unique_inverse(bits)
            code = code * max(1, len(values)) + own
            code = unique_inverse(code)[1].astype(np.int64)
        first = np.empty(int(code.max(initial=-1)) + 1, np.int64)
        first[code[::-1]] = np.arange(len(code))[::-1]  # the first connection of each code
        each = zip(*(figure[first].tolist() for figure in figures), strict=True)
        return np.array([self._kind(own) for own in each], np.int32)[code]

    def _kind(self, figures: tuple[float, ...]) -> int:
        if figures not in self._number:
            self._costs.append(self._cost(*figures))
            self._number[figures] = len(self._number)
        return self._number[figures]

    def are_from_links(self) -> BoolArray:
        """Return which kinds have the costs of their links, shape (kinds,)."""
        return np.array([cost.from_links for cost in self._costs], bool)

    def pack_costs(self, kinds_between_nodes: Int32Array) -> CostArrays:
        """Return the costs of all kinds as arrays.

        kinds_between_nodes     kinds of connections between nodes, in any number
        """
        between = np.zeros(len(self._costs), bool)
        between[kinds_between_nodes] = True
        return pack_costs(self._calibration, self._costs, between)


def _port_share(paths: Paths, from_links: BoolArray) -> FloatArray:
    """Return `Connections.port_share`.

    A port is narrower than the rest of the path, or as narrow, unless the costs are those of links
    (`from_links`), of which the narrowest one may be elsewhere.
    """
    has_rate = from_links[:, None] & np.isfinite(paths.port_bandwidth)
    share = np.ones(paths.port_bandwidth.shape)
    np.divide(paths.bandwidth[:, None], paths.port_bandwidth, out=share, where=has_rate)
    return share


def with_eager_sends(schedule: Schedule, calibration: Calibration) -> Calibration:
    """Return the calibration with all messages eager if the schedule is fire-and-forget.

    In such a schedule no sender waits for the receiver or for an acknowledgement.
    """
    if not schedule.fire_and_forget:
        return calibration
    paths = {
        name: replace(cost, eager_limit=math.inf, sync_ack_threshold=math.inf)
        for name, cost in calibration.paths.items()
    }
    return replace(calibration, paths=paths)


def _capacity(placement: Placement, calibration: Calibration) -> FloatArray:
    topology = placement.topology
    memory = calibration.capacities.get(MEMORY_BUS)
    bus = memory.value if memory else topology.memory_bandwidth
    return np.concatenate([topology.capacity, np.full(len(topology.nodes), bus)])


def _cost(
    placement: Placement,
    calibration: Calibration,
    number: float,
    hops: float,
    latency: float,
    width: float,
    cuda: float,
    pattern: float,
) -> ConnectionCost:
    """Return the cost of a measured path class, or what the topology says if there is none.

    The cost of a path class is that of ends and software: the latency of the links is added.
    """
    name, memory = PATH_CLASSES[int(number)], CUDA if cuda else HOST
    exact = f"{int(hops)} links, {format_time(latency)}, {width:.4g}B/s"
    meeting = PATH_CLASS_OF_PATTERN.get(int(pattern), "") if name == NETWORK else ""
    if (meeting, memory) in calibration.paths:
        return ConnectionCost(calibration.path_cost(meeting, memory), latency, latency)
    if name == NETWORK and (exact, memory) in calibration.paths:
        return ConnectionCost(calibration.path_cost(exact, memory), 0.0, latency)
    if (name, memory) not in calibration.paths and name == NODE_OVERSUBSCRIBED:
        name = NODE  # measured with as many ranks per node as are simulated
    if (name, memory) in calibration.paths:
        return ConnectionCost(calibration.path_cost(name, memory), latency, latency)
    if not calibration.nominal:
        return ConnectionCost(calibration.path_cost(exact if name == NETWORK else name, memory))
    topology = placement.topology
    if name not in (NODE, NODE_OVERSUBSCRIBED):
        return ConnectionCost(PathCost.from_alpha_beta(latency, 1.0 / width), from_links=True)
    if topology.local_latency is None or topology.local_bandwidth is None:
        raise MissingCostError(
            f"topology {topology.name} does not say what a message inside a node costs: take one"
            " rank per node, or add `local: {latency: ..., bandwidth: ...}`"
        )
    return ConnectionCost(
        PathCost.from_alpha_beta(topology.local_latency, 1.0 / topology.local_bandwidth)
    )


def flatten_routes(connected: Connections) -> tuple[Int32Array, FloatArray, IntArray]:
    """Return links and load factors of all modes below one another, and each mode's first row."""
    there = list(connected.routes_by_mode.values())
    start = np.zeros(3, np.int64)
    start[list(connected.routes_by_mode)] = np.arange(len(there)) * len(connected.kind)
    if len(there) == 1:
        return there[0].links, there[0].load_factor, start
    width = max(part.links.shape[1] for part in there)
    pad = [((0, 0), (0, width - part.links.shape[1])) for part in there]
    links = [np.pad(part.links, p, constant_values=-1) for part, p in zip(there, pad, strict=True)]
    use = [np.pad(part.load_factor, p) for part, p in zip(there, pad, strict=True)]
    return np.concatenate(links), np.concatenate(use), start
