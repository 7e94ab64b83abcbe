"""The active flows and the resources they share; `incremental_maxmin` computes their rates.

A flow whose ports and links are used by no other flow runs at its solo rate and has no slots.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuner.base.arrays import BoolArray, FloatArray, Int32Array, IntArray
from tuner.sim.heap import Heap, put
from tuner.sim.jit import njit_no_alloc
from tuner.sim.transfers import TransferTable

Records = NDArray[np.void]
NO_INDEX = -1

# A transfer. Rates are in bytes per second (`new_rate` while they are being computed), `bytes_left`
# holds at time `since`, its slots are first .. end - 1, and `reached` is the number of the last
# change that affected it.
FLOW_DTYPE = np.dtype(
    [
        ("nbytes", "f8"),
        ("solo_rate", "f8"),
        ("rate", "f8"),
        ("bytes_left", "f8"),
        ("since", "f8"),
        ("new_rate", "f8"),
        ("first", "i4"),
        ("end", "i4"),
        ("reached", "i4"),
        ("flowing", "i4"),
    ]
)
# The use of a resource by a transfer, in units per byte; the active slots of a resource form a
# doubly linked list.
SLOT_DTYPE = np.dtype(
    [
        ("load_factor", "f8"),
        ("resource", "i4"),
        ("owner", "i4"),
        ("next_slot", "i4"),
        ("previous_slot", "i4"),
    ]
)
# `capacity` and `free` are in units per second, `free` and `demand` are scratch while rates are
# computed; `head` is the first active slot; `full` says whether the capacity is used up.
RESOURCE_DTYPE = np.dtype(
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


class ActiveFlows(NamedTuple):
    """Records of flows, slots and resources, and scratch space for updating rates.

    dirty           resources that a change reaches, counts[0] of them
    affected        flows that a change reaches; the first counts[2] of them have just begun
    growing, level  indices of affected flows whose rates still grow; rates at which flows saturate
    counts          counts[1] is the number of the present change, counts[3] how many rates have
                    been computed
    """

    flow: Records
    slot: Records
    resource: Records
    dirty: IntArray
    affected: IntArray
    growing: IntArray
    level: FloatArray
    counts: IntArray


def empty_flows(
    transfers: TransferTable, contended: BoolArray, solo_rate: FloatArray
) -> ActiveFlows:
    """Return the records with no flow active yet.

    Resources 0 .. 4 p - 1 are ports, which have slots only if messages share them.
    """
    p, k = transfers.p, len(transfers.src)
    meets = np.append(contended, False)[transfers.links] & (transfers.load_factor > 0.0)
    sides = 2 if transfers.shared.any() else 0
    ports = np.stack([transfers.send_port, transfers.recv_port + 2 * p], axis=1)[:, :sides]
    flow = np.zeros(k, FLOW_DTYPE)
    flow["nbytes"], flow["solo_rate"] = transfers.nbytes, solo_rate
    slot = np.zeros(int(meets.sum(axis=1)[transfers.path].sum()) + sides * k, SLOT_DTYPE)
    links = np.where(meets, transfers.links + 4 * p, NO_INDEX)
    port_use = transfers.beta[:, None] * transfers.port_share
    _fill_slots(flow, slot, ports, port_use, links, transfers.load_factor, transfers.path)
    resource = np.zeros(4 * p + len(transfers.capacity), RESOURCE_DTYPE)
    resource["capacity"] = np.concatenate([np.ones(4 * p), transfers.capacity])
    resource["head"] = NO_INDEX
    return ActiveFlows(
        flow,
        slot,
        resource,
        np.empty(len(resource), np.int64),
        np.empty(k, np.int64),
        np.empty(k, np.int64),
        np.empty(k),
        np.array([0, 1, 0, 0]),
    )


@njit_no_alloc()
def _fill_slots(
    flow: Records,
    slot: Records,
    ports: Int32Array,
    port_use: FloatArray,
    links: Int32Array,
    load_factor: FloatArray,
    path: IntArray,
) -> None:
    """Fill in a slot for each resource that a transfer uses: shared ports and contended links."""
    at = 0
    for i in range(len(flow)):
        flow[i].first = at
        for side in range(ports.shape[1]):
            if port_use[i, side] > 0.0:
                at = _fill_slot(slot, at, i, ports[i, side], port_use[i, side])
        for hop in range(links.shape[1]):
            if links[path[i], hop] >= 0:
                at = _fill_slot(slot, at, i, links[path[i], hop], load_factor[path[i], hop])
        flow[i].end = at


@njit_no_alloc(inline="always")
def _fill_slot(slot: Records, at: int, owner: int, resource: int, load_factor: float) -> int:
    slot[at].owner, slot[at].resource, slot[at].load_factor = owner, resource, load_factor
    return at + 1


@njit_no_alloc(inline="always")
def add_flow(flows: Any, queue: Heap, item: int, flow_index: int, now: float) -> None:
    """Let a transfer begin to flow; `item` is the queue's item for its end."""
    flow = flows.flow[flow_index]
    flow.flowing, flow.bytes_left, flow.since = 1, flow.nbytes, now
    if flow.first == flow.end:
        put(queue, item, now + flow.nbytes / flow.solo_rate)
        return
    flow.reached = flows.counts[1]
    flows.affected[flows.counts[2]] = flow_index
    flows.counts[2] += 1
    for at in range(flow.first, flow.end):
        slot = flows.slot[at]
        resource = flows.resource[slot.resource]
        slot.next_slot, slot.previous_slot = resource.head, NO_INDEX
        if resource.head != NO_INDEX:
            flows.slot[resource.head].previous_slot = at
        resource.head = at
        mark_dirty(flows, slot.resource)


@njit_no_alloc(inline="always")
def remove_flow(flows: Any, flow_index: int) -> None:
    """Take a transfer that has flowed out of the lists of its resources."""
    flow = flows.flow[flow_index]
    flow.flowing = 0
    for at in range(flow.first, flow.end):
        slot = flows.slot[at]
        if slot.previous_slot == NO_INDEX:
            flows.resource[slot.resource].head = slot.next_slot
        else:
            flows.slot[slot.previous_slot].next_slot = slot.next_slot
        if slot.next_slot != NO_INDEX:
            flows.slot[slot.next_slot].previous_slot = slot.previous_slot
        mark_dirty(flows, slot.resource)


@njit_no_alloc(inline="always")
def mark_dirty(flows: Any, resource_index: int) -> None:
    """Note that flows on this resource may get other rates."""
    resource = flows.resource[resource_index]
    if resource.reached != flows.counts[1]:
        resource.reached = flows.counts[1]
        flows.dirty[flows.counts[0]] = resource_index
        flows.counts[0] += 1
