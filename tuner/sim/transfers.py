"""What a schedule puts on a machine: every transfer with its bytes, its price and its route.

The engines that move time forward event by event play the same `Traffic`; they differ in how, not
in prices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np
from numba import njit

from tuner.base.arrays import BoolArray, FloatArray, IntArray
from tuner.base.errors import InputError
from tuner.core.calibration import FREE_REDUCTION, Calibration, PathCost, ReductionCost
from tuner.core.schedule import NO_REDUCTION, Schedule
from tuner.sim.connections import charged, lanes, table
from tuner.sim.cost_arrays import Price, Tariff, prices, tariff_of
from tuner.sim.flat_schedule import Rows, rows_of
from tuner.sim.in_network import folded_on_the_way, port_share, shared_use, together
from tuner.sim.traffic_pattern import told_apart
from tuner.sim.unique import distinct
from tuner.topology import CUDA, HOST, Placement

LARGEST = 1 << 60  # bytes of a message; sums of several must fit in 63 bits


@dataclass(frozen=True)
class Traffic:
    """k transfers in (round, row) order, and each rank's visits to rounds.

    src, dst, round             ranks and round number, shape (k,)
    out, back                   ports of sender and receiver, of 2 p, shape (k,)
    nbytes, alpha, beta,
    overhead, eager, shared     price of each transfer, shape (k,); nbytes with envelope
    awaited                     whether its sender waits until it is asked for, shape (k,)
    acknowledgement             seconds from then, or from its arrival, until its sender goes on,
                                shape (k,); -inf if that does not wait for it
    port_share                  what of its bytes passes the port of sender and receiver, shape
                                (k, 2): 1, or less where the network replicates or combines
    path                        row of `links` and `use` of each transfer, shape (k,)
    links, use                  shape (paths, most links): resource numbers, -1 where there is none,
                                and what of a transfer's bytes crosses them
    path_out, path_back         ports that paths join, shape (paths,)
    capacity                    bytes per second of each resource
    visit_start                 shape (p + 1,): rank r makes visits visit_start[r]..[r+1]-1
    post_start                  shape (visits + 1,): a visit posts posts[post_start[v]..[v+1]-1]
    posts                       transfer numbers, in row order
    copying                     seconds of local copies, beside the transfers, per visit
    folding                     seconds of reductions, after all of these, per visit
    """

    p: int
    src: IntArray
    dst: IntArray
    round: IntArray
    out: IntArray
    back: IntArray
    nbytes: FloatArray
    alpha: FloatArray
    beta: FloatArray
    overhead: FloatArray
    eager: BoolArray
    shared: BoolArray
    awaited: BoolArray
    acknowledgement: FloatArray
    port_share: FloatArray
    path: IntArray
    links: IntArray
    use: FloatArray
    path_out: IntArray
    path_back: IntArray
    capacity: FloatArray
    visit_start: IntArray
    post_start: IntArray
    posts: IntArray
    copying: FloatArray
    folding: FloatArray


def traffic(
    schedule: Schedule,
    placement: Placement,
    calibration: Calibration,
    nbytes: int,
    itemsize: int = 1,
    memory: str = HOST,
) -> Traffic:
    """Price one call on `nbytes` bytes of elements of `itemsize` bytes in one kind of memory.

    Transfers without bytes do not happen. Raises InputError when nbytes is not a whole number of
    elements, the placement has another p than the schedule, or a path has no price.
    """
    return Calls(schedule, placement, calibration, itemsize, memory).of(nbytes)


class Calls:
    """Calls of one schedule on one machine, of any size; what no size changes is found once."""

    def __init__(
        self,
        schedule: Schedule,
        placement: Placement,
        calibration: Calibration,
        itemsize: int = 1,
        memory: str = HOST,
    ) -> None:
        self._schedule, self._placement, self._itemsize = schedule, placement, itemsize
        self._memory = memory
        paid = charged(schedule, calibration)
        self._on = partial(_Moves, placement, paid, schedule.in_network)

    def of(self, nbytes: int) -> Traffic:
        """Price one call; raises InputError as `traffic` does."""
        require_call(self._schedule, self._placement, nbytes, self._itemsize)
        offsets = self._schedule.offsets(nbytes // self._itemsize)
        begin = self._rows.first % self._schedule.n_chunks
        size = (offsets[begin + self._rows.count] - offsets[begin]) * float(self._itemsize)
        there = size > 0.0
        moves = self._whole if there.all() else self._on(self._rows.only(there))
        return moves.priced(size[there])

    @cached_property
    def _rows(self) -> Rows:
        return rows_of(self._schedule, self._placement.node_of, self._memory)

    @cached_property
    def _whole(self) -> _Moves:
        """Nearly every call has bytes in all rows."""
        return self._on(self._rows)


class _Moves:
    """Rows on a machine, all of them with bytes."""

    def __init__(
        self, placement: Placement, calibration: Calibration, in_network: bool, rows: Rows
    ) -> None:
        self.p, self.calibration, self.rows = placement.p, calibration, rows
        self.in_network, self.moves = in_network, rows.src != rows.dst
        self.moving = moving = rows.only(self.moves)
        own = moving.cuda + 2 * moving.manner * told_apart(calibration)
        pairs, self.lane = distinct((own * self.p + moving.src) * self.p + moving.dst)
        own, pair = np.divmod(pairs, self.p * self.p)
        manner, cuda = np.divmod(own, 2)
        self.lanes = lanes(
            placement, calibration, *np.divmod(pair, self.p), cuda.astype(bool), manner
        )
        self.crossed = lru_cache(1)(self._crossed)

    def priced(self, size: FloatArray) -> Traffic:
        """What they are at these sizes, shape (rows,)."""
        rows, calibration = self.rows, self.calibration
        copying, folding = _copying(calibration, rows, size), _folding(calibration, rows, size)
        folding[self._folded] = 0.0
        visits = _visits(self.p, rows.src, rows.dst, rows.round, self.moves, copying, folding)
        moving, there, size = self.moving, self.lanes, size[self.moves]
        kind = there.kind[self.lane]
        eager, awaited = (
            size < there.tariff.eager_limit[kind],
            size >= there.tariff.awaited_from[kind],
        )
        alpha, beta, acknowledgement, way = prices(there.tariff, kind, size)
        return Traffic(
            self.p,
            moving.src,
            moving.dst,
            moving.round,
            there.out[self.lane],
            there.back[self.lane],
            size + calibration.envelope,
            alpha,
            beta,
            there.tariff.overhead[kind],
            eager,
            self.in_network | (size >= calibration.shared_from) | (eager & awaited),
            awaited,
            acknowledgement,
            *self.crossed(way.tobytes()),
            there.capacity,
            *visits,
        )

    @cached_property
    def _folded(self) -> BoolArray | slice:
        """Rows that cost no reduction because a switch did it."""
        return folded_on_the_way(self.rows) if self.in_network else slice(0)

    def _crossed(
        self, way: bytes
    ) -> tuple[FloatArray, IntArray, IntArray, FloatArray, IntArray, IntArray]:
        """port_share, path, links, use, path_out and path_back of `Traffic`."""
        there = self.lanes
        links, use, start = table(there)
        path = start[np.frombuffer(way, np.int64)] + self.lane
        if not self.in_network:
            out, back = (np.tile(port, len(there.ways)) for port in (there.out, there.back))
            return np.ones((len(path), 2)), path, links, use, out, back
        groups = together(self.moving)
        share = shared_use(groups, links[path], use[path], len(there.capacity))
        return (
            port_share(groups),
            np.arange(len(path)),
            links[path],
            share,
            there.out[self.lane],
            there.back[self.lane],
        )


def require_call(schedule: Schedule, placement: Placement, nbytes: int, itemsize: int) -> None:
    """InputError for a call that cannot be."""
    if placement.p != schedule.p:
        raise InputError(f"{schedule}: placement holds {placement.p} ranks")
    if itemsize < 1 or nbytes % itemsize:
        raise InputError(f"{nbytes} bytes are no whole number of {itemsize}-byte elements")
    if not 0 <= nbytes <= LARGEST:
        raise InputError(f"a message has 0 to {LARGEST} bytes, not {nbytes}")


def reduction_lines(calibration: Calibration, memory: str) -> list[ReductionCost]:
    """The ways to reduce in one kind of memory; the cheaper one is taken."""
    names = (CUDA, "cuda_by_cpu") if memory == CUDA else (HOST,)
    there = [calibration.reduction[name] for name in names if name in calibration.reduction]
    return there or [FREE_REDUCTION]


def copy_cost(calibration: Calibration, memory: str, staging: bool) -> PathCost:
    """A local copy, within one kind of memory or between host and device; free if not known."""
    name = ("staging", CUDA) if staging else ("self", memory)
    return calibration.paths.get(name, PathCost.line(0.0, 0.0))


def copy_tariff(calibration: Calibration) -> Tariff:
    """Copies within host memory, within device memory and between them: kinds 0, 1 and 2."""
    kinds = ((HOST, False), (CUDA, False), (CUDA, True))
    own = [Price(copy_cost(calibration, memory, staging)) for memory, staging in kinds]
    return tariff_of(calibration, own, np.zeros(len(own), bool))


def _folding(calibration: Calibration, rows: Rows, size: FloatArray) -> FloatArray:
    """Seconds of reduction that each row costs its destination."""
    seconds = np.zeros(len(rows.src))
    for memory, mine in ((HOST, ~rows.cuda), (CUDA, rows.cuda)):
        folds = mine & (rows.reduce != NO_REDUCTION)
        each = [
            line.launch.value + line.gamma.value * size[folds]
            for line in reduction_lines(calibration, memory)
        ]
        seconds[folds] = np.min(each, axis=0)
    return seconds


def _copying(calibration: Calibration, rows: Rows, size: FloatArray) -> FloatArray:
    """Seconds of copying that each local row costs."""
    tariff = copy_tariff(calibration)
    copies = np.flatnonzero((rows.src == rows.dst) & (rows.reduce == NO_REDUCTION))
    kind = np.where(rows.staging, 2, rows.cuda)[copies].astype(np.int64)
    alpha, beta, _, _ = prices(tariff, kind, size[copies])
    seconds = np.zeros(len(rows.src))
    seconds[copies] = (tariff.overhead[kind] + alpha) + beta * size[copies]
    return seconds


@njit(cache=True)
def _visits(
    p: int,
    src: IntArray,
    dst: IntArray,
    number: IntArray,
    moves: BoolArray,
    copying: FloatArray,
    folding: FloatArray,
) -> tuple[IntArray, IntArray, IntArray, FloatArray, FloatArray]:
    """visit_start, post_start, posts, copying and folding of `Traffic`."""
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
