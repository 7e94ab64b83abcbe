"""Flows on their way, and which of them share which resource; `resharing` gives them their rates.

A flow whose own ports and links nobody else uses goes at its lonely rate and is in no group.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuner.base.arrays import BoolArray, FloatArray, IntArray
from tuner.sim.heap import Heap, put
from tuner.sim.jit import compiled
from tuner.sim.transfers import Traffic

Records = NDArray[np.void]
NONE = -1

# A transfer on its way: bytes per second (`fresh`: as they are being shared out), bytes left at
# `since`; its slots are first .. end - 1.
FLOW = np.dtype(
    [
        ("nbytes", "f8"),
        ("lonely", "f8"),
        ("rate", "f8"),
        ("left", "f8"),
        ("since", "f8"),
        ("fresh", "f8"),
        ("first", "i4"),
        ("end", "i4"),
        ("reached", "i4"),
        ("flowing", "i4"),
    ]
)
# One use of a resource by a transfer, in units per byte; slots in use of a resource are a list.
SLOT = np.dtype(
    [("use", "f8"), ("resource", "i4"), ("owner", "i4"), ("following", "i4"), ("preceding", "i4")]
)
# Units per second, all in all and while rates are shared out; the first slot in use; whether all of
# it is in use.
RESOURCE = np.dtype(
    [
        ("capacity", "f8"),
        ("free", "f8"),
        ("demand", "f8"),
        ("head", "i4"),
        ("reached", "i4"),
        ("full", "i4"),
        ("opened", "i4"),
    ]
)


class Flows(NamedTuple):
    """Where the bytes are.

    touched         resources that a change reaches, counts[0] of them; counts[1]: the number of
                    this change; counts[2]: flows of the group that begin
    group, level    flows that a change reaches, and their new rates; `growing`: those without
                    one yet
    """

    flow: Records
    slot: Records
    resource: Records
    touched: IntArray
    group: IntArray
    growing: IntArray
    level: FloatArray
    counts: IntArray


def flows(traffic: Traffic, meeting: BoolArray, lonely: FloatArray) -> Flows:
    """No flow yet; the first 4 p resources are ports, which matter where messages share them."""
    p, k = traffic.p, len(traffic.src)
    meets = np.append(meeting, False)[traffic.links] & (traffic.use > 0.0)
    sides = 2 if traffic.shared.any() else 0
    ports = np.stack([traffic.out, traffic.back + 2 * p], axis=1)[:, :sides]
    flow = np.zeros(k, FLOW)
    flow["nbytes"], flow["lonely"] = traffic.nbytes, lonely
    slot = np.zeros(int(meets.sum(axis=1)[traffic.path].sum()) + sides * k, SLOT)
    links = np.where(meets, traffic.links + 4 * p, NONE)
    port_use = traffic.beta[:, None] * traffic.port_share
    _take_slots(flow, slot, ports, port_use, links, traffic.use, traffic.path)
    resource = np.zeros(4 * p + len(traffic.capacity), RESOURCE)
    resource["capacity"] = np.concatenate([np.ones(4 * p), traffic.capacity])
    resource["head"] = NONE
    return Flows(
        flow,
        slot,
        resource,
        np.empty(len(resource), np.int64),
        np.empty(k, np.int64),
        np.empty(k, np.int64),
        np.empty(k),
        np.array([0, 1, 0]),
    )


@compiled()
def _take_slots(
    flow: Records,
    slot: Records,
    ports: IntArray,
    port_use: FloatArray,
    links: IntArray,
    use: FloatArray,
    path: IntArray,
) -> None:
    """One for each resource that a transfer uses: its ports, if they are shared, and its links."""
    at = 0
    for i in range(len(flow)):
        flow[i].first = at
        for side in range(ports.shape[1]):
            if port_use[i, side] > 0.0:
                at = _take(slot, at, i, ports[i, side], port_use[i, side])
        for hop in range(links.shape[1]):
            if links[path[i], hop] >= 0:
                at = _take(slot, at, i, links[path[i], hop], use[path[i], hop])
        flow[i].end = at


@compiled(inline="always")
def _take(slot: Records, at: int, owner: int, resource: int, use: float) -> int:
    slot[at].owner, slot[at].resource, slot[at].use = owner, resource, use
    return at + 1


@compiled(inline="always")
def begin(f: Any, agenda: Heap, item: int, number: int, now: float) -> None:
    """A transfer begins to flow; `item` stands for its end on the agenda."""
    flow = f.flow[number]
    flow.flowing, flow.left, flow.since = 1, flow.nbytes, now
    if flow.first == flow.end:
        put(agenda, item, now + flow.nbytes / flow.lonely)
        return
    flow.reached = f.counts[1]
    f.group[f.counts[2]] = number
    f.counts[2] += 1
    for at in range(flow.first, flow.end):
        slot = f.slot[at]
        resource = f.resource[slot.resource]
        slot.following, slot.preceding = resource.head, NONE
        if resource.head != NONE:
            f.slot[resource.head].preceding = at
        resource.head = at
        touch(f, slot.resource)


@compiled(inline="always")
def end(f: Any, number: int) -> None:
    """A transfer has flowed."""
    flow = f.flow[number]
    flow.flowing = 0
    for at in range(flow.first, flow.end):
        slot = f.slot[at]
        if slot.preceding == NONE:
            f.resource[slot.resource].head = slot.following
        else:
            f.slot[slot.preceding].following = slot.following
        if slot.following != NONE:
            f.slot[slot.following].preceding = slot.preceding
        touch(f, slot.resource)


@compiled(inline="always")
def touch(f: Any, number: int) -> None:
    """Flows on a resource may get other rates."""
    resource = f.resource[number]
    if resource.reached != f.counts[1]:
        resource.reached = f.counts[1]
        f.touched[f.counts[0]] = number
        f.counts[0] += 1
