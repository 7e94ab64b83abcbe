"""What a schedule puts on a machine: every transfer with its bytes, its price and its route.

Both engines play the same `Traffic`; they differ in how they move time forward, not in prices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.cost import FREE_REDUCTION, Calibration, PathCost
from tuner.errors import InputError
from tuner.schedule import NO_REDUCTION, Schedule
from tuner.topology import MEMORY_BUS, NODE, NODE_OVERSUBSCRIBED, Placement, Topology
from tuner.units import format_time

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

LARGEST = 1 << 60  # bytes of a message; sums of several must fit in 63 bits
LOCAL, LOCAL_CROWDED = 0, -1  # what stands for hops between ranks of one node


@dataclass(frozen=True)
class Traffic:
    """k transfers in (round, row) order, and each rank's visits to rounds.

    src, dst, round             ranks and round number, shape (k,)
    nbytes, alpha, beta,
    overhead, eager, shared     price of each transfer, shape (k,); nbytes with envelope
    links                       shape (k, hops): resource numbers, -1 where there is none
    capacity                    bytes per second of each resource
    visit_start                 shape (p + 1,): rank r makes visits visit_start[r]..[r+1]-1
    post_start                  shape (visits + 1,): a visit posts posts[post_start[v]..[v+1]-1]
    posts                       transfer numbers, in row order
    work                        seconds of reductions and copies after the wait, per visit
    """

    p: int
    src: Ints
    dst: Ints
    round: Ints
    nbytes: Floats
    alpha: Floats
    beta: Floats
    overhead: Floats
    eager: Flags
    shared: Flags
    links: Ints
    capacity: Floats
    visit_start: Ints
    post_start: Ints
    posts: Ints
    work: Floats


def traffic(
    schedule: Schedule,
    placement: Placement,
    calibration: Calibration,
    nbytes: int,
    itemsize: int = 1,
) -> Traffic:
    """Price one call on `nbytes` bytes of elements of `itemsize` bytes.

    Transfers without bytes do not happen. Raises InputError when nbytes is not a whole number of
    elements, the placement has another p than the schedule, or a path has no price.
    """
    if placement.p != schedule.p:
        raise InputError(f"{schedule}: placement holds {placement.p} ranks")
    if itemsize < 1 or nbytes % itemsize:
        raise InputError(f"{nbytes} bytes are no whole number of {itemsize}-byte elements")
    if not 0 <= nbytes <= LARGEST:
        raise InputError(f"a message has 0 to {LARGEST} bytes, not {nbytes}")
    src, dst, number, size, reduce = _rows(schedule, nbytes // itemsize, itemsize)
    work = _work(calibration, src == dst, size, reduce)
    moves = src != dst
    visits = _visits(schedule.p, src, dst, number, moves, work)
    src, dst, number, size = src[moves], dst[moves], number[moves], size[moves]
    links, capacity, kind, costs = _paths(placement, calibration, src, dst)
    alpha, beta, overhead, eager = _prices(costs, kind, size)
    return Traffic(
        schedule.p, src, dst, number, size + calibration.envelope, alpha, beta, overhead, eager,
        size >= calibration.shared_from, links, capacity, *visits,
    )  # fmt: skip


def _rows(schedule: Schedule, count: int, itemsize: int) -> tuple[Ints, Ints, Ints, Floats, Ints]:
    """src, dst, round, bytes and reduction of every row that has bytes."""
    offsets = schedule.offsets(count) * itemsize
    n = schedule.n_chunks
    columns = []
    for number, r in enumerate(schedule.rounds()):
        first = r.first % n
        columns.append([r.src, r.dst, np.full(len(r), number), first, first + r.count, r.reduce])
    table = np.hstack([np.empty((6, 0), dtype=np.int64), *columns])
    size = offsets[table[4]] - offsets[table[3]]
    table, size = table[:, size > 0], size[size > 0]
    return table[0], table[1], table[2], size.astype(np.float64), table[5]


def _work(calibration: Calibration, local: Flags, size: Floats, reduce: Ints) -> Floats:
    """Seconds after the wait that each row costs its destination."""
    reduction = calibration.reduction.get("host", FREE_REDUCTION)
    folding = reduction.launch.value + reduction.gamma.value * size
    own = calibration.paths.get(("self", "host"))
    copying = np.zeros(len(size))
    if own is not None:
        copying[local] = [own.seconds(s) for s in size[local]]
    return np.where(reduce != NO_REDUCTION, folding, copying)


def _visits(
    p: int, src: Ints, dst: Ints, number: Ints, moves: Flags, work: Floats
) -> tuple[Ints, Ints, Ints, Floats]:
    """visit_start, post_start, posts and work of `Traffic`."""
    transfer = np.cumsum(moves) - 1
    row = np.arange(len(src))
    rank, at = np.concatenate([src[moves], dst]), np.concatenate([row[moves], row])
    order = np.lexsort((at, number[at], rank))
    rank, at = rank[order], at[order]
    new = np.ones(len(at), dtype=bool)
    new[1:] = (rank[1:] != rank[:-1]) | (number[at][1:] != number[at][:-1])
    visit = np.cumsum(new) - 1
    received = dst[at] == rank
    seconds = np.bincount(visit[received], work[at[received]], minlength=int(new.sum()))
    posted = moves[at]
    per_visit = np.bincount(visit[posted], minlength=int(new.sum()))
    return (
        np.searchsorted(rank[new], np.arange(p + 1)),
        np.concatenate([[0], np.cumsum(per_visit)]),
        transfer[at[posted]],
        seconds.astype(np.float64),
    )


def _paths(
    placement: Placement, calibration: Calibration, src: Ints, dst: Ints
) -> tuple[Ints, Floats, Ints, list[PathCost]]:
    """Links and capacities, the path kind of every transfer and the cost of every kind."""
    topology, node = placement.topology, placement.node_of
    pairs, which = np.unique(node[src] * len(topology.nodes) + node[dst], return_inverse=True)
    a, b = np.divmod(pairs, len(topology.nodes))
    routes = topology.routes(a, b)
    own = a == b
    links = np.full((len(pairs), max(1, routes.links.shape[1])), -1)
    links[:, : routes.links.shape[1]] = routes.links
    links[own, 0] = len(topology.links) + a[own]  # the node's memory bus
    crowded = np.bincount(placement.node_of, minlength=len(topology.nodes)) > topology.cores
    hops = np.where(own, np.where(crowded[a], LOCAL_CROWDED, LOCAL), routes.hops)
    figures = np.stack([hops, routes.latency, routes.bandwidth])
    distinct, kind = np.unique(figures, axis=1, return_inverse=True)
    costs = [_cost(calibration, topology, *column) for column in distinct.T.tolist()]
    memory = calibration.capacities.get(MEMORY_BUS)
    capacity = [link.capacity for link in topology.links]
    capacity += [memory.value if memory else topology.memory_bandwidth] * len(topology.nodes)
    return links[which], np.array(capacity), kind.reshape(-1)[which], costs


def _cost(
    calibration: Calibration, topology: Topology, hops: float, latency: float, width: float
) -> PathCost:
    """A measured path class if the calibration has it, else what the topology itself says."""
    local = {LOCAL: NODE, LOCAL_CROWDED: NODE_OVERSUBSCRIBED}.get(int(hops))
    name = local or f"{int(hops)} links, {format_time(latency)}, {width:.4g}B/s"
    if (name, "host") in calibration.paths or not calibration.given:
        return calibration.path(name)
    if local is None:
        return PathCost.line(latency, 1.0 / width)
    if topology.local_latency is None or topology.local_bandwidth is None:
        raise InputError(
            f"topology {topology.name} does not say what a message inside a node costs; use"
            " --ppn 1 or add `local: {latency: ..., bandwidth: ...}`"
        )
    return PathCost.line(topology.local_latency, 1.0 / topology.local_bandwidth)


def _prices(
    costs: list[PathCost], kind: Ints, size: Floats
) -> tuple[Floats, Floats, Floats, Flags]:
    """alpha, beta, overhead and eagerness of each transfer."""
    alpha, beta, overhead = (np.empty(len(size)) for _ in range(3))
    eager = np.empty(len(size), dtype=bool)
    for number, cost in enumerate(costs):
        mine = np.flatnonzero(kind == number)
        at = np.searchsorted([s.lo for s in cost.segments], size[mine], side="right") - 1
        alpha[mine] = np.array([s.alpha.value for s in cost.segments])[at]
        beta[mine] = np.array([s.beta.value for s in cost.segments])[at]
        overhead[mine] = cost.overhead.value
        eager[mine] = size[mine] < cost.eager_limit
    return alpha, beta, overhead, eager
