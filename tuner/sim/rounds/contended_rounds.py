"""Messages of one round that compete for links, for the round engine.

All starts are known, as every rank sends and receives at most one message. So each group of
messages that share links is simulated by itself: flows begin and end, and rates are shared out.
A resource that only one flow crosses bounds its rate from the start and is not looked at again; of
resources that the same flows cross, only the one with the smallest capacity is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.base.arrays import BoolArray, FloatArray, Int32Array, IntArray
from tuner.base.compiled import compiled
from tuner.sim.cost_arrays import find_segment, transfer_mode
from tuner.sim.jit import njit_no_alloc
from tuner.sim.maxmin import RATE_TIE_FACTOR
from tuner.sim.rounds.round_state import ContentionGroups


@njit_no_alloc()
def share_links(state: Any, machine: Any, z: int, groups: Any, connection: Int32Array) -> bool:
    """Compute when the rows of the groups have flowed (`state.since`) from their starts (`flows`).

    Before the call `since` is the end that each would have alone. Return False where a resource
    still carries bytes of another round.
    """
    busy = state.busy_until[z]
    for i in groups.rows:
        way = state.mode[i]
        for at in range(
            machine.slot_start[way, connection[i]], machine.slot_start[way, connection[i] + 1]
        ):
            if state.ready[i] < np.inf and state.flows[i] < busy[machine.slot[at]]:
                return False
    for g in range(len(groups.start) - 1):
        if groups.start[g + 1] - groups.start[g] > 1:
            _run_group(state, machine, groups, g)
    for i in groups.rows:
        way = state.mode[i]
        if state.ready[i] < np.inf:
            for at in range(
                machine.slot_start[way, connection[i]], machine.slot_start[way, connection[i] + 1]
            ):
                busy[machine.slot[at]] = max(busy[machine.slot[at]], state.since[i])
    return True


@njit_no_alloc(inline="always")
def _run_group(state: Any, machine: Any, groups: Any, g: int) -> None:
    """Simulate the flows of one group from beginning to end.

    `next_event` of a row is when it begins and then when it ends. Rows are given by their places in
    `groups.rows`.
    """
    n = _queue_flows(state, groups, g)
    while n > 0:
        now = np.inf
        for a in range(n):
            now = min(now, state.next_event[groups.rows[state.unfinished[a]]])
        before, n, flowing = n, 0, 0
        for a in range(before):
            k = state.unfinished[a]
            i = groups.rows[k]
            if state.next_event[i] > now or state.rate[i] == 0.0:
                state.unfinished[n] = k
                n += 1
                if state.next_event[i] <= now or state.rate[i] > 0.0:
                    state.flowing[flowing] = k
                    flowing += 1
            else:
                state.since[i] = state.next_event[i]
        _fill(state, machine, groups, flowing)
        for a in range(flowing):
            _apply_rate(state, groups.rows[state.flowing[a]], now)


@njit_no_alloc(inline="always")
def _queue_flows(state: Any, groups: Any, g: int) -> int:
    """Queue the flows of the group, none of which has begun; return how many there are."""
    n = 0
    for k in range(groups.start[g], groups.start[g + 1]):
        i = groups.rows[k]
        if state.ready[i] < np.inf:
            state.next_event[i] = state.flows[i]
            state.solo_rate[i], state.rate[i] = state.rate[i], 0.0
            state.unfinished[n] = k
            n += 1
    return n


@njit_no_alloc(inline="always")
def _apply_rate(state: Any, i: int, now: float) -> None:
    """Set the rate of a row to its fair rate from now on."""
    if state.fair_rate[i] != state.rate[i]:
        if state.rate[i] > 0.0:
            gone = state.rate[i] * (now - state.since[i])
            state.bytes_left[i] = max(0.0, state.bytes_left[i] - gone)
        state.rate[i], state.since[i] = state.fair_rate[i], now
        state.next_event[i] = now + state.bytes_left[i] / state.rate[i]


@njit_no_alloc(inline="always")
def _slot_range(state: Any, groups: Any, k: int) -> tuple[int, int]:
    """Return the range of the slots that a row, in its mode, shares with others."""
    way = state.mode[groups.rows[k]]
    return groups.slot_start[way, k], groups.slot_start[way, k + 1]


@njit_no_alloc(inline="always")
def _fill(state: Any, machine: Any, groups: Any, flowing: int) -> None:
    """Apply progressive filling (see `maxmin`) to the flowing rows; set `fair_rate`."""
    for a in range(flowing):
        k = state.growing[a] = state.flowing[a]
        state.fair_rate[groups.rows[k]] = state.solo_rate[groups.rows[k]]
        for at in range(*_slot_range(state, groups, k)):
            state.free_capacity[groups.slot[at]] = machine.capacity[groups.slot[at]]
    growing = flowing if flowing > 1 else 0
    while growing > 0:
        lowest = _lowest_rate(state, groups, growing)
        before, growing = growing, 0
        for a in range(before):
            k = state.growing[a]
            level = state.fair_rate[groups.rows[k]]
            if level > lowest * RATE_TIE_FACTOR:
                state.growing[growing] = k
                growing += 1
            else:
                for at in range(*_slot_range(state, groups, k)):
                    state.free_capacity[groups.slot[at]] -= level * groups.slot_load[at]


@njit_no_alloc(inline="always")
def _lowest_rate(state: Any, groups: Any, growing: int) -> float:
    """Set `fair_rate` of growing flows to where each saturates a resource; return the lowest."""
    for a in range(growing):
        for at in range(*_slot_range(state, groups, state.growing[a])):
            state.demand[groups.slot[at]] = 0.0
    for a in range(growing):
        for at in range(*_slot_range(state, groups, state.growing[a])):
            state.demand[groups.slot[at]] += groups.slot_load[at]
    lowest = np.inf
    for a in range(growing):
        k = state.growing[a]
        level = state.solo_rate[groups.rows[k]]
        for at in range(*_slot_range(state, groups, k)):
            slot = groups.slot[at]
            level = min(level, state.free_capacity[slot] / state.demand[slot])
        state.fair_rate[groups.rows[k]] = level
        lowest = min(lowest, level)
    return lowest


def no_contention(machine: Any) -> ContentionGroups:
    """Return the groups of a round whose rows share no resource."""
    none, modes = np.zeros(0, np.int64), len(machine.slot_start)
    start, slots = np.zeros((modes, 1), np.int64), np.zeros(0, np.int32)
    return ContentionGroups(none, np.zeros(1, np.int64), start, slots, np.zeros(0))


@compiled()
def find_contention_groups(
    machine: Any, connection: Int32Array, min_bytes: float, max_bytes: float
) -> ContentionGroups:
    """Group rows that share a contended resource, directly or through other rows.

    Considers every transfer mode that messages of `min_bytes` to `max_bytes` use.
    """
    taken = _used_modes(machine.costs, machine.slot_start.shape[0], min_bytes, max_bytes)
    rows, start = _connected_rows(machine, connection, taken)
    own = _classify_resources(machine, connection, rows, taken)
    return ContentionGroups(rows, start, *_shared_slots(machine, connection, rows, taken, *own))


@compiled()
def _connected_rows(
    machine: Any, connection: Int32Array, taken: BoolArray
) -> tuple[IntArray, IntArray]:
    """Return `rows` and `start` of `ContentionGroups`."""
    parent = np.arange(len(connection))
    user = np.full(len(machine.capacity), -1)
    meets = np.zeros(len(connection), np.bool_)
    for i in range(len(connection)):
        for way in range(len(machine.slot_start) if connection[i] >= 0 else 0):
            if not taken[machine.kind[connection[i]], way]:
                continue
            for at in range(
                machine.slot_start[way, connection[i]], machine.slot_start[way, connection[i] + 1]
            ):
                meets[i] = True
                if user[machine.slot[at]] < 0:
                    user[machine.slot[at]] = i
                a, b = _find_root(parent, i), _find_root(parent, user[machine.slot[at]])
                parent[max(a, b)] = min(a, b)
    rows = np.flatnonzero(meets)
    root = np.array([_find_root(parent, i) for i in rows], np.int64)
    order = np.argsort(root, kind="mergesort")
    starts = [0 for _ in range(0)]
    for i in range(len(rows)):
        if i == 0 or root[order[i]] != root[order[i - 1]]:
            starts.append(i)
    starts.append(len(rows))
    return rows[order], np.array(starts, np.int64)


@compiled()
def _classify_resources(
    machine: Any, connection: Int32Array, rows: IntArray, taken: BoolArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return the class of each resource, and users and bottleneck resource of each class.

    The resources of a class have the same users, in the same modes, with the same load factor.
    """
    own = np.zeros(len(machine.capacity), np.int64)
    users, latest, before = [0], [-1], np.zeros(len(machine.capacity), np.int64)
    for i in rows:
        for way in range(len(machine.slot_start)):
            begin = machine.slot_start[way, connection[i]]
            end = machine.slot_start[way, connection[i] + 1]
            if not taken[machine.kind[connection[i]], way]:
                continue
            for at in range(begin, end):
                before[machine.slot[at]] = own[machine.slot[at]]
            for at in range(begin, end):
                slot = machine.slot[at]
                own[slot] = len(users)
                for other in range(begin, at):
                    same = before[machine.slot[other]] == before[slot]
                    if same and machine.slot_load[other] == machine.slot_load[at]:
                        own[slot] = own[machine.slot[other]]
                if own[slot] == len(users):
                    users.append(users[before[slot]] + (latest[before[slot]] != i))
                    latest.append(i)
    narrowest = np.full(len(users), -1)
    for slot in range(len(own)):
        best = narrowest[own[slot]]
        if best < 0 or machine.capacity[slot] < machine.capacity[best]:
            narrowest[own[slot]] = slot
    return own, np.array(users), narrowest


@compiled()
def _shared_slots(
    machine: Any,
    connection: Int32Array,
    rows: IntArray,
    taken: BoolArray,
    resource_class: IntArray,
    users: IntArray,
    bottleneck: IntArray,
) -> tuple[IntArray, Int32Array, FloatArray]:
    """Return `slot_start`, `slot` and `slot_load` of `ContentionGroups`."""
    start = np.zeros((len(machine.slot_start), len(rows) + 1), np.int64)
    kept = [0 for _ in range(0)]
    for way in range(len(start)):
        start[way, 0] = len(kept)
        for k in range(len(rows)):
            on = connection[rows[k]]
            for at in range(machine.slot_start[way, on], machine.slot_start[way, on + 1]):
                slot = machine.slot[at]
                if (
                    taken[machine.kind[on], way]
                    and users[resource_class[slot]] > 1
                    and bottleneck[resource_class[slot]] == slot
                ):
                    kept.append(at)
            start[way, k + 1] = len(kept)
    slots = np.array(kept, np.int64)
    return start, machine.slot[slots], machine.slot_load[slots]


@compiled()
def _used_modes(costs: Any, modes: int, min_bytes: float, max_bytes: float) -> BoolArray:
    """Return which modes messages of `min_bytes` to `max_bytes` use, shape (kinds, modes)."""
    taken = np.zeros((len(costs.start_bytes), modes), np.bool_)
    for kind in range(len(costs.start_bytes)):
        last = find_segment(costs.start_bytes, kind, max_bytes)
        for at in range(find_segment(costs.start_bytes, kind, min_bytes), last + 1):
            for size in (max(min_bytes, costs.start_bytes[kind, at]), max_bytes):
                mode = transfer_mode(costs.mode, costs.striping_threshold, kind, at, size)
                taken[kind, mode] = True
    return taken


@compiled()
def _find_root(parent: IntArray, i: Any) -> Any:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i
