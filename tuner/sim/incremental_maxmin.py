"""New rates where flows begin or end: `fair_rates`, for the flows that a change reaches."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.base.arrays import IntArray
from tuner.sim.active_flows import NONE, touch
from tuner.sim.heap import Heap, put
from tuner.sim.jit import compiled
from tuner.sim.maxmin import TOGETHER

ALMOST = 1.0 - 1e-9  # of its capacity: a resource is full


@compiled()
def share(f: Any, agenda: Heap, first_item: int, now: float) -> None:
    """New max-min rates where something changed; a flow whose rate stays is left alone.

    Flows are coupled by resources that are full. So a change first reaches only flows that it is
    joined to by full ones; when their new rates fill another resource, the flows on that one are
    reached too, and rates are shared out again.
    """
    if f.counts[0] == 0:
        return
    found = _reach(f, f.counts[2], False)
    while True:
        group = f.group[:found]
        ascend(group)
        _fill(f, group)
        more = _reach(f, found, True)
        if more == found:
            break
        found = more
    for i in range(found):
        _set_rate(f, agenda, first_item + f.group[i], f.group[i], now)
    for i in range(f.counts[0]):
        f.resource[f.touched[i]].full = _is_full(f, f.touched[i])
    f.counts[0] = f.counts[2] = 0
    f.counts[1] += 1


@compiled(inline="always")
def _set_rate(f: Any, agenda: Heap, item: int, number: int, now: float) -> None:
    flow = f.flow[number]
    if flow.fresh != flow.rate:
        if flow.rate > 0.0:
            flow.left = max(0.0, flow.left - flow.rate * (now - flow.since))
        flow.rate, flow.since = flow.fresh, now
        put(agenda, item, now + flow.left / flow.rate)


@compiled()
def _reach(f: Any, found: int, again: bool) -> int:
    """Add the flows on touched resources that are full, or have become so, and so on."""
    at = 0
    while at < f.counts[0]:
        number = f.touched[at]
        at += 1
        resource = f.resource[number]
        opens = resource.opened != f.counts[1]
        if opens and (resource.full or (again and _is_full(f, number))):
            resource.opened = f.counts[1]
            slot = resource.head
            while slot != NONE:
                found = _include(f, f.slot[slot].owner, found)
                slot = f.slot[slot].following
    return found


@compiled(inline="always")
def _include(f: Any, number: int, found: int) -> int:
    """The flow is reached, and so are its resources."""
    flow = f.flow[number]
    if flow.reached == f.counts[1]:
        return found
    flow.reached = f.counts[1]
    f.group[found] = number
    for at in range(flow.first, flow.end):
        touch(f, f.slot[at].resource)
    return found + 1


@compiled()
def _is_full(f: Any, number: int) -> bool:
    """Whether what flows over a resource, at the newest rates, fills it."""
    used, slot = 0.0, f.resource[number].head
    while slot != NONE:
        flow = f.flow[f.slot[slot].owner]
        used += (flow.fresh if flow.reached == f.counts[1] else flow.rate) * f.slot[slot].use
        slot = f.slot[slot].following
    full: bool = used >= f.resource[number].capacity * ALMOST
    return full


@compiled()
def ascend(numbers: IntArray) -> None:
    """Sort in place: D. Shell's method with gaps 1, 4, 13, 40, ... (Knuth, TAOCP 3, 5.2.1)."""
    gap = 1
    while gap < len(numbers):
        gap = 3 * gap + 1
    while gap > 1:
        gap //= 3
        for i in range(gap, len(numbers)):
            one, at = numbers[i], i
            while at >= gap and numbers[at - gap] > one:
                numbers[at] = numbers[at - gap]
                at -= gap
            numbers[at] = one


@compiled()
def _fill(f: Any, group: IntArray) -> None:
    """Progressive filling (see `sharing`) for a group, in its order; others keep their rates."""
    for i in range(f.counts[0]):
        resource = f.resource[f.touched[i]]
        resource.free = resource.capacity
        if resource.opened != f.counts[1]:
            resource.free -= _others(f, resource.head)
    count = len(group)
    growing = f.growing[:count]
    for i in range(count):
        growing[i] = i
    while count > 0:
        _add_up(f, group, growing[:count])
        lowest = np.inf
        for k in range(count):
            i = growing[k]
            f.level[i] = _level(f, group[i])
            lowest = min(lowest, f.level[i])
        count = _freeze(f, group, growing, count, lowest * TOGETHER)


@compiled()
def _others(f: Any, slot: int) -> float:
    """What flows that are not reached use of a resource."""
    used = 0.0
    while slot != NONE:
        flow = f.flow[f.slot[slot].owner]
        if flow.reached != f.counts[1]:
            used += flow.rate * f.slot[slot].use
        slot = f.slot[slot].following
    return used


@compiled()
def _freeze(f: Any, group: IntArray, growing: IntArray, count: int, level: float) -> int:
    """Flows up to this level have their rate; the others are left in front, and counted."""
    kept = 0
    for k in range(count):
        i = growing[k]
        if f.level[i] <= level:
            f.flow[group[i]].fresh = f.level[i]
            for at in range(f.flow[group[i]].first, f.flow[group[i]].end):
                f.resource[f.slot[at].resource].free -= f.level[i] * f.slot[at].use
        else:
            growing[kept] = i
            kept += 1
    return kept


@compiled()
def _add_up(f: Any, group: IntArray, growing: IntArray) -> None:
    """Units per second that each resource gives up when all growing flows gain 1 byte/s."""
    for i in growing:
        for at in range(f.flow[group[i]].first, f.flow[group[i]].end):
            f.resource[f.slot[at].resource].demand = 0.0
    for i in growing:
        for at in range(f.flow[group[i]].first, f.flow[group[i]].end):
            f.resource[f.slot[at].resource].demand += f.slot[at].use


@compiled()
def _level(f: Any, number: int) -> float:
    """The rate at which the first of a flow's resources is full."""
    level = f.flow[number].lonely
    for at in range(f.flow[number].first, f.flow[number].end):
        resource = f.resource[f.slot[at].resource]
        level = min(level, resource.free / resource.demand)
    return float(level)
