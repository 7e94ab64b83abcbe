"""Messages of one round that compete for links, played round by round.

All starts are known, for every rank sends and receives at most one message. So each group of
messages that can meet is a little story of its own: flows begin and end, and rates are shared out.
What a flow crosses alone bounds its rate from the first, and is not looked at again; of resources
that the same flows cross, only the narrowest is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from tuner.base.arrays import BoolArray, FloatArray, IntArray
from tuner.sim.cost_arrays import segment_of, way_of
from tuner.sim.jit import compiled
from tuner.sim.maxmin import TOGETHER
from tuner.sim.round_state import Groups


@compiled()
def flow_together(state: Any, m: Any, z: int, groups: Any, lane: IntArray) -> bool:
    """From `flows` (when each row of the groups begins to flow) to `since` (when it has flowed).

    `since` is what it would be if each flowed alone. False where a resource still carries bytes of
    another round.
    """
    busy = state.busy[z]
    for i in groups.rows:
        way = state.way[i]
        for at in range(m.slot_start[way, lane[i]], m.slot_start[way, lane[i] + 1]):
            if state.ready[i] < np.inf and state.flows[i] < busy[m.slot[at]]:
                return False
    for g in range(len(groups.start) - 1):
        if groups.start[g + 1] - groups.start[g] > 1:
            _play(state, m, groups, g)
    for i in groups.rows:
        way = state.way[i]
        if state.ready[i] < np.inf:
            for at in range(m.slot_start[way, lane[i]], m.slot_start[way, lane[i] + 1]):
                busy[m.slot[at]] = max(busy[m.slot[at]], state.since[i])
    return True


@compiled(inline="always")
def _play(state: Any, m: Any, groups: Any, g: int) -> None:
    """The flows of a group from beginning to end; `turn` is when one begins and then when it ends.

    Rows are meant by their places in `groups.rows`.
    """
    n = _wait(state, groups, g)
    while n > 0:
        now = np.inf
        for a in range(n):
            now = min(now, state.turn[groups.rows[state.unfinished[a]]])
        before, n, flowing = n, 0, 0
        for a in range(before):
            k = state.unfinished[a]
            i = groups.rows[k]
            if state.turn[i] > now or state.rate[i] == 0.0:
                state.unfinished[n] = k
                n += 1
                if state.turn[i] <= now or state.rate[i] > 0.0:
                    state.flowing[flowing] = k
                    flowing += 1
            else:
                state.since[i] = state.turn[i]
        _fill(state, m, groups, flowing)
        for a in range(flowing):
            _turn(state, groups.rows[state.flowing[a]], now)


@compiled(inline="always")
def _wait(state: Any, groups: Any, g: int) -> int:
    """Nobody flows yet. How many will."""
    n = 0
    for k in range(groups.start[g], groups.start[g + 1]):
        i = groups.rows[k]
        if state.ready[i] < np.inf:
            state.turn[i] = state.flows[i]
            state.narrow[i], state.rate[i] = state.rate[i], 0.0
            state.unfinished[n] = k
            n += 1
    return n


@compiled(inline="always")
def _turn(state: Any, i: int, now: float) -> None:
    """From now on the rate of a row is its level."""
    if state.level[i] != state.rate[i]:
        if state.rate[i] > 0.0:
            gone = state.rate[i] * (now - state.since[i])
            state.left[i] = max(0.0, state.left[i] - gone)
        state.rate[i], state.since[i] = state.level[i], now
        state.turn[i] = now + state.left[i] / state.rate[i]


@compiled(inline="always")
def _slots(state: Any, groups: Any, k: int) -> tuple[int, int]:
    """First and last of the slots that a row on its way shares with others."""
    way = state.way[groups.rows[k]]
    return groups.slot_start[way, k], groups.slot_start[way, k + 1]


@compiled(inline="always")
def _fill(state: Any, m: Any, groups: Any, flowing: int) -> None:
    """Progressive filling (see `sharing`): rates into `level`."""
    for a in range(flowing):
        k = state.growing[a] = state.flowing[a]
        state.level[groups.rows[k]] = state.narrow[groups.rows[k]]
        for at in range(*_slots(state, groups, k)):
            state.free[groups.slot[at]] = m.capacity[groups.slot[at]]
    growing = flowing if flowing > 1 else 0
    while growing > 0:
        lowest = _level(state, groups, growing)
        before, growing = growing, 0
        for a in range(before):
            k = state.growing[a]
            level = state.level[groups.rows[k]]
            if level > lowest * TOGETHER:
                state.growing[growing] = k
                growing += 1
            else:
                for at in range(*_slots(state, groups, k)):
                    state.free[groups.slot[at]] -= level * groups.use[at]


@compiled(inline="always")
def _level(state: Any, groups: Any, growing: int) -> float:
    """The rate at which the first resource of each growing flow is full; the lowest of them."""
    for a in range(growing):
        for at in range(*_slots(state, groups, state.growing[a])):
            state.demand[groups.slot[at]] = 0.0
    for a in range(growing):
        for at in range(*_slots(state, groups, state.growing[a])):
            state.demand[groups.slot[at]] += groups.use[at]
    lowest = np.inf
    for a in range(growing):
        k = state.growing[a]
        level = state.narrow[groups.rows[k]]
        for at in range(*_slots(state, groups, k)):
            slot = groups.slot[at]
            level = min(level, state.free[slot] / state.demand[slot])
        state.level[groups.rows[k]] = level
        lowest = min(lowest, level)
    return lowest


@njit(cache=True)
def groups_of(m: Any, lane: IntArray, least: float, most: float) -> Groups:
    """Rows that share a meeting resource, directly or through others, on any way that messages of
    `least` to `most` bytes take."""
    taken = _ways(m.tariff, m.slot_start.shape[0], least, most)
    rows, start = _joined(m, lane, taken)
    own = _class_of_resources(m, lane, rows, taken)
    return Groups(rows, start, *_shared(m, lane, rows, taken, *own))


@njit(cache=True)
def _joined(m: Any, lane: IntArray, taken: BoolArray) -> tuple[IntArray, IntArray]:
    """`rows` and `start` of the groups."""
    parent = np.arange(len(lane))
    user = np.full(len(m.capacity), -1)
    meets = np.zeros(len(lane), np.bool_)
    for i in range(len(lane)):
        for way in range(len(m.slot_start) if lane[i] >= 0 else 0):
            if not taken[m.kind[lane[i]], way]:
                continue
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
    return rows[order], np.array(starts, np.int64)


@njit(cache=True)
def _class_of_resources(
    m: Any, lane: IntArray, rows: IntArray, taken: BoolArray
) -> tuple[IntArray, IntArray, IntArray]:
    """The class of each resource; of each class how many rows use it, and its narrowest resource.

    The resources of a class have the same users, on the same ways, with the same use.
    """
    own = np.zeros(len(m.capacity), np.int64)
    users, latest, before = [0], [-1], np.zeros(len(m.capacity), np.int64)
    for i in rows:
        for way in range(len(m.slot_start)):
            begin, end = m.slot_start[way, lane[i]], m.slot_start[way, lane[i] + 1]
            if not taken[m.kind[lane[i]], way]:
                continue
            for at in range(begin, end):
                before[m.slot[at]] = own[m.slot[at]]
            for at in range(begin, end):
                slot = m.slot[at]
                own[slot] = len(users)
                for other in range(begin, at):
                    same = before[m.slot[other]] == before[slot]
                    if same and m.slot_use[other] == m.slot_use[at]:
                        own[slot] = own[m.slot[other]]
                if own[slot] == len(users):
                    users.append(users[before[slot]] + (latest[before[slot]] != i))
                    latest.append(i)
    narrowest = np.full(len(users), -1)
    for slot in range(len(own)):
        best = narrowest[own[slot]]
        if best < 0 or m.capacity[slot] < m.capacity[best]:
            narrowest[own[slot]] = slot
    return own, np.array(users), narrowest


@njit(cache=True)
def _shared(
    m: Any,
    lane: IntArray,
    rows: IntArray,
    taken: BoolArray,
    own: IntArray,
    users: IntArray,
    narrowest: IntArray,
) -> tuple[IntArray, IntArray, FloatArray]:
    """`slot_start`, `slot` and `use` of `Groups`."""
    start = np.zeros((len(m.slot_start), len(rows) + 1), np.int64)
    kept = [0 for _ in range(0)]
    for way in range(len(start)):
        start[way, 0] = len(kept)
        for k in range(len(rows)):
            on = lane[rows[k]]
            for at in range(m.slot_start[way, on], m.slot_start[way, on + 1]):
                slot = m.slot[at]
                if taken[m.kind[on], way] and users[own[slot]] > 1 and narrowest[own[slot]] == slot:
                    kept.append(at)
            start[way, k + 1] = len(kept)
    slots = np.array(kept, np.int64)
    return start, m.slot[slots], m.slot_use[slots]


@njit(cache=True)
def _ways(tariff: Any, ways: int, least: float, most: float) -> BoolArray:
    """Which ways messages of `least` to `most` bytes take, shape (kinds, ways)."""
    taken = np.zeros((len(tariff.lo), ways), np.bool_)
    for kind in range(len(tariff.lo)):
        last = segment_of(tariff.lo, kind, most)
        for at in range(segment_of(tariff.lo, kind, least), last + 1):
            for size in (max(least, tariff.lo[kind, at]), most):
                taken[kind, way_of(tariff.way, tariff.stripe_from, kind, at, size)] = True
    return taken


@njit(cache=True)
def _root(parent: IntArray, i: Any) -> Any:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i
