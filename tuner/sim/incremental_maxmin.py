"""Max-min fair rates (`maxmin`) updated only for the flows that a change reaches."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.base.arrays import IntArray
from tuner.sim.active_flows import NO_INDEX, mark_dirty
from tuner.sim.heap import Heap, put
from tuner.sim.jit import njit_no_alloc
from tuner.sim.maxmin import RATE_TIE_FACTOR

MIN_FULL_FRACTION = 1.0 - 1e-9  # of its capacity, from which on a resource counts as full


@njit_no_alloc()
def update_rates(flows: Any, queue: Heap, first_item: int, now: float) -> None:
    """Update max-min rates after flows began or ended; a flow whose rate stays is left alone.

    Flows are coupled by full resources. So a change first reaches only flows that full resources
    connect to it; if their new rates fill another resource, the flows on that one are reached too,
    and the rates are computed again.
    """
    if flows.counts[0] == 0:
        return
    found = _find_affected(flows, flows.counts[2], False)
    while True:
        group = flows.affected[:found]
        shell_sort(group)
        _fill(flows, group)
        more = _find_affected(flows, found, True)
        if more == found:
            break
        found = more
    for i in range(found):
        _set_rate(flows, queue, first_item + flows.affected[i], flows.affected[i], now)
    for i in range(flows.counts[0]):
        flows.resource[flows.dirty[i]].full = _is_full(flows, flows.dirty[i])
    flows.counts[0] = flows.counts[2] = 0
    flows.counts[1] += 1


@njit_no_alloc(inline="always")
def _set_rate(flows: Any, queue: Heap, item: int, flow_index: int, now: float) -> None:
    flow = flows.flow[flow_index]
    if flow.new_rate != flow.rate:
        if flow.rate > 0.0:
            flow.bytes_left = max(0.0, flow.bytes_left - flow.rate * (now - flow.since))
        flow.rate, flow.since = flow.new_rate, now
        put(queue, item, now + flow.bytes_left / flow.rate)


@njit_no_alloc()
def _find_affected(flows: Any, found: int, again: bool) -> int:
    """Add the flows on dirty resources that are full, and those that they reach in turn.

    again       whether resources that the new rates fill count, too
    """
    at = 0
    while at < flows.counts[0]:
        number = flows.dirty[at]
        at += 1
        resource = flows.resource[number]
        opens = resource.opened != flows.counts[1]
        if opens and (resource.full or (again and _is_full(flows, number))):
            resource.opened = flows.counts[1]
            slot = resource.head
            while slot != NO_INDEX:
                found = _mark_affected(flows, flows.slot[slot].owner, found)
                slot = flows.slot[slot].next_slot
    return found


@njit_no_alloc(inline="always")
def _mark_affected(flows: Any, flow_index: int, found: int) -> int:
    """Add a flow to the affected ones and mark its resources dirty; return how many there are."""
    flow = flows.flow[flow_index]
    if flow.reached == flows.counts[1]:
        return found
    flow.reached = flows.counts[1]
    flows.affected[found] = flow_index
    for at in range(flow.first, flow.end):
        mark_dirty(flows, flows.slot[at].resource)
    return found + 1


@njit_no_alloc()
def _is_full(flows: Any, resource_index: int) -> bool:
    """Return whether the flows over a resource, at their newest rates, use up its capacity."""
    used, slot = 0.0, flows.resource[resource_index].head
    while slot != NO_INDEX:
        flow = flows.flow[flows.slot[slot].owner]
        used += (flow.new_rate if flow.reached == flows.counts[1] else flow.rate) * flows.slot[
            slot
        ].load_factor
        slot = flows.slot[slot].next_slot
    full: bool = used >= flows.resource[resource_index].capacity * MIN_FULL_FRACTION
    return full


@njit_no_alloc()
def shell_sort(numbers: IntArray) -> None:
    """Sort in place by D. Shell's method with gaps 1, 4, 13, 40, ... (Knuth, TAOCP 3, 5.2.1)."""
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


@njit_no_alloc()
def _fill(flows: Any, group: IntArray) -> None:
    """Apply progressive filling (see `maxmin`) to a group; other flows keep their rates."""
    for i in range(flows.counts[0]):
        resource = flows.resource[flows.dirty[i]]
        resource.free = resource.capacity
        if resource.opened != flows.counts[1]:
            resource.free -= _unaffected_load(flows, resource.head)
    count = len(group)
    growing = flows.growing[:count]
    for i in range(count):
        growing[i] = i
    while count > 0:
        flows.counts[3] += count
        _sum_demand(flows, group, growing[:count])
        lowest = np.inf
        for k in range(count):
            i = growing[k]
            flows.level[i] = _saturation_rate(flows, group[i])
            lowest = min(lowest, flows.level[i])
        count = _freeze(flows, group, growing, count, lowest * RATE_TIE_FACTOR)


@njit_no_alloc()
def _unaffected_load(flows: Any, first_slot: int) -> float:
    """Return how much of a resource the flows use that are not affected."""
    used = 0.0
    while first_slot != NO_INDEX:
        flow = flows.flow[flows.slot[first_slot].owner]
        if flow.reached != flows.counts[1]:
            used += flow.rate * flows.slot[first_slot].load_factor
        first_slot = flows.slot[first_slot].next_slot
    return used


@njit_no_alloc()
def _freeze(flows: Any, group: IntArray, growing: IntArray, count: int, level: float) -> int:
    """Freeze the flows that saturate up to this level; return how many others remain, in front."""
    kept = 0
    for k in range(count):
        i = growing[k]
        if flows.level[i] <= level:
            flows.flow[group[i]].new_rate = flows.level[i]
            for at in range(flows.flow[group[i]].first, flows.flow[group[i]].end):
                flows.resource[flows.slot[at].resource].free -= (
                    flows.level[i] * flows.slot[at].load_factor
                )
        else:
            growing[kept] = i
            kept += 1
    return kept


@njit_no_alloc()
def _sum_demand(flows: Any, group: IntArray, growing: IntArray) -> None:
    """Sum the units per second that each resource gives up when all growing flows gain 1 byte/s."""
    for i in growing:
        for at in range(flows.flow[group[i]].first, flows.flow[group[i]].end):
            flows.resource[flows.slot[at].resource].demand = 0.0
    for i in growing:
        for at in range(flows.flow[group[i]].first, flows.flow[group[i]].end):
            flows.resource[flows.slot[at].resource].demand += flows.slot[at].load_factor


@njit_no_alloc()
def _saturation_rate(flows: Any, flow_index: int) -> float:
    """Return the rate at which the first of a flow's resources is full."""
    level = flows.flow[flow_index].solo_rate
    for at in range(flows.flow[flow_index].first, flows.flow[flow_index].end):
        resource = flows.resource[flows.slot[at].resource]
        level = min(level, resource.free / resource.demand)
    return float(level)
