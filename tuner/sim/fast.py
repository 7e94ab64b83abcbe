"""The working engine: the semantics of `events`, compiled.

One event queue; at each instant first everything happens that is due, then ports and rates are
settled. Where no two flows can ever meet on a link (FIFO ports, and every link fed by one rank or
drained by one), rates are known beforehand and nothing is shared out.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tuner.sim.sharing import fair_rates
from tuner.sim.traffic import Traffic

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

ENTER, FLOW, FINISH, ARRIVE = 0, 1, 2, 3  # a rank enters a visit; a transfer flows, ends, arrives
NONE = -1

Queue = list[tuple[float, int, int]]  # (time, kind, rank or transfer), a heap


class _Calls(NamedTuple):
    """`Traffic` as the compiled code reads it, with ports as the first 2 p resources."""

    src: Ints
    dst: Ints
    nbytes: Floats
    alpha: Floats
    overhead: Floats
    eager: Flags
    shared: Flags
    resources: Ints
    use: Floats
    capacity: Floats
    visit_start: Ints
    post_start: Ints
    posts: Ints
    work: Floats


class _State(NamedTuple):
    """Where everything stands; one entry per transfer unless said otherwise."""

    sides: Ints  # how many of the two ranks have posted
    received: Flags  # the receiver has posted
    arrived: Flags
    started: Flags
    rate: Floats
    left: Floats  # bytes at `since`
    since: Floats
    finish: Floats
    flowing: Flags
    behind_send: Ints  # the next transfer in the sender's queue
    behind_receive: Ints
    head_send: Ints  # per rank
    tail_send: Ints
    head_receive: Ints
    tail_receive: Ints
    visit: Ints  # per rank: the visit it is in
    pending: Ints  # per rank: its parts of transfers not yet complete
    done: Floats  # per rank


def finish_times(traffic: Traffic) -> Floats:
    """When each rank is done, in seconds, shape (p,); all ranks start at 0."""
    p, k = traffic.p, len(traffic.src)
    ports = np.stack([traffic.src, traffic.dst + p], axis=1)
    links = np.where(traffic.links < 0, NONE, traffic.links + 2 * p)
    use = np.ones((k, 2 + links.shape[1]))
    use[:, :2] = traffic.beta[:, None]
    calls = _Calls(
        traffic.src, traffic.dst, traffic.nbytes, traffic.alpha, traffic.overhead, traffic.eager,
        traffic.shared, np.concatenate([ports, links], axis=1), use,
        np.concatenate([np.ones(2 * p), traffic.capacity]),
        traffic.visit_start, traffic.post_start, traffic.posts, traffic.work,
    )  # fmt: skip
    state = _State(
        np.zeros(k, np.int64), np.zeros(k, bool), np.zeros(k, bool), np.zeros(k, bool),
        np.zeros(k), np.zeros(k), np.zeros(k), np.full(k, np.inf), np.zeros(k, bool),
        np.full(k, NONE), np.full(k, NONE), np.full(p, NONE), np.full(p, NONE), np.full(p, NONE),
        np.full(p, NONE), traffic.visit_start[:-1] - 1, np.zeros(p, np.int64), np.zeros(p),
    )  # fmt: skip
    alone = _never_meet(traffic)
    _play(calls, state, _lonely_rates(traffic) if alone else np.zeros(0))
    return state.done


def _never_meet(traffic: Traffic) -> bool:
    """Whether every link carries one flow at a time because one FIFO port feeds or drains it."""
    if traffic.shared.any():
        return False
    links = len(traffic.capacity)
    row, hop = np.nonzero(traffic.links >= 0)
    link = traffic.links[row, hop]
    fed, drained = (
        np.bincount(np.unique(link * traffic.p + rank[row]) // traffic.p, minlength=links)
        for rank in (traffic.src, traffic.dst)
    )
    crowded = (fed > 1) & (drained > 1) & np.isfinite(traffic.capacity)
    return not bool(crowded.any())


def _lonely_rates(traffic: Traffic) -> Floats:
    """Bytes per second of a flow that meets no other."""
    widest = np.append(traffic.capacity, np.inf)[traffic.links].min(axis=1, initial=np.inf)
    with np.errstate(divide="ignore"):
        rates: Floats = np.minimum(1.0 / traffic.beta, widest)
    return rates


@njit(cache=True)
def _play(calls: _Calls, state: _State, lonely: Floats) -> None:
    queue = [(0.0, ENTER, rank) for rank in range(len(state.done))]
    ready = [0 for _ in range(0)]
    heads = [0 for _ in range(0)]
    while len(queue) > 0:
        now = queue[0][0]
        changed = False
        while len(queue) > 0 and queue[0][0] == now:
            _, kind, number = heappop(queue)
            if kind == ENTER:
                _enter(calls, state, queue, ready, number, now)
            elif kind == FLOW:
                changed = True
                _flow(calls, state, queue, lonely, number, now)
            elif kind == FINISH:
                if state.flowing[number] and state.finish[number] == now:
                    changed = True
                    _finish(calls, state, queue, heads, number, now)
            else:
                _arrive(calls, state, queue, number, now)
        changed |= _settle(calls, state, queue, ready, heads, lonely, now)
        if changed and len(lonely) == 0:
            _share(calls, state, queue, now)


@njit(cache=True)
def _enter(
    calls: _Calls, state: _State, queue: Queue, ready: list[int], rank: int, now: float
) -> None:
    """The rank's last visit is over: post everything of the next one."""
    state.visit[rank] += 1
    visit = state.visit[rank]
    if visit == calls.visit_start[rank + 1]:
        state.done[rank] = now
        return
    first, end = calls.post_start[visit], calls.post_start[visit + 1]
    state.pending[rank] = end - first
    if first == end:
        heappush(queue, (now + calls.work[visit], ENTER, rank))
    for number in calls.posts[first:end]:
        state.sides[number] += 1
        sends = calls.src[number] == rank
        if calls.eager[number]:
            if sends:
                ready.append(number)
        elif state.sides[number] == 2:
            ready.append(number)
        if not sends:
            state.received[number] = True
            if state.arrived[number]:
                _complete(calls, state, queue, rank, now)


@njit(cache=True)
def _complete(calls: _Calls, state: _State, queue: Queue, rank: int, now: float) -> None:
    """One part of the rank's visit is complete; after the last one it folds, then goes on."""
    state.pending[rank] -= 1
    if state.pending[rank] == 0:
        heappush(queue, (now + calls.work[state.visit[rank]], ENTER, rank))


@njit(cache=True)
def _settle(
    calls: _Calls,
    state: _State,
    queue: Queue,
    ready: list[int],
    heads: list[int],
    lonely: Floats,
    now: float,
) -> bool:
    """Admit what became ready at this instant, in row order, and start what heads both queues."""
    ready.sort()
    changed = False
    for number in ready:
        if calls.shared[number]:
            changed |= _start(calls, state, queue, lonely, number, now)
        else:
            s, d = calls.src[number], calls.dst[number]
            _append(state.head_send, state.tail_send, state.behind_send, s, number)
            _append(state.head_receive, state.tail_receive, state.behind_receive, d, number)
            heads.append(number)
    ready.clear()
    for number in heads:
        s, d = calls.src[number], calls.dst[number]
        both = state.head_send[s] == number and state.head_receive[d] == number
        if both and not state.started[number]:
            changed |= _start(calls, state, queue, lonely, number, now)
    heads.clear()
    return changed


@njit(cache=True)
def _append(head: Ints, tail: Ints, behind: Ints, port: int, number: int) -> None:
    if head[port] == NONE:
        head[port] = number
    else:
        behind[tail[port]] = number
    tail[port] = number


@njit(cache=True)
def _start(
    calls: _Calls, state: _State, queue: Queue, lonely: Floats, number: int, now: float
) -> bool:
    state.started[number] = True
    if calls.overhead[number] > 0.0:
        heappush(queue, (now + calls.overhead[number], FLOW, number))
        return False
    _flow(calls, state, queue, lonely, number, now)
    return True


@njit(cache=True)
def _flow(
    calls: _Calls, state: _State, queue: Queue, lonely: Floats, number: int, now: float
) -> None:
    state.left[number] = calls.nbytes[number]
    state.since[number] = now
    state.flowing[number] = True
    if len(lonely) > 0:
        state.finish[number] = now + calls.nbytes[number] / lonely[number]
        heappush(queue, (state.finish[number], FINISH, number))


@njit(cache=True)
def _finish(
    calls: _Calls, state: _State, queue: Queue, heads: list[int], number: int, now: float
) -> None:
    """The ports are free again; the last byte is still on its way."""
    state.flowing[number] = False
    s, d = calls.src[number], calls.dst[number]
    if not calls.shared[number]:
        state.head_send[s] = state.behind_send[number]
        state.head_receive[d] = state.behind_receive[number]
        for head in (state.head_send[s], state.head_receive[d]):
            if head != NONE:
                heads.append(head)
    if calls.eager[number]:
        _complete(calls, state, queue, s, now)
    heappush(queue, (now + calls.alpha[number], ARRIVE, number))


@njit(cache=True)
def _arrive(calls: _Calls, state: _State, queue: Queue, number: int, now: float) -> None:
    state.arrived[number] = True
    if not calls.eager[number]:
        _complete(calls, state, queue, calls.src[number], now)
    if state.received[number]:
        _complete(calls, state, queue, calls.dst[number], now)


@njit(cache=True)
def _share(calls: _Calls, state: _State, queue: Queue, now: float) -> None:
    """New max-min rates; a flow whose rate stays is left alone."""
    numbers = np.flatnonzero(state.flowing)
    rates = fair_rates(calls.resources[numbers], calls.use[numbers], calls.capacity)
    for i in range(len(numbers)):
        number, rate = numbers[i], rates[i]
        if rate != state.rate[number]:
            if state.rate[number] > 0.0:
                gone = state.rate[number] * (now - state.since[number])
                state.left[number] = max(0.0, state.left[number] - gone)
            state.rate[number] = rate
            state.since[number] = now
            state.finish[number] = now + state.left[number] / rate
            heappush(queue, (state.finish[number], FINISH, number))
