"""The semantics of `events`, compiled: an agenda of what happens when, played in order of time.

At each instant first everything happens that is due, then ports and rates are settled. Links on
which flows can never compete are left out of the sharing, and when a flow begins or ends, rates are
shared out afresh only among the flows that it meets, directly or through others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuner.base.arrays import BoolArray, FloatArray, IntArray
from tuner.sim.active_flows import Flows, begin, end, flows
from tuner.sim.contention import meeting_links, narrowest
from tuner.sim.heap import Heap, empty_heap, pop, put
from tuner.sim.incremental_maxmin import ascend, share
from tuner.sim.jit import compiled
from tuner.sim.transfers import Traffic

Records = NDArray[np.void]
NONE = -1

# sides: how many of the two ranks have posted; received: the receiver has; arrival: infinite while
# it is not known; joined: when it came to its ports; release: when it had passed them;
# behind_...: the next transfer in the queue of the sender's, the receiver's port
CALL = np.dtype(
    [
        ("alpha", "f8"),
        ("overhead", "f8"),
        ("arrival", "f8"),
        ("joined", "f8"),
        ("release", "f8"),
        ("acknowledgement", "f8"),
        ("src", "i4"),
        ("dst", "i4"),
        ("out", "i4"),
        ("back", "i4"),
        ("behind_send", "i4"),
        ("behind_receive", "i4"),
        ("eager", "i1"),
        ("shared", "i1"),
        ("sides", "i1"),
        ("received", "i1"),
        ("started", "i1"),
        ("awaited", "i1"),
    ],
    align=True,
)
# the visit a rank is in, how many of its parts are not complete, when the last complete one was;
# when all is done
RANK = np.dtype([("last", "f8"), ("done", "f8"), ("visit", "i8"), ("end", "i8"), ("pending", "i8")])
# the queues of a port in both directions
PORT = np.dtype(
    [("head_send", "i4"), ("tail_send", "i4"), ("head_receive", "i4"), ("tail_receive", "i4")]
)


class _Agenda(NamedTuple):
    """What is to come, and what waits for the end of this instant.

    queue       item r: rank r enters its next visit; item p + i: transfer i begins to flow, or ends
    ready       transfers that became ready, counts[0] of them
    heads       transfers that may have come to the head of a queue, counts[1] of them
    """

    queue: Heap
    call: Records
    rank: Records
    port: Records
    post_start: IntArray
    posts: IntArray
    copying: FloatArray
    folding: FloatArray
    ready: IntArray
    heads: IntArray
    counts: IntArray


@dataclass(frozen=True)
class Outcome:
    """How a call ended; seconds.

    time        when each rank is done, shape (p,)
    port_free   when each receiving port is free, shape (2 p,)
    joined      when the last message came to each receiving port, shape (2 p,)
    busy        until when each resource carries bytes, shape (resources,)
    """

    time: FloatArray
    port_free: FloatArray
    joined: FloatArray
    busy: FloatArray


def finish_times(traffic: Traffic) -> FloatArray:
    """When each rank is done, in seconds, shape (p,); all ranks start at 0."""
    return _played(traffic).rank["done"].copy()


def outcome(traffic: Traffic) -> Outcome:
    """Play it; all ranks start at 0."""
    agenda, p = _played(traffic), traffic.p
    release = agenda.call["release"]
    port_free, joined, busy = np.zeros(2 * p), np.zeros(2 * p), np.zeros(len(traffic.capacity) + 1)
    np.maximum.at(port_free, traffic.back, release)
    np.maximum.at(joined, traffic.back, agenda.call["joined"])
    last = np.zeros(len(traffic.links))
    np.maximum.at(last, traffic.path, release)
    np.maximum.at(busy, traffic.links, np.broadcast_to(last[:, None], traffic.links.shape))
    return Outcome(agenda.rank["done"].copy(), port_free, joined, busy[:-1])


def _played(traffic: Traffic) -> _Agenda:
    p, k = traffic.p, len(traffic.src)
    call, rank, port = np.zeros(k, CALL), np.zeros(p, RANK), np.zeros(2 * p, PORT)
    for name in (
        "alpha",
        "overhead",
        "acknowledgement",
        "src",
        "dst",
        "out",
        "back",
        "eager",
        "shared",
        "awaited",
    ):
        call[name] = getattr(traffic, name)
    call["arrival"] = np.inf
    call["behind_send"] = call["behind_receive"] = NONE
    port["head_send"] = port["head_receive"] = NONE
    rank["visit"], rank["end"] = traffic.visit_start[:-1] - 1, traffic.visit_start[1:]
    agenda = _Agenda(
        empty_heap(p + k),
        call,
        rank,
        port,
        traffic.post_start,
        traffic.posts,
        traffic.copying,
        traffic.folding,
        np.empty(k, np.int64),
        np.empty(2 * k, np.int64),
        np.zeros(2, np.int64),
    )
    meeting = _meeting(traffic)
    _play(agenda, flows(traffic, meeting, _lonely(traffic, meeting)))
    return agenda


def _meeting(traffic: Traffic) -> BoolArray:
    """Resources for which flows compete."""
    if (traffic.port_share < 1.0).any():
        return np.isfinite(traffic.capacity)
    rate = np.zeros(len(traffic.links))
    with np.errstate(divide="ignore"):
        np.maximum.at(rate, traffic.path, 1.0 / traffic.beta)
    return meeting_links(
        traffic.path_out,
        traffic.path_back,
        traffic.links,
        traffic.use,
        rate,
        traffic.capacity,
        shared=bool(traffic.shared.any()),
    )


def _lonely(traffic: Traffic, meeting: BoolArray) -> FloatArray:
    """Bytes per second of a flow that meets no other, shape (k,); with its ports unless shared."""
    capacity = np.where(meeting, np.inf, traffic.capacity)
    narrow = narrowest(traffic.links, traffic.use, capacity)[traffic.path]
    if traffic.shared.any():
        return narrow
    with np.errstate(divide="ignore"):
        rates: FloatArray = np.minimum(narrow, 1.0 / traffic.beta)
    return rates


@compiled()
def _play(agenda: Any, f: Flows) -> None:
    queue, p = agenda.queue, len(agenda.rank)
    for rank in range(p):
        put(queue, rank, 0.0)
    while queue.size[0] > 0:
        now = queue.time[0]
        while queue.size[0] > 0 and queue.time[0] == now:
            item = pop(queue)
            if item < p:
                _enter(agenda, item, now)
            elif f.flow[item - p].flowing:
                _finish(agenda, f, item - p, now)
            else:
                begin(f, queue, item, item - p, now)
        _settle(agenda, f, now)
        share(f, queue, p, now)


@compiled(inline="always")
def _enter(agenda: Any, number: int, now: float) -> None:
    """The rank's last visit is over: post everything of the next one."""
    rank = agenda.rank[number]
    rank.visit += 1
    if rank.visit == rank.end:
        rank.done = now
        return
    first, last = agenda.post_start[rank.visit], agenda.post_start[rank.visit + 1]
    rank.pending, rank.last = last - first, now + agenda.copying[rank.visit]
    if first == last:
        put(agenda.queue, number, rank.last + agenda.folding[rank.visit])
    for at in range(first, last):
        call = agenda.call[agenda.posts[at]]
        call.sides += 1
        sends = call.src == number
        if (sends and call.eager) or (not call.eager and call.sides == 2):
            agenda.ready[agenda.counts[0]] = agenda.posts[at]
            agenda.counts[0] += 1
        if not sends:
            call.received = 1
            if call.arrival < np.inf:
                arrival = max(now, call.arrival)
                _complete(agenda, number, arrival)
                if call.awaited:
                    _complete(agenda, call.src, arrival + call.acknowledgement)


@compiled(inline="always")
def _complete(agenda: Any, number: int, when: float) -> None:
    """One part of the rank's visit is complete; after the last one it folds, then goes on."""
    rank = agenda.rank[number]
    rank.pending -= 1
    rank.last = max(rank.last, when)
    if rank.pending == 0:
        put(agenda.queue, number, rank.last + agenda.folding[rank.visit])


@compiled(inline="always")
def _settle(agenda: Any, f: Flows, now: float) -> None:
    """Admit what became ready at this instant, in row order, and start what heads both queues."""
    if agenda.counts[0] > 1:
        ascend(agenda.ready[: agenda.counts[0]])
    for i in range(agenda.counts[0]):
        number = agenda.ready[i]
        if agenda.call[number].shared:
            _start(agenda, f, number, now)
        else:
            agenda.call[number].joined = now
            _queue_up(agenda, number)
    agenda.counts[0] = 0
    for i in range(agenda.counts[1]):
        call = agenda.call[agenda.heads[i]]
        first = agenda.port[call.out].head_send == agenda.heads[i]
        if first and agenda.port[call.back].head_receive == agenda.heads[i] and not call.started:
            _start(agenda, f, agenda.heads[i], now)
    agenda.counts[1] = 0


@compiled(inline="always")
def _queue_up(agenda: Any, number: int) -> None:
    """Behind all others at the sender's and at the receiver's port."""
    call = agenda.call[number]
    sender, receiver = agenda.port[call.out], agenda.port[call.back]
    if sender.head_send == NONE:
        sender.head_send = number
    else:
        agenda.call[sender.tail_send].behind_send = number
    if receiver.head_receive == NONE:
        receiver.head_receive = number
    else:
        agenda.call[receiver.tail_receive].behind_receive = number
    sender.tail_send = receiver.tail_receive = number
    _look(agenda, number)


@compiled(inline="always")
def _look(agenda: Any, number: int) -> None:
    """It may have come to the head of both queues."""
    if number != NONE:
        agenda.heads[agenda.counts[1]] = number
        agenda.counts[1] += 1


@compiled(inline="always")
def _start(agenda: Any, f: Flows, number: int, now: float) -> None:
    call = agenda.call[number]
    call.started = 1
    item = len(agenda.rank) + number
    if call.overhead > 0.0:
        put(agenda.queue, item, now + call.overhead)
    else:
        begin(f, agenda.queue, item, number, now)


@compiled(inline="always")
def _finish(agenda: Any, f: Flows, number: int, now: float) -> None:
    """The ports are free again; the last byte is still on its way."""
    end(f, number)
    call = agenda.call[number]
    if not call.shared:
        sender, receiver = agenda.port[call.out], agenda.port[call.back]
        sender.head_send, receiver.head_receive = call.behind_send, call.behind_receive
        _look(agenda, sender.head_send)
        _look(agenda, receiver.head_receive)
    call.release, call.arrival = now, now + call.alpha
    if call.received or not call.awaited:
        _complete(agenda, call.src, max(now, call.arrival + call.acknowledgement))
    if call.received:
        _complete(agenda, call.dst, call.arrival)
