"""What a schedule puts on a machine: every transfer with its bytes, its price and its route.

The engines that move time forward event by event play the same `Traffic`; they differ in how, not
in prices.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tuner.cost import FREE_REDUCTION, Calibration, PathCost, ReductionCost
from tuner.errors import InputError
from tuner.schedule import NO_REDUCTION, Schedule
from tuner.sim.distinct import distinct
from tuner.sim.lanes import Tariff, lanes, segment_of, table, tariff_of, way_of
from tuner.topology import CUDA, HOST, Placement

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

LARGEST = 1 << 60  # bytes of a message; sums of several must fit in 63 bits


@dataclass(frozen=True)
class Traffic:
    """k transfers in (round, row) order, and each rank's visits to rounds.

    src, dst, round             ranks and round number, shape (k,)
    out, back                   ports of sender and receiver, of 2 p, shape (k,)
    nbytes, alpha, beta,
    overhead, eager, shared     price of each transfer, shape (k,); nbytes with envelope
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
    src: Ints
    dst: Ints
    round: Ints
    out: Ints
    back: Ints
    nbytes: Floats
    alpha: Floats
    beta: Floats
    overhead: Floats
    eager: Flags
    shared: Flags
    port_share: Floats
    path: Ints
    links: Ints
    use: Floats
    path_out: Ints
    path_back: Ints
    capacity: Floats
    visit_start: Ints
    post_start: Ints
    posts: Ints
    copying: Floats
    folding: Floats


@dataclass(frozen=True)
class Rows:
    """Rows of a schedule that have bytes, in (round, row) order.

    cuda        the buffers are in device memory
    staging     a local row that moves between host and device
    """

    src: Ints
    dst: Ints
    round: Ints
    first: Ints
    into: Ints
    count: Ints
    reduce: Ints
    size: Floats
    cuda: Flags
    staging: Flags

    def take(self, rows: Ints | Flags) -> Rows:
        """The given rows, by index or mask."""
        return Rows(*(getattr(self, column.name)[rows] for column in fields(self)))


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
    require_call(schedule, placement, nbytes, itemsize)
    rows = _rows(schedule, nbytes // itemsize, itemsize, memory)
    copying, folding = _copying(calibration, rows), _folding(calibration, rows)
    moves = rows.src != rows.dst
    if schedule.in_network:
        folding[_folded_on_the_way(rows)] = 0.0
    visits = _visits(schedule.p, rows.src, rows.dst, rows.round, moves, copying, folding)
    moving = rows.take(moves)
    priced = _priced(placement, calibration, schedule.p, moving, visits)
    return _replicated(priced, moving) if schedule.in_network else priced


def require_call(schedule: Schedule, placement: Placement, nbytes: int, itemsize: int) -> None:
    """InputError for a call that cannot be."""
    if placement.p != schedule.p:
        raise InputError(f"{schedule}: placement holds {placement.p} ranks")
    if itemsize < 1 or nbytes % itemsize:
        raise InputError(f"{nbytes} bytes are no whole number of {itemsize}-byte elements")
    if not 0 <= nbytes <= LARGEST:
        raise InputError(f"a message has 0 to {LARGEST} bytes, not {nbytes}")


def _rows(schedule: Schedule, count: int, itemsize: int, memory: str) -> Rows:
    rounds = list(schedule.rounds())
    columns = [np.concatenate([c, *(r.columns[i] for r in rounds)]) for i, c in
               enumerate(np.empty((6, 0), dtype=np.int32))]  # fmt: skip
    src, dst, first, into, chunks, reduce = (column.astype(np.int64) for column in columns)
    number = np.repeat(np.arange(len(rounds)), [len(r) for r in rounds])
    offsets, n = schedule.offsets(count) * itemsize, schedule.n_chunks
    size = offsets[first % n + chunks] - offsets[first % n]
    cuda = np.full(len(src), memory == CUDA)
    staging = np.zeros(len(src), dtype=bool)
    if schedule.staged:  # scratch is in host memory
        cuda &= (first < n) | (into < n)
        staging = cuda & (src == dst) & ((first < n) != (into < n))
    whole = Rows(src, dst, number, first, into, chunks, reduce, size.astype(float), cuda, staging)
    return whole.take(size > 0)


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
    costs = [(copy_cost(calibration, memory, staging), 0.0) for memory, staging in kinds]
    return tariff_of(calibration, costs, np.zeros(len(costs), bool))


def _folding(calibration: Calibration, rows: Rows) -> Floats:
    """Seconds of reduction that each row costs its destination."""
    seconds = np.zeros(len(rows.src))
    for memory, mine in ((HOST, ~rows.cuda), (CUDA, rows.cuda)):
        folds = mine & (rows.reduce != NO_REDUCTION)
        each = [line.launch.value + line.gamma.value * rows.size[folds]
                for line in reduction_lines(calibration, memory)]  # fmt: skip
        seconds[folds] = np.min(each, axis=0)
    return seconds


def _copying(calibration: Calibration, rows: Rows) -> Floats:
    """Seconds of copying that each local row costs."""
    tariff = copy_tariff(calibration)
    copies = np.flatnonzero((rows.src == rows.dst) & (rows.reduce == NO_REDUCTION))
    kind = np.where(rows.staging, 2, rows.cuda)[copies].astype(np.int64)
    alpha, beta, _ = prices(tariff, kind, rows.size[copies])
    seconds = np.zeros(len(rows.src))
    seconds[copies] = (tariff.overhead[kind] + alpha) + beta * rows.size[copies]
    return seconds


@njit(cache=True)
def _visits(
    p: int, src: Ints, dst: Ints, number: Ints, moves: Flags, copying: Floats, folding: Floats
) -> tuple[Ints, Ints, Ints, Floats, Floats]:
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


def _priced(
    placement: Placement, calibration: Calibration, p: int, rows: Rows,
    visits: tuple[Ints, Ints, Ints, Floats, Floats],
) -> Traffic:  # fmt: skip
    key = (rows.cuda * p + rows.src) * p + rows.dst
    pairs, lane = distinct(key)
    cuda, pair = np.divmod(pairs, p * p)
    priced = lanes(placement, calibration, *np.divmod(pair, p), cuda.astype(bool))
    kind = priced.kind[lane]
    alpha, beta, way = prices(priced.tariff, kind, rows.size)
    links, use, start = table(priced)
    return Traffic(
        p, rows.src, rows.dst, rows.round, priced.out[lane], priced.back[lane],
        rows.size + calibration.envelope, alpha, beta,
        priced.tariff.overhead[kind], rows.size < priced.tariff.eager_limit[kind],
        rows.size >= calibration.shared_from, np.ones((len(lane), 2)), start[way] + lane, links,
        use, np.tile(priced.out, len(priced.ways)), np.tile(priced.back, len(priced.ways)),
        priced.capacity, *visits,
    )  # fmt: skip


@njit(cache=True)
def prices(tariff: Tariff, kind: Ints, size: Floats) -> tuple[Floats, Floats, Ints]:
    """alpha, beta and way of messages of these sizes on lanes of these kinds."""
    alpha, beta = np.empty(len(kind)), np.empty(len(kind))
    way = np.empty(len(kind), np.int64)
    for i in range(len(kind)):
        at = segment_of(tariff.lo, kind[i], size[i])
        alpha[i], beta[i] = tariff.alpha[kind[i], at], tariff.beta[kind[i], at]
        way[i] = way_of(tariff.way, tariff.stripe_from, kind[i], at, size[i])
    return alpha, beta, way


def _groups(rows: Rows) -> tuple[Ints, Ints]:
    """Of each row the number of the message it is a copy of (multicast), or is combined into."""
    row = 1 + np.arange(len(rows.src))
    reduces = rows.reduce != NO_REDUCTION
    copies = (rows.round, rows.src, rows.first, rows.count, np.where(reduces, row, 0))
    parts = (rows.round, rows.dst, rows.into, rows.count, np.where(reduces, 0, row))
    return _together(copies), _together(parts)


def _together(columns: Iterable[Ints]) -> Ints:
    """Equal rows get equal numbers."""
    code: Ints = np.zeros(1, np.int64)
    for column in columns:
        code = distinct(code * (1 + int(column.max(initial=0))) + column)[1]
    return code


def _folded_on_the_way(rows: Rows) -> Flags:
    """All but one of the rows that arrive as one message: a receiver folds once."""
    folded: Flags = rows.reduce != NO_REDUCTION
    folded[np.unique(_groups(rows)[1], return_index=True)[1]] = False
    return folded


def _replicated(whole: Traffic, rows: Rows) -> Traffic:
    """Copies of one message, and parts combined into one, share what they cross together.

    Each of n rows over one link loads it with 1/n of its bytes; they flow side by side, so the link
    carries the message once. The port of the many ends is each one's own.
    """
    multicast, reduction = _groups(rows)
    links, use = whole.links[whole.path], whole.use[whole.path]
    share = whole.port_share.copy()
    for group, side in ((multicast, 0), (reduction, 1)):
        share[:, side] /= np.bincount(group)[group]
        crossing = group[:, None] * (len(whole.capacity) + 1) + links + 1
        _, where = distinct(crossing.reshape(-1))
        use = use / np.bincount(where, minlength=1)[where].reshape(links.shape)
    one = np.arange(len(links))
    shared = np.full(len(links), True)
    return replace(
        whole, path=one, links=links, use=use, path_out=whole.out, path_back=whole.back,
        port_share=share, shared=shared,
    )  # fmt: skip
