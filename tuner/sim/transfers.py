"""The transfers of a call on a machine, with their bytes, costs and routes.

The event-driven engines simulate the same `TransferTable`; they differ in how, not in costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np

from tuner.base.arrays import BoolArray, FloatArray, Int32Array, IntArray
from tuner.base.compiled import compiled
from tuner.base.errors import InputError
from tuner.core.calibration import ZERO_REDUCTION_COST, Calibration, PathCost, ReductionCost
from tuner.core.schedule import NO_REDUCTION, Schedule
from tuner.sim.connections import ConnectionFinder, flatten_routes, with_eager_sends
from tuner.sim.cost_arrays import ConnectionCost, CostArrays, lookup_costs, pack_costs
from tuner.sim.flat_schedule import FlatSchedule, flatten_schedule
from tuner.sim.in_network import (
    in_network_groups,
    port_share,
    reduced_in_network,
    shared_load_factor,
)
from tuner.sim.traffic_pattern import has_pattern_costs
from tuner.sim.unique import unique_inverse
from tuner.topology import CUDA, HOST, Placement

MAX_MESSAGE_BYTES = 1 << 60  # sums of several message sizes must fit in 63 bits


@dataclass(frozen=True)
class TransferTable:
    """k transfers in (round, row) order, and each rank's visits to rounds.

    src, dst, round             ranks and round number, shape (k,)
    send_port, recv_port        ports of sender and receiver, of 2 p, shape (k,)
    nbytes, alpha, beta,
    overhead, eager, shared     cost of each transfer, shape (k,); nbytes with envelope
    waits_for_recv              whether its sender waits until the receiver has posted, shape (k,)
    completion_delay            seconds from then, or from its arrival, until its sender goes on,
                                shape (k,); -inf if the sender does not wait for the arrival
    port_share                  part of its beta for which it keeps the port of sender and receiver
                                busy, shape (k, 2): 1, or less where another link is narrower or
                                the network replicates or combines
    path                        row of `links` and `load_factor` of each transfer, shape (k,)
    links, load_factor          shape (paths, most links): resource numbers, -1 for none, and the
                                bytes that cross them per byte of the transfer
    path_send_port,             ports at the ends of the paths, shape (paths,)
    path_recv_port
    capacity                    bytes per second of each resource
    visit_start                 shape (p + 1,): rank r makes visits visit_start[r]..[r+1]-1
    post_start                  shape (visits + 1,): a visit posts posts[post_start[v]..[v+1]-1]
    posts                       transfer numbers, in row order
    copy_seconds                seconds of local copies, beside the transfers, per visit
    reduction_seconds           seconds of reductions, after all of these, per visit
    """

    p: int
    src: IntArray
    dst: IntArray
    round: IntArray
    send_port: Int32Array
    recv_port: Int32Array
    nbytes: FloatArray
    alpha: FloatArray
    beta: FloatArray
    overhead: FloatArray
    eager: BoolArray
    shared: BoolArray
    waits_for_recv: BoolArray
    completion_delay: FloatArray
    port_share: FloatArray
    path: IntArray
    links: Int32Array
    load_factor: FloatArray
    path_send_port: Int32Array
    path_recv_port: Int32Array
    capacity: FloatArray
    visit_start: IntArray
    post_start: IntArray
    posts: IntArray
    copy_seconds: FloatArray
    reduction_seconds: FloatArray


def build_transfers(
    schedule: Schedule,
    placement: Placement,
    calibration: Calibration,
    nbytes: int,
    itemsize: int = 1,
    memory: str = HOST,
) -> TransferTable:
    """Return the transfers of a call on `nbytes` bytes in elements of `itemsize` bytes.

    Transfers without bytes are left out. Raises InputError when nbytes is not a multiple of
    itemsize, the placement has another p than the schedule, or a path has no cost.
    """
    return TransferTableBuilder(schedule, placement, calibration, itemsize, memory).build(nbytes)


class TransferTableBuilder:
    """A builder of the transfers of one schedule on one machine, for any message size.

    What does not depend on the size is computed once.
    """

    def __init__(
        self,
        schedule: Schedule,
        placement: Placement,
        calibration: Calibration,
        itemsize: int = 1,
        memory: str = HOST,
        connection_finder: ConnectionFinder | None = None,
    ) -> None:
        self._schedule, self._placement, self._itemsize = schedule, placement, itemsize
        self._memory = memory
        paid = with_eager_sends(schedule, calibration)
        finder = connection_finder or ConnectionFinder(placement, paid)
        self._route = partial(_RoutedRows, placement.p, paid, finder, schedule.in_network)

    def build(self, nbytes: int) -> TransferTable:
        """Return the transfers of one call; raises InputError as `build_transfers` does."""
        check_call_arguments(self._schedule, self._placement, nbytes, self._itemsize)
        size = row_bytes(self._schedule, self._rows, nbytes, self._itemsize)
        there = size > 0.0
        moves = self._routed if there.all() else self._route(self._rows.select(there))
        return moves.build_table(size[there])

    @cached_property
    def _rows(self) -> FlatSchedule:
        return flatten_schedule(self._schedule, self._placement.node_of, self._memory)

    @cached_property
    def _routed(self) -> _RoutedRows:
        """All rows routed; nearly every call has bytes in all of them."""
        return self._route(self._rows)


class _RoutedRows:
    """Rows of a schedule that all have bytes, with their connections on a machine."""

    def __init__(
        self,
        p: int,
        calibration: Calibration,
        connection_finder: ConnectionFinder,
        in_network: bool,
        rows: FlatSchedule,
    ) -> None:
        self.p, self.calibration, self.rows = p, calibration, rows
        self.in_network, self.is_remote = in_network, rows.src != rows.dst
        self.remote_rows = moving = rows.select(self.is_remote)
        own = moving.cuda + 2 * moving.pattern * has_pattern_costs(calibration)
        keys, self.connection = unique_inverse((own * self.p + moving.src) * self.p + moving.dst)
        self.connections = connection_finder.find(keys)
        self.routes = lru_cache(1)(self._routes)

    def build_table(self, size: FloatArray) -> TransferTable:
        """Return the transfers of rows of these sizes in bytes, shape (rows,)."""
        rows, calibration = self.rows, self.calibration
        copying = _copy_seconds(calibration, rows, size)
        folding = _reduction_seconds(calibration, rows, size)
        folding[self._reduced_by_switch] = 0.0
        visits = _build_visits(
            self.p, rows.src, rows.dst, rows.round, self.is_remote, copying, folding
        )
        moving, there, size = self.remote_rows, self.connections, size[self.is_remote]
        kind = there.kind[self.connection].astype(np.int64)
        eager = size < there.costs.eager_limit[kind]
        awaited = size >= there.costs.recv_wait_from[kind]
        alpha, beta, acknowledgement, way = lookup_costs(there.costs, kind, size)
        return TransferTable(
            self.p,
            moving.src,
            moving.dst,
            moving.round,
            there.send_port[self.connection],
            there.recv_port[self.connection],
            size + calibration.header_bytes,
            alpha,
            beta,
            there.costs.overhead[kind],
            eager,
            self._shares_ports | (size >= calibration.port_sharing_threshold) | (eager & awaited),
            awaited,
            acknowledgement,
            *self.routes(way.tobytes()),
            there.capacity,
            *visits,
        )

    @cached_property
    def _shares_ports(self) -> BoolArray:
        """Transfers of any size that leave their ports time for others, shape (transfers,)."""
        shares: BoolArray = np.any(self.connections.port_share < 1.0, axis=1)
        return shares[self.connection] | self.in_network

    @cached_property
    def _reduced_by_switch(self) -> BoolArray | slice:
        """Rows that cost no reduction because a switch did it."""
        return reduced_in_network(self.rows) if self.in_network else slice(0)

    def _routes(
        self, mode: bytes
    ) -> tuple[FloatArray, IntArray, Int32Array, FloatArray, Int32Array, Int32Array]:
        """Return the fields of `TransferTable` from `port_share` to `path_recv_port`.

        mode    transfer mode of each transfer, as the bytes of an int64 array
        """
        there = self.connections
        links, use, start = flatten_routes(there)
        path = start[np.frombuffer(mode, np.int64)] + self.connection
        if not self.in_network:
            out, back = (
                np.tile(port, len(there.routes_by_mode))
                for port in (there.send_port, there.recv_port)
            )
            return there.port_share[self.connection], path, links, use, out, back
        groups = in_network_groups(self.remote_rows)
        share = shared_load_factor(groups, links[path], use[path], len(there.capacity))
        return (
            port_share(groups) * there.port_share[self.connection],
            np.arange(len(path)),
            links[path],
            share,
            there.send_port[self.connection],
            there.recv_port[self.connection],
        )


def row_bytes(schedule: Schedule, rows: FlatSchedule, nbytes: int, itemsize: int = 1) -> FloatArray:
    """Return the bytes of each row in a call on `nbytes` bytes."""
    count = nbytes // itemsize
    elements = schedule.elements(rows.src_chunk, rows.count, count, itemsize)
    return elements.astype(np.float64) * itemsize


def check_call_arguments(
    schedule: Schedule, placement: Placement, nbytes: int, itemsize: int
) -> None:
    """Raise InputError for an impossible call."""
    if placement.p != schedule.p:
        raise InputError(f"{schedule}: placement holds {placement.p} ranks")
    if itemsize < 1 or nbytes % itemsize:
        raise InputError(f"{nbytes} bytes are not a whole number of {itemsize}-byte elements")
    if not 0 <= nbytes <= MAX_MESSAGE_BYTES:
        raise InputError(f"a message has 0 to {MAX_MESSAGE_BYTES} bytes, not {nbytes}")


def reduction_costs(calibration: Calibration, memory: str) -> list[ReductionCost]:
    """Return the costs of the ways to reduce in one kind of memory; the cheapest one is used."""
    names = (CUDA, "cuda_by_cpu") if memory == CUDA else (HOST,)
    there = [calibration.reduction[name] for name in names if name in calibration.reduction]
    return there or [ZERO_REDUCTION_COST]


def copy_cost(calibration: Calibration, memory: str, staging: bool) -> PathCost:
    """Return the cost of a local copy in `memory`, or between host and device if `staging`.

    A copy costs nothing where the calibration has no cost for it.
    """
    name = ("staging", CUDA) if staging else ("self", memory)
    return calibration.paths.get(name, PathCost.from_alpha_beta(0.0, 0.0))


def pack_copy_costs(calibration: Calibration) -> CostArrays:
    """Return copy costs within host memory, within device memory and between them: three kinds."""
    kinds = ((HOST, False), (CUDA, False), (CUDA, True))
    own = [ConnectionCost(copy_cost(calibration, memory, staging)) for memory, staging in kinds]
    return pack_costs(calibration, own, np.zeros(len(own), bool))


def _reduction_seconds(
    calibration: Calibration, rows: FlatSchedule, size: FloatArray
) -> FloatArray:
    """Return the seconds of reduction that each row costs its destination."""
    seconds = np.zeros(len(rows.src))
    for memory, mine in ((HOST, ~rows.cuda), (CUDA, rows.cuda)):
        folds = mine & (rows.reduce != NO_REDUCTION)
        each = [
            line.launch.value + line.gamma.value * size[folds]
            for line in reduction_costs(calibration, memory)
        ]
        seconds[folds] = np.min(each, axis=0)
    return seconds


def _copy_seconds(calibration: Calibration, rows: FlatSchedule, size: FloatArray) -> FloatArray:
    """Return the seconds of copying that each local row costs."""
    costs = pack_copy_costs(calibration)
    copies = np.flatnonzero((rows.src == rows.dst) & (rows.reduce == NO_REDUCTION))
    kind = np.where(rows.staging, 2, rows.cuda)[copies].astype(np.int64)
    alpha, beta, _, _ = lookup_costs(costs, kind, size[copies])
    seconds = np.zeros(len(rows.src))
    seconds[copies] = (costs.overhead[kind] + alpha) + beta * size[copies]
    return seconds


@compiled()
def _build_visits(
    p: int,
    src: IntArray,
    dst: IntArray,
    number: IntArray,
    moves: BoolArray,
    copying: FloatArray,
    folding: FloatArray,
) -> tuple[IntArray, IntArray, IntArray, FloatArray, FloatArray]:
    """Return the fields of `TransferTable` from `visit_start` to `reduction_seconds`."""
    visits, posted = np.zeros(p + 1, np.int64), np.zeros(p + 1, np.int64)
    latest = np.full(p, -1)
    for i in range(len(src)):
        for side in range(2 if moves[i] else 1):
            rank = src[i] if side else dst[i]
            if latest[rank] != number[i]:
                latest[rank] = number[i]
                visits[rank + 1] += 1
            posted[rank + 1] += moves[i]
    visits, next_post = np.cumsum(visits), np.cumsum(posted)[:-1].copy()
    post_start = np.zeros(visits[-1] + 1, np.int64)
    post_start[-1] = posted.sum()
    posts, seconds = np.empty(post_start[-1], np.int64), np.zeros((2, visits[-1]))
    at = visits[:-1] - 1
    latest[:] = -1
    transfer = 0
    for i in range(len(src)):
        for side in range(2 if moves[i] else 1):
            rank = src[i] if side else dst[i]
            if latest[rank] != number[i]:
                latest[rank] = number[i]
                at[rank] += 1
                post_start[at[rank]] = next_post[rank]
            if moves[i]:
                posts[next_post[rank]] = transfer
                next_post[rank] += 1
        seconds[0, at[dst[i]]] += copying[i]
        seconds[1, at[dst[i]]] += folding[i]
        transfer += moves[i]
    return visits, post_start, posts, seconds[0], seconds[1]
