"""A call played round by round, for many message sizes in one pass.

Ranks meet only in the transfers of a round, and ports are free between rounds, so that no queue of
events is needed as long as

- messages queue for ports (none share them),
- an eager message reaches a port after all messages of earlier rounds have, or early enough to be
  through before the last one of them begins, and
- flows that can compete for a link either belong to one round in which all their starts are known,
  or do not overlap in time.

The last two are checked on the way: a size for which they do not hold is given up, and `agenda`
plays it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tuner.base.arrays import BoolArray, FloatArray, Int32Array, IntArray
from tuner.sim.contended_rounds import flow_together
from tuner.sim.cost_arrays import acknowledgement_of, segment_of, way_of
from tuner.sim.jit import compiled

Bytes = NDArray[np.int8]


@compiled()
def longer_chunks(state: Any, sizes: Any, z: int, first: Int32Array, count: Int32Array) -> None:
    """Of each row whether none of its chunks, every one, or some are longer ones."""
    n, longer = sizes.n_chunks, sizes.longer[z]
    for i in range(len(first)):
        begin = first[i] - n if first[i] >= n else first[i]
        state.more[i] = max(0, min(count[i], longer - begin))
        state.whole[i] = (state.more[i] > 0) + 2 * (0 < state.more[i] < count[i])


@compiled()
def size_of(state: Any, sizes: Any, z: int, i: int, count: Int32Array) -> float:
    """Bytes of a row, once `longer_chunks` has looked at it."""
    return float((count[i] * sizes.share[z] + state.more[i]) * sizes.itemsize)


@compiled()
def folding(lines: FloatArray, memory: int, size: float) -> float:
    """Seconds to reduce in host (0) or device (1) memory: the cheaper way."""
    least = np.inf
    for i in range(lines.shape[1]):
        least = min(least, lines[memory, i, 0] + lines[memory, i, 1] * size)
    return least


@njit(cache=True)
def play_any(
    state: Any,
    m: Any,
    sizes: Any,
    skip: BoolArray,
    groups: Any,
    src: Int32Array,
    dst: Int32Array,
    lane: IntArray,
    memory: Bytes,
    first: Int32Array,
    count: Int32Array,
    reduce: Int32Array,
    plain: bool,
) -> None:
    """Any round, for the sizes that are not to be skipped."""
    for z in range(len(sizes.share)):
        if state.alive[z] and not skip[z]:
            longer_chunks(state, sizes, z, first, count)
            for i in range(len(count)):
                state.size[i] = size_of(state, sizes, z, i, count)
            _price(state, m, z, src, dst, lane)
            if len(groups.rows) == 0:
                alive = _queue(state, m, z, _order(state, m, lane, plain), lane)
            else:
                alive = plain and compete(state, m, z, groups, lane)
            state.alive[z] = alive
            if alive:
                _go_on(state, m, z, src, dst, memory, reduce)


@compiled()
def _price(state: Any, m: Any, z: int, src: Int32Array, dst: Int32Array, lane: IntArray) -> None:
    """Rate, alpha, acknowledgement and when each message is ready.

    Local and empty rows are never ready. The overhead is put into `flows`.
    """
    time = state.time[z]
    for i in range(len(src)):
        size = state.size[i]
        state.left[i] = size + m.tariff.envelope
        state.ready[i] = np.inf
        if size == 0.0 or src[i] == dst[i]:
            continue
        kind = m.kind[lane[i]]
        at = segment_of(m.tariff.lo, kind, size)
        way = way_of(m.tariff.way, m.tariff.stripe_from, kind, at, size)
        state.way[i] = way
        state.rate[i] = fastest(m, kind, at, way, lane[i])
        state.alpha[i] = m.tariff.alpha[kind, at] + m.tariff.lag[kind, at] * size
        state.flows[i] = m.tariff.overhead[kind]
        eager = size < m.tariff.eager_limit[kind]
        state.ready[i] = time[src[i]] if eager else max(time[src[i]], time[dst[i]])
        state.acknowledgement[i] = acknowledgement_of(m.tariff, kind, size)
        state.send_free[m.out[lane[i]]] = 0.0


@compiled(inline="always")
def fastest(m: Any, kind: int, segment: int, way: int, lane: int) -> float:
    """Bytes per second of a message that has its way to itself."""
    rate = min(1.0 / m.tariff.beta[kind, segment], m.width[way, lane])
    if len(m.slot) > 0:
        for slot in range(m.slot_start[way, lane], m.slot_start[way, lane + 1]):
            rate = min(rate, m.capacity[m.slot[slot]] / m.slot_use[slot])
    return float(rate)


@njit(cache=True)
def _order(state: Any, m: Any, lane: IntArray, plain: bool) -> IntArray:
    """The order in which messages join queues: as they become ready, then by row."""
    if plain or _by_row(state, m, lane):
        return np.arange(len(lane))
    return np.argsort(state.ready[: len(lane)], kind="mergesort")


@compiled()
def _by_row(state: Any, m: Any, lane: IntArray) -> bool:
    """Whether the messages of every port become ready in the order of rows."""
    for i in range(len(lane)):
        if state.ready[i] < np.inf:
            state.latest[0, m.out[lane[i]]] = state.latest[1, m.back[lane[i]]] = 0.0
    for i in range(len(lane)):
        ready = state.ready[i]
        if ready < np.inf:
            out, back = m.out[lane[i]], m.back[lane[i]]
            if ready < state.latest[0, out] or ready < state.latest[1, back]:
                return False
            state.latest[0, out] = state.latest[1, back] = ready
    return True


@compiled()
def _queue(state: Any, m: Any, z: int, order: IntArray, lane: IntArray) -> bool:
    """Messages pass their ports one after another. False where one came too early for that."""
    for i in order:
        if state.ready[i] < np.inf:
            out = m.out[lane[i]]
            port = state.port[z, m.back[lane[i]]]
            start = begins(port, state.ready[i], state.send_free[out])
            end = (start + state.flows[i]) + state.left[i] / state.rate[i]
            if not passes(port, state.ready[i], start, end):
                return False
            state.send_free[out] = end
            release(state, i, end)
    return True


@compiled(inline="always")
def begins(port: Any, ready: float, send_free: float) -> float:
    """When a message that is ready begins to pass its ports."""
    return float(max(ready, send_free, port.free if ready >= port.joined else port.free_before))


@compiled(inline="always")
def passes(port: Any, ready: float, start: float, release: float) -> bool:
    """Note that a message has passed a receiving port; False if that was out of turn.

    One that joins the queue before the last message did must be through before that one begins.
    """
    if ready >= port.joined:
        port.free_before, port.joined_before = port.free, port.joined
        port.free, port.joined, port.last = release, ready, start
        return True
    in_turn = bool(ready >= port.joined_before and release <= port.last)
    port.free_before, port.joined_before = release, ready
    return in_turn


@compiled()
def compete(state: Any, m: Any, z: int, groups: Any, lane: IntArray) -> bool:
    """A plain round: every message starts by itself, and groups share links. False as above."""
    for i in range(len(lane)):
        if state.ready[i] < np.inf:
            port = state.port[z, m.back[lane[i]]]
            state.begun[i] = begins(port, state.ready[i], 0.0)
            state.flows[i] += state.begun[i]
            state.since[i] = state.flows[i] + state.left[i] / state.rate[i]
    if not flow_together(state, m, z, groups, lane):
        return False
    for i in range(len(lane)):
        if state.ready[i] < np.inf:
            port = state.port[z, m.back[lane[i]]]
            if not passes(port, state.ready[i], state.begun[i], state.since[i]):
                return False
            release(state, i, state.since[i])
    return True


@compiled(inline="always")
def release(state: Any, i: int, end: float) -> None:
    """The message has passed its ports."""
    state.arrived[i] = end + state.alpha[i]
    state.sent[i] = max(end, state.arrived[i] + state.acknowledgement[i])


@compiled()
def _go_on(
    state: Any, m: Any, z: int, src: Int32Array, dst: Int32Array, memory: Bytes, reduce: Int32Array
) -> None:
    """Every rank copies, waits for its messages, then reduces."""
    time = state.time[z]
    for i in range(len(src)):
        if src[i] == dst[i] and reduce[i] == 0 and state.size[i] > 0.0:
            kind = memory[i]
            at = segment_of(m.copying.lo, kind, state.size[i])
            late = m.copying.alpha[kind, at] + m.copying.lag[kind, at] * state.size[i]
            fixed = m.copying.overhead[kind] + late
            state.work[dst[i]] += fixed + m.copying.beta[kind, at] * state.size[i]
    _end_of_work(state, time, dst)
    for i in range(len(src)):
        if state.ready[i] < np.inf:
            time[src[i]] = max(time[src[i]], state.sent[i])
            time[dst[i]] = max(time[dst[i]], state.arrived[i])
        if reduce[i] != 0 and state.size[i] > 0.0:
            state.work[dst[i]] += folding(m.folding, min(1, memory[i]), state.size[i])
    _end_of_work(state, time, dst)


@compiled()
def _end_of_work(state: Any, time: FloatArray, dst: Int32Array) -> None:
    for i in range(len(dst)):
        time[dst[i]] += state.work[dst[i]]
        state.work[dst[i]] = 0.0
