"""The cost and the route of every connection of a call.

A connection is (sender, receiver, memory, traffic pattern): everything but the size that the cost
of a transfer depends on. Connections of one kind cost the same; the links crossed differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tuner.base.arrays import BoolArray, FloatArray, IntArray
from tuner.base.errors import MissingCostError
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

T = TypeVar("T", bound=np.generic)

MAX_PATHS_PER_CHUNK = 1 << 16  # finding a path takes much more memory than keeping it


@dataclass(frozen=True)
class Connections:
    """The costs and routes of n connections.

    src, dst                ranks, shape (n,)
    send_port, recv_port    ports of sender and receiver, of two per rank, shape (n,): rank r has
                            port r, and p + r for the network if that has ports of its own
    kind                    row of `costs`, shape (n,)
    paths_by_mode           transfer mode -> paths of the connections, for modes that some size uses
    port_share              part of its beta for which a message keeps the ports of its sender and
                            its receiver busy, shape (n, 2)
    capacity                bytes per second of every resource
    """

    src: IntArray
    dst: IntArray
    send_port: IntArray
    recv_port: IntArray
    kind: IntArray
    costs: CostArrays
    paths_by_mode: dict[int, Paths]
    port_share: FloatArray
    capacity: FloatArray


def build_connections(
    placement: Placement,
    calibration: Calibration,
    src: IntArray,
    dst: IntArray,
    cuda: BoolArray,
    pattern: IntArray,
) -> Connections:
    """Look up the costs and routes of n connections.

    src, dst    ranks, shape (n,)
    cuda        whether the buffers are in device memory, shape (n,)
    pattern     traffic patterns (`tuner.sim.traffic_pattern`), shape (n,)

    Raises MissingCostError where a path has no cost, InputError where a node has no GPU.
    """
    memories = [memory for memory, there in ((HOST, ~cuda), (CUDA, cuda)) if there.any()]

    def on(**way: bool) -> Paths:
        parts = [
            (mine, find_paths(placement, memory, src[mine], dst[mine], **way))
            for memory in memories
            for mine in _chunks(np.flatnonzero(cuda == (memory == CUDA)))
        ]
        return _concatenate(parts, len(src))

    straight = on()
    kind, own = _group_by_cost(placement, calibration, straight, cuda, pattern)
    remote = straight.path_class == PATH_CLASSES.index(NETWORK)
    between = np.zeros(len(own), bool)
    between[kind[remote]] = True
    costs = pack_costs(calibration, own, between)
    ways = {DIRECT: straight}
    if (costs.mode == STAGED).any():
        ways[STAGED] = on(staged=True)
    if np.isfinite(costs.striping_threshold).any():
        ways[STRIPED] = on(striped=True)
    second = np.where(remote & calibration.separate_network_port, placement.p, 0)
    return Connections(
        src,
        dst,
        src + second,
        dst + second,
        kind,
        costs,
        ways,
        _port_share(straight, np.array([cost.from_links for cost in own], bool)[kind]),
        _capacity(placement, calibration),
    )


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


def _chunks(rows: IntArray) -> list[IntArray]:
    """Split rows into chunks of at most MAX_PATHS_PER_CHUNK."""
    return [rows[at : at + MAX_PATHS_PER_CHUNK] for at in range(0, len(rows), MAX_PATHS_PER_CHUNK)]


def _concatenate(parts: list[tuple[IntArray, Paths]], n: int) -> Paths:
    """Join the paths of all chunks and memories in the order of the n connections."""
    if len(parts) == 1:
        return parts[0][1]
    none = (
        np.zeros((0, 1), np.int64),
        np.zeros((0, 1)),
        np.zeros(0),
        np.zeros(0),
        np.zeros((0, 2)),
    )
    if not parts:
        return Paths(*none, np.zeros(0, np.int64), np.zeros(0, np.int64))
    order, found = [mine for mine, _ in parts], [part for _, part in parts]
    return Paths(
        _scatter(n, order, [part.links for part in found], -1),
        _scatter(n, order, [part.load_factor for part in found]),
        _scatter(n, order, [part.latency for part in found]),
        _scatter(n, order, [part.bandwidth for part in found]),
        _scatter(n, order, [part.port_bandwidth for part in found]),
        _scatter(n, order, [part.hops for part in found]),
        _scatter(n, order, [part.path_class for part in found]),
    )


def _scatter(n: int, order: list[IntArray], values: list[NDArray[T]], fill: int = 0) -> NDArray[T]:
    """Put the values of each part at its indices; shorter rows are padded with `fill`."""
    width = max(value.shape[1:] for value in values)
    whole = np.full((n, *width), fill, values[0].dtype)
    for mine, value in zip(order, values, strict=True):
        if width:
            whole[mine, : value.shape[1]] = value
        else:
            whole[mine] = value
    return whole


def _capacity(placement: Placement, calibration: Calibration) -> FloatArray:
    topology = placement.topology
    memory = calibration.capacities.get(MEMORY_BUS)
    bus = memory.value if memory else topology.memory_bandwidth
    return np.concatenate([topology.capacity, np.full(len(topology.nodes), bus)])


def _group_by_cost(
    placement: Placement,
    calibration: Calibration,
    direct: Paths,
    cuda: BoolArray,
    pattern: IntArray,
) -> tuple[IntArray, list[ConnectionCost]]:
    """Return the kind of each connection, and the cost of each kind."""
    figures = (direct.path_class, direct.hops, direct.latency, direct.bandwidth, cuda, pattern)
    code = np.zeros(len(cuda), np.int64)
    for figure in figures:  # number the distinct combinations of figures
        values, own = unique_inverse(np.ascontiguousarray(figure, dtype=np.float64).view(np.int64))
        code = unique_inverse(code * max(1, len(values)) + own)[1]
    one = np.empty(int(code.max(initial=-1)) + 1, np.int64)
    one[code[::-1]] = np.arange(len(code))[::-1]  # the first connection of each kind
    each = zip(*(figure[one].tolist() for figure in figures), strict=True)
    return code, [_cost(placement, calibration, *own) for own in each]


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
            f"topology {topology.name} does not say what a message inside a node costs; use"
            " --ppn 1 or add `local: {latency: ..., bandwidth: ...}`"
        )
    return ConnectionCost(
        PathCost.from_alpha_beta(topology.local_latency, 1.0 / topology.local_bandwidth)
    )


def flatten_routes(connected: Connections) -> tuple[IntArray, FloatArray, IntArray]:
    """Return links and load factors of all modes below one another, and each mode's first row."""
    there: list[Paths] = list(connected.paths_by_mode.values())
    width = max(part.links.shape[1] for part in there)
    pad = [((0, 0), (0, width - part.links.shape[1])) for part in there]
    links = [np.pad(part.links, p, constant_values=-1) for part, p in zip(there, pad, strict=True)]
    use = [np.pad(part.load_factor, p) for part, p in zip(there, pad, strict=True)]
    start = np.zeros(3, np.int64)
    start[list(connected.paths_by_mode)] = np.arange(len(there)) * len(connected.src)
    return np.concatenate(links), np.concatenate(use), start
