"""What every transfer of a call costs and crosses.

A lane is (sender, receiver, memory, manner): all that the price of a transfer depends on besides
its size. Lanes of one kind cost the same; the lane itself decides which links are crossed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tuner.base.arrays import BoolArray, FloatArray, IntArray
from tuner.base.errors import UnpricedError
from tuner.base.units import format_time
from tuner.core.calibration import Calibration, PathCost
from tuner.core.path_classes import PATH_CLASSES
from tuner.core.schedule import Schedule
from tuner.sim.cost_arrays import STAGED, STRAIGHT, STRIPED, Price, Tariff, tariff_of
from tuner.sim.traffic_pattern import CLASSES
from tuner.sim.unique import distinct
from tuner.topology import (
    CUDA,
    HOST,
    MEMORY_BUS,
    NETWORK,
    NODE,
    NODE_OVERSUBSCRIBED,
    Paths,
    Placement,
    paths,
)

T = TypeVar("T", bound=np.generic)

PATHS_AT_ONCE = 1 << 16  # finding one takes much more memory than keeping it


@dataclass(frozen=True)
class Lanes:
    """n lanes.

    source, target      ranks, shape (n,)
    out, back           ports of the sender and of the receiver, of two per rank, shape (n,): where
                        the network has its own, rank r's is p + r
    kind                row of `tariff`, shape (n,)
    ways                way -> paths of the lanes; only of ways that some size takes
    capacity            bytes per second of every resource
    """

    source: IntArray
    target: IntArray
    out: IntArray
    back: IntArray
    kind: IntArray
    tariff: Tariff
    ways: dict[int, Paths]
    capacity: FloatArray


def lanes(
    placement: Placement,
    calibration: Calibration,
    source: IntArray,
    target: IntArray,
    cuda: BoolArray,
    manner: IntArray,
) -> Lanes:
    """Price the lanes; shapes (n,); `cuda` says which have a buffer in device memory.

    `manner` is how a message meets others (`tuner.sim.traffic_pattern`).

    Raises UnpricedError where a path has no price, InputError where a node has no GPU.
    """
    memories = [memory for memory, there in ((HOST, ~cuda), (CUDA, cuda)) if there.any()]

    def on(**way: bool) -> Paths:
        parts = [
            (mine, paths(placement, memory, source[mine], target[mine], **way))
            for memory in memories
            for mine in _pieces(np.flatnonzero(cuda == (memory == CUDA)))
        ]
        return _joined(parts, len(source))

    straight = on()
    kind, own = _kinds(placement, calibration, straight, cuda, manner)
    remote = straight.path_class == PATH_CLASSES.index(NETWORK)
    between = np.zeros(len(own), bool)
    between[kind[remote]] = True
    tariff = tariff_of(calibration, own, between)
    ways = {STRAIGHT: straight}
    if (tariff.way == STAGED).any():
        ways[STAGED] = on(staged=True)
    if np.isfinite(tariff.stripe_from).any():
        ways[STRIPED] = on(striped=True)
    second = np.where(remote & calibration.network_port, placement.p, 0)
    return Lanes(
        source,
        target,
        source + second,
        target + second,
        kind,
        tariff,
        ways,
        _capacity(placement, calibration),
    )


def charged(schedule: Schedule, calibration: Calibration) -> Calibration:
    """What a schedule pays: where nobody waits for arrivals, all messages are eager."""
    if not schedule.unawaited:
        return calibration
    paths = {
        name: replace(cost, eager_limit=math.inf, acknowledged_from=math.inf)
        for name, cost in calibration.paths.items()
    }
    return replace(calibration, paths=paths)


def _pieces(lanes: IntArray) -> list[IntArray]:
    """A few lanes at a time."""
    return [lanes[at : at + PATHS_AT_ONCE] for at in range(0, len(lanes), PATHS_AT_ONCE)]


def _joined(parts: list[tuple[IntArray, Paths]], n: int) -> Paths:
    """The pieces, and paths in host and device memory, back in the order of the lanes."""
    if len(parts) == 1:
        return parts[0][1]
    none = (np.zeros((0, 1), np.int64), np.zeros((0, 1)), np.zeros(0), np.zeros(0))
    if not parts:
        return Paths(*none, np.zeros(0, np.int64), np.zeros(0, np.int64))
    order, found = [mine for mine, _ in parts], [part for _, part in parts]
    return Paths(
        _woven(n, order, [part.links for part in found], -1),
        _woven(n, order, [part.use for part in found]),
        _woven(n, order, [part.latency for part in found]),
        _woven(n, order, [part.bandwidth for part in found]),
        _woven(n, order, [part.hops for part in found]),
        _woven(n, order, [part.path_class for part in found]),
    )


def _woven(n: int, order: list[IntArray], values: list[NDArray[T]], fill: int = 0) -> NDArray[T]:
    """The values of each part at its places; rows that are too short end in `fill`."""
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


def _kinds(
    placement: Placement,
    calibration: Calibration,
    straight: Paths,
    cuda: BoolArray,
    manner: IntArray,
) -> tuple[IntArray, list[Price]]:
    """The kind of each lane, and the price of each kind."""
    figures = (
        straight.path_class,
        straight.hops,
        straight.latency,
        straight.bandwidth,
        cuda,
        manner,
    )
    code = np.zeros(len(cuda), np.int64)
    for figure in figures:  # every kind gets a number, figure by figure
        values, own = distinct(np.ascontiguousarray(figure, dtype=np.float64).view(np.int64))
        code = distinct(code * max(1, len(values)) + own)[1]
    one = np.empty(int(code.max(initial=-1)) + 1, np.int64)
    one[code[::-1]] = np.arange(len(code))[::-1]  # the first lane of each kind
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
    manner: float,
) -> Price:
    """A measured path class if the calibration has it, else what the topology itself says.

    A class of paths says what ends and software cost: the latency of the links comes on top.
    """
    name, memory = PATH_CLASSES[int(number)], CUDA if cuda else HOST
    exact = f"{int(hops)} links, {format_time(latency)}, {width:.4g}B/s"
    meeting = CLASSES.get(int(manner), "") if name == NETWORK else ""
    if (meeting, memory) in calibration.paths:
        return Price(calibration.path(meeting, memory), latency, latency)
    if name == NETWORK and (exact, memory) in calibration.paths:
        return Price(calibration.path(exact, memory), 0.0, latency)
    if (name, memory) not in calibration.paths and name == NODE_OVERSUBSCRIBED:
        name = NODE  # hosts were probed with as many ranks as they are used with
    if (name, memory) in calibration.paths:
        return Price(calibration.path(name, memory), latency, latency)
    if not calibration.given:
        return Price(calibration.path(exact if name == NETWORK else name, memory))
    topology = placement.topology
    if name not in (NODE, NODE_OVERSUBSCRIBED):
        return Price(PathCost.line(latency, 1.0 / width))
    if topology.local_latency is None or topology.local_bandwidth is None:
        raise UnpricedError(
            f"topology {topology.name} does not say what a message inside a node costs; use"
            " --ppn 1 or add `local: {latency: ..., bandwidth: ...}`"
        )
    return Price(PathCost.line(topology.local_latency, 1.0 / topology.local_bandwidth))


def table(priced: Lanes) -> tuple[IntArray, FloatArray, IntArray]:
    """Links and uses of all ways below one another, and the row at which each way begins."""
    there: list[Paths] = list(priced.ways.values())
    width = max(part.links.shape[1] for part in there)
    pad = [((0, 0), (0, width - part.links.shape[1])) for part in there]
    links = [np.pad(part.links, p, constant_values=-1) for part, p in zip(there, pad, strict=True)]
    use = [np.pad(part.use, p) for part, p in zip(there, pad, strict=True)]
    start = np.zeros(3, np.int64)
    start[list(priced.ways)] = np.arange(len(there)) * len(priced.source)
    return np.concatenate(links), np.concatenate(use), start
