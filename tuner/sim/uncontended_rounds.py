"""Rounds in which every rank sends and receives at most one message.

Most rounds of most schedules are such. Prices are worked out once for all rounds with the same
pairs, and rounds in which every rank sends to its successor are played without looking up ranks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from tuner.base.arrays import BoolArray, FloatArray, Int32Array, IntArray
from tuner.sim.cost_arrays import acknowledgement_of, segment_of, way_of
from tuner.sim.jit import compiled
from tuner.sim.round_engine import begins, compete, fastest, folding, longer_chunks, passes, size_of
from tuner.sim.round_state import PARTLY


class Lines(NamedTuple):
    """What the messages of a plain pattern cost if none crosses a border of a segment.

    flow, late,     seconds of flowing, of alpha with the lag, of reducing, if none of the message's
    fold            chunks, or if every one, is a longer one; shape (sizes, 2, rows)
    rate            shape (sizes, rows), like
    alpha, lag,
    overhead, eager,
    acknowledgement, way
    back            the receiver's port of each row
    memory          that is reduced in: 0 host, 1 device
    valid           of each size; not if there are empty messages
    """

    flow: FloatArray
    late: FloatArray
    fold: FloatArray
    rate: FloatArray
    alpha: FloatArray
    lag: FloatArray
    overhead: FloatArray
    eager: BoolArray
    acknowledgement: FloatArray
    way: IntArray
    back: IntArray
    memory: int
    valid: BoolArray


@njit(cache=True, error_model="numpy")
def lines(m: Any, sizes: Any, lane: IntArray, memory: int, count: Int32Array) -> Lines:
    """Prices of a plain pattern whose rows have `count` chunks."""
    shape = (len(sizes.share), len(lane))
    rate, alpha = np.empty(shape), np.empty(shape)
    lag, overhead, acknowledgement = np.empty((3, *shape))
    flow, late, fold = np.empty((3, shape[0], 2, shape[1]))
    eager, valid = np.empty(shape, np.bool_), np.ones(shape[0], np.bool_)
    ways = np.zeros(shape, np.int64)
    tariff = m.tariff
    for z in range(shape[0]):
        more = sizes.itemsize if sizes.longer[z] > 0 else 0
        for i in range(shape[1]):
            kind = m.kind[lane[i]]
            low = float(count[i] * sizes.share[z] * sizes.itemsize)
            high = low + count[i] * more
            at = segment_of(tariff.lo, kind, low)
            way = way_of(tariff.way, tariff.stripe_from, kind, at, low)
            eager[z, i] = low < tariff.eager_limit[kind]
            acknowledgement[z, i] = acknowledgement_of(tariff, kind, low)
            same = at == segment_of(tariff.lo, kind, high)
            same &= way == way_of(tariff.way, tariff.stripe_from, kind, at, high)
            same &= eager[z, i] == (high < tariff.eager_limit[kind])
            same &= acknowledgement[z, i] == acknowledgement_of(tariff, kind, high)
            if low == 0.0 or not same:
                valid[z] = False
                break
            ways[z, i] = way
            rate[z, i] = fastest(m, kind, at, way, lane[i])
            alpha[z, i], lag[z, i] = tariff.alpha[kind, at], tariff.lag[kind, at]
            overhead[z, i] = tariff.overhead[kind]
            late[z, 0, i] = alpha[z, i] + lag[z, i] * low
            late[z, 1, i] = alpha[z, i] + lag[z, i] * high
            flow[z, 0, i] = (low + tariff.envelope) / rate[z, i]
            flow[z, 1, i] = (high + tariff.envelope) / rate[z, i]
            fold[z, 0, i], fold[z, 1, i] = (
                folding(m.folding, memory, low),
                folding(m.folding, memory, high),
            )
    return Lines(
        flow,
        late,
        fold,
        rate,
        alpha,
        lag,
        overhead,
        eager,
        acknowledgement,
        ways,
        m.back[lane],
        memory,
        valid,
    )


@compiled()
def play_plain(
    state: Any,
    m: Any,
    sizes: Any,
    prices: Any,
    groups: Any,
    src: Int32Array,
    dst: Int32Array,
    lane: IntArray,
    first: Int32Array,
    count: Int32Array,
    reduce: Int32Array,
    folds: bool,
) -> None:
    """One round, for all sizes whose prices are valid."""
    alone = len(groups.rows) == len(groups.start) - 1
    for z in range(len(sizes.share)):
        if not state.alive[z] or not prices.valid[z]:
            continue
        time = state.time[z]
        longer_chunks(state, sizes, z, first, count)
        for i in range(len(src)):
            state.flows[i] = prices.flow[z, state.whole[i] & 1, i]
            state.alpha[i] = prices.late[z, state.whole[i] & 1, i]
            if state.whole[i] == PARTLY:
                size = size_of(state, sizes, z, i, count)
                state.flows[i] = (size + m.tariff.envelope) / prices.rate[z, i]
                state.alpha[i] = prices.alpha[z, i] + prices.lag[z, i] * size
            eager = prices.eager[z, i]
            state.ready[i] = time[src[i]] if eager else max(time[src[i]], time[dst[i]])
        if alone:
            _pass(state, prices, z, len(src))
            _occupy(state, m, prices, z, groups.rows, lane)
        else:
            _pay(state, m, sizes, prices, z, count)
            state.alive[z] = compete(state, m, z, groups, lane)
        for i in range(len(src)):
            time[src[i]] = max(time[src[i]], state.sent[i])
            time[dst[i]] = max(time[dst[i]], state.arrived[i])
        if folds:
            _fold(state, m, sizes, prices, z, dst, count, reduce)


@compiled()
def _pay(state: Any, m: Any, sizes: Any, prices: Any, z: int, count: Int32Array) -> None:
    """Prices as `compete` reads them, beside `alpha`: the overhead in `flows`."""
    for i in range(len(count)):
        state.left[i] = size_of(state, sizes, z, i, count) + m.tariff.envelope
        state.rate[i], state.way[i] = prices.rate[z, i], prices.way[z, i]
        state.flows[i] = prices.overhead[z, i]
        state.acknowledgement[i] = prices.acknowledgement[z, i]


@compiled()
def _pass(state: Any, prices: Any, z: int, rows: int) -> None:
    """From `ready`, `flows` and `alpha` to `sent` and `arrived`; the size dies of a message too
    early."""
    alpha, overhead, acknowledgement = state.alpha, prices.overhead[z], prices.acknowledgement[z]
    if not state.eager[z]:
        for i in range(rows):
            state.begun[i] = state.ready[i] + overhead[i]
            state.since[i] = state.begun[i] + state.flows[i]
            state.arrived[i] = state.since[i] + alpha[i]
            state.sent[i] = state.arrived[i] + acknowledgement[i]
        return
    in_turn = True
    for i in range(rows):
        port = state.port[z, prices.back[i]]
        start = begins(port, state.ready[i], 0.0)
        state.begun[i] = start + overhead[i]
        release = state.since[i] = state.begun[i] + state.flows[i]
        in_turn &= passes(port, state.ready[i], start, release)
        state.arrived[i] = release + alpha[i]
        state.sent[i] = max(release, state.arrived[i] + acknowledgement[i])
    state.alive[z] = in_turn


@compiled()
def _occupy(state: Any, m: Any, prices: Any, z: int, meeting: IntArray, lane: IntArray) -> None:
    """These rows are on links, from `begun` to `since`, that carry flows of other rounds, too."""
    busy = state.busy[z]
    for i in meeting:
        way = prices.way[z, i]
        for slot in range(m.slot_start[way, lane[i]], m.slot_start[way, lane[i] + 1]):
            if state.begun[i] < busy[m.slot[slot]]:
                state.alive[z] = False
            busy[m.slot[slot]] = max(busy[m.slot[slot]], state.since[i])


@compiled()
def _fold(
    state: Any,
    m: Any,
    sizes: Any,
    prices: Any,
    z: int,
    dst: Int32Array,
    count: Int32Array,
    reduce: Int32Array,
) -> None:
    for i in range(len(dst)):
        if reduce[i] != 0:
            seconds = prices.fold[z, state.whole[i] & 1, i]
            if state.whole[i] == PARTLY:
                seconds = folding(m.folding, prices.memory, size_of(state, sizes, z, i, count))
            state.time[z, dst[i]] += seconds


@compiled()
def play_ring(
    state: Any,
    m: Any,
    sizes: Any,
    prices: Any,
    meeting: IntArray,
    lane: IntArray,
    first: Int32Array,
    folds: bool,
) -> None:
    """The same where rank r sends one chunk to rank r + 1 mod p, and all reduce it or none."""
    for z in range(len(sizes.share)):
        if not state.alive[z] or not prices.valid[z]:
            continue
        time, ready, flows = state.time[z], state.ready, state.flows
        low, high, eager = prices.flow[z, 0], prices.flow[z, 1], prices.eager[z]
        late, later = prices.late[z, 0], prices.late[z, 1]
        longer, last = sizes.longer[z], len(first) - 1
        for i in range(last):
            ready[i] = time[i] if eager[i] else max(time[i], time[i + 1])
        ready[last] = time[last] if eager[last] else max(time[last], time[0])
        for i in range(last + 1):
            more = _is_longer(first[i], sizes.n_chunks, longer)
            flows[i] = high[i] if more else low[i]
            state.alpha[i] = later[i] if more else late[i]
        _pass(state, prices, z, last + 1)
        _occupy(state, m, prices, z, meeting, lane)
        sent, arrived = state.sent, state.arrived
        time[0] = max(time[0], max(sent[0], arrived[last]))
        for i in range(last):
            time[i + 1] = max(time[i + 1], max(sent[i + 1], arrived[i]))
        if folds:
            low, high = prices.fold[z, 0], prices.fold[z, 1]
            n = sizes.n_chunks
            time[0] += high[last] if _is_longer(first[last], n, longer) else low[last]
            for i in range(last):
                time[i + 1] += high[i] if _is_longer(first[i], n, longer) else low[i]


@compiled(inline="always")
def _is_longer(chunk: int, n_chunks: int, longer: int) -> bool:
    """Chunks from n_chunks on are scratch, as long as those of the buffer."""
    return (chunk - n_chunks if chunk >= n_chunks else chunk) < longer
