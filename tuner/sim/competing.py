"""Messages of one round that compete for links, played round by round.

All starts are known, for every rank sends and receives at most one message. So each group of
messages that can meet is a little story of its own: flows begin and end, and rates are shared out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tuner.sim.sharing import TOGETHER
from tuner.sim.state import Groups

Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]
Floats = NDArray[np.float64]


@njit(cache=True)
def flow_together(state: Any, m: Any, z: int, rows: Ints, lane: Ints) -> bool:
    """From `flows` (when each of the rows begins to flow) to `since` (when it has flowed).

    False where a resource still carries bytes of another round.
    """
    busy = state.busy[z]
    for i in rows:
        state.narrow[i], state.rate[i] = state.rate[i], 0.0
        for at in range(*_slots(state, m, i, lane)):
            if state.flows[i] < busy[m.slot[at]]:
                return False
    waiting, flowing = rows, rows[:0]
    while len(waiting) > 0 or len(flowing) > 0:
        now = _next(state, waiting, flowing)
        flowing = flowing[state.since[flowing] + state.left[flowing] / state.rate[flowing] > now]
        begins = waiting[state.flows[waiting] == now]
        waiting = waiting[state.flows[waiting] > now]
        flowing = np.sort(np.concatenate((flowing, begins)))
        _fill(state, m, flowing, lane)
        for i in flowing:
            if state.level[i] != state.rate[i]:
                if state.rate[i] > 0.0:
                    gone = state.rate[i] * (now - state.since[i])
                    state.left[i] = max(0.0, state.left[i] - gone)
                state.rate[i], state.since[i] = state.level[i], now
    for i in rows:
        state.since[i] += state.left[i] / state.rate[i]
        for at in range(*_slots(state, m, i, lane)):
            busy[m.slot[at]] = max(busy[m.slot[at]], state.since[i])
    return True


@njit(cache=True)
def _slots(state: Any, m: Any, i: int, lane: Ints) -> tuple[int, int]:
    """First and last slot of a row on its way."""
    return m.slot_start[state.way[i], lane[i]], m.slot_start[state.way[i], lane[i] + 1]


@njit(cache=True)
def _next(state: Any, waiting: Ints, flowing: Ints) -> float:
    """When the next flow begins or ends."""
    now = np.inf
    for i in waiting:
        now = min(now, state.flows[i])
    for i in flowing:
        now = min(now, state.since[i] + state.left[i] / state.rate[i])
    return now


@njit(cache=True)
def _fill(state: Any, m: Any, flowing: Ints, lane: Ints) -> None:
    """Progressive filling (see `sharing`): rates into `level`."""
    for i in flowing:
        for at in range(*_slots(state, m, i, lane)):
            state.free[m.slot[at]] = m.capacity[m.slot[at]]
    growing = flowing
    while len(growing) > 0:
        _add_up(state, m, growing, lane)
        lowest = np.inf
        for i in growing:
            state.level[i] = state.narrow[i]
            for at in range(*_slots(state, m, i, lane)):
                full = state.free[m.slot[at]] / state.demand[m.slot[at]]
                state.level[i] = min(state.level[i], full)
            lowest = min(lowest, state.level[i])
        frozen = state.level[growing] <= lowest * TOGETHER
        if lowest == np.inf or frozen.all():
            break
        for i in growing[frozen]:
            for at in range(*_slots(state, m, i, lane)):
                state.free[m.slot[at]] -= state.level[i] * m.slot_use[at]
        growing = growing[~frozen]


@njit(cache=True)
def _add_up(state: Any, m: Any, growing: Ints, lane: Ints) -> None:
    """Units per second that each resource gives up when all growing flows gain 1 byte/s."""
    for i in growing:
        for at in range(*_slots(state, m, i, lane)):
            state.demand[m.slot[at]] = 0.0
    for i in growing:
        for at in range(*_slots(state, m, i, lane)):
            state.demand[m.slot[at]] += m.slot_use[at]


@njit(cache=True)
def groups_of(m: Any, lane: Ints) -> Groups:
    """Rows that share a meeting resource, directly or through others."""
    parent = np.arange(len(lane))
    user = np.full(len(m.capacity), -1)
    meets = np.zeros(len(lane), np.bool_)
    for i in range(len(lane)):
        for way in range(len(m.slot_start) if lane[i] >= 0 else 0):
            for at in range(m.slot_start[way, lane[i]], m.slot_start[way, lane[i] + 1]):
                meets[i] = True
                if user[m.slot[at]] < 0:
                    user[m.slot[at]] = i
                a, b = _root(parent, i), _root(parent, user[m.slot[at]])
                parent[max(a, b)] = min(a, b)
    rows = np.flatnonzero(meets)
    root = np.array([_root(parent, i) for i in rows], np.int64)
    order = np.argsort(root, kind="mergesort")
    starts = [0 for _ in range(0)]
    for i in range(len(rows)):
        if i == 0 or root[order[i]] != root[order[i - 1]]:
            starts.append(i)
    starts.append(len(rows))
    return Groups(rows[order], np.array(starts, np.int64))


@njit(cache=True)
def _root(parent: Ints, i: Any) -> Any:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i
