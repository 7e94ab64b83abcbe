"""The discrete-event engine: the semantics of `reference_engine`, compiled.

At each instant everything that is due happens first, then ports and rates are settled. Links for
which flows can never compete are left out of the sharing, and when a flow begins or ends, only
the rates of flows that share resources with it, directly or through others, are updated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuner.base.arrays import BoolArray, FloatArray, IntArray
from tuner.base.errors import LimitExceededError
from tuner.base.giving_up import go_on
from tuner.sim.active_flows import ActiveFlows, add_flow, empty_flows, remove_flow
from tuner.sim.contention import bottleneck_rates, contended_links
from tuner.sim.heap import Heap, empty_heap, pop, put
from tuner.sim.incremental_maxmin import shell_sort, update_rates
from tuner.sim.jit import njit_no_alloc
from tuner.sim.transfer_spans import TransferSpan
from tuner.sim.transfers import TransferTable

Records = NDArray[np.void]
NO_INDEX = -1
INSTANTS_PER_CHECK = 4096  # after which a run may be given up
MAX_RATE_UPDATES = 150_000_000  # rates computed for one call: some thirty seconds

# sides: how many of the two ranks have posted; received: whether the receiver has; arrival:
# infinite until known; joined: when it joined the queues of its ports; start: when it headed them;
# release: when it released them; send_completed: when its sender went on; next_at_...: the next
# transfer in the queue of the sender's or the receiver's port
TRANSFER_DTYPE = np.dtype(
    [
        ("alpha", "f8"),
        ("overhead", "f8"),
        ("arrival", "f8"),
        ("joined", "f8"),
        ("start", "f8"),
        ("release", "f8"),
        ("send_completed", "f8"),
        ("completion_delay", "f8"),
        ("src", "i4"),
        ("dst", "i4"),
        ("send_port", "i4"),
        ("recv_port", "i4"),
        ("next_at_sender", "i4"),
        ("next_at_receiver", "i4"),
        ("eager", "i1"),
        ("shared", "i1"),
        ("sides", "i1"),
        ("received", "i1"),
        ("started", "i1"),
        ("waits_for_recv", "i1"),
    ],
    align=True,
)
# the visit a rank is in, how many of its transfers are pending, when the last complete one was
# complete; when the rank is done
RANK_DTYPE = np.dtype(
    [("last", "f8"), ("done", "f8"), ("visit", "i8"), ("end", "i8"), ("pending", "i8")]
)
# first and last transfer in the queues of a port, in both directions
PORT_QUEUES_DTYPE = np.dtype(
    [("head_send", "i4"), ("tail_send", "i4"), ("head_receive", "i4"), ("tail_receive", "i4")]
)


class _EngineState(NamedTuple):
    """The event queue, transfers, ranks and ports, and what is to be settled at this instant.

    queue               item r: rank r enters its next visit; item p + i: transfer i begins to flow
                        or ends
    ready               transfers that became ready, counts[0] of them
    head_candidates     transfers that may have come to the head of a queue, counts[1] of them
    """

    queue: Heap
    transfer: Records
    rank: Records
    port: Records
    post_start: IntArray
    posts: IntArray
    copy_seconds: FloatArray
    reduction_seconds: FloatArray
    ready: IntArray
    head_candidates: IntArray
    counts: IntArray


@dataclass(frozen=True)
class FinalState:
    """The state at the end of a call, in seconds.

    finish_time     when each rank is done, shape (p,)
    port_free       when each receiving port is free, shape (2 p,)
    last_joined     when the last message joined the queue of each receiving port, shape (2 p,)
    busy_until      until when each resource carries bytes, shape (resources,)
    """

    finish_time: FloatArray
    port_free: FloatArray
    last_joined: FloatArray
    busy_until: FloatArray


def finish_times(transfers: TransferTable, longest: float = math.inf) -> FloatArray:
    """Return when each rank is done, in seconds, shape (p,); all ranks start at 0.

    All times are infinite where the call takes longer than `longest` seconds. Raises
    LimitExceededError for more than MAX_RATE_UPDATES.
    """
    end = _run_to_end(transfers, longest)
    return np.full(transfers.p, math.inf) if end.queue.size[0] > 0 else end.rank["done"].copy()


def final_state(transfers: TransferTable) -> FinalState:
    """Simulate the call and return its final state; all ranks start at 0."""
    agenda, p = _run_to_end(transfers), transfers.p
    release = agenda.transfer["release"]
    port_free = np.zeros(2 * p)
    joined = np.zeros(2 * p)
    busy = np.zeros(len(transfers.capacity) + 1)
    np.maximum.at(port_free, transfers.recv_port, release)
    np.maximum.at(joined, transfers.recv_port, agenda.transfer["joined"])
    last = np.zeros(len(transfers.links))
    np.maximum.at(last, transfers.path, release)
    np.maximum.at(busy, transfers.links, np.broadcast_to(last[:, None], transfers.links.shape))
    return FinalState(agenda.rank["done"].copy(), port_free, joined, busy[:-1])


def trace(transfers: TransferTable) -> list[TransferSpan]:
    """Return the times of every transfer of the run, in (round, row) order."""
    calls = _run_to_end(transfers).transfer
    columns = (
        transfers.src,
        transfers.dst,
        transfers.round,
        transfers.nbytes,
        calls["start"],
        calls["release"],
        calls["arrival"],
        calls["send_completed"],
    )
    return [TransferSpan(*row) for row in zip(*(one.tolist() for one in columns), strict=True)]


def _run_to_end(transfers: TransferTable, longest: float = math.inf) -> _EngineState:
    """Return the final state, or the one at `longest` seconds if the call takes longer."""
    p, k = transfers.p, len(transfers.src)
    call = np.zeros(k, TRANSFER_DTYPE)
    rank = np.zeros(p, RANK_DTYPE)
    port = np.zeros(2 * p, PORT_QUEUES_DTYPE)
    for name in (
        "alpha",
        "overhead",
        "completion_delay",
        "src",
        "dst",
        "send_port",
        "recv_port",
        "eager",
        "shared",
        "waits_for_recv",
    ):
        call[name] = getattr(transfers, name)
    call["arrival"] = np.inf
    call["next_at_sender"] = call["next_at_receiver"] = NO_INDEX
    port["head_send"] = port["head_receive"] = NO_INDEX
    rank["visit"], rank["end"] = transfers.visit_start[:-1] - 1, transfers.visit_start[1:]
    agenda = _EngineState(
        empty_heap(p + k),
        call,
        rank,
        port,
        transfers.post_start,
        transfers.posts,
        transfers.copy_seconds,
        transfers.reduction_seconds,
        np.empty(k, np.int64),
        np.empty(2 * k, np.int64),
        np.zeros(2, np.int64),
    )
    meeting = _contended_resources(transfers)
    flows = empty_flows(transfers, meeting, _solo_rates(transfers, meeting))
    for number in range(p):
        put(agenda.queue, number, 0.0)
    while _run(agenda, flows, MAX_RATE_UPDATES, longest):
        go_on()
    if flows.counts[3] > MAX_RATE_UPDATES:
        raise LimitExceededError(
            f"{k} transfers share links, and their rates change too often to be simulated: take"
            " fewer ranks, or an algorithm with fewer messages at once"
        )
    return agenda


def _contended_resources(transfers: TransferTable) -> BoolArray:
    rate = np.zeros(len(transfers.links))
    with np.errstate(divide="ignore"):
        port_seconds = transfers.beta * transfers.port_share.min(axis=1)
        np.maximum.at(rate, transfers.path, 1.0 / port_seconds)
    return contended_links(
        transfers.path_send_port,
        transfers.path_recv_port,
        transfers.links,
        transfers.load_factor,
        rate,
        transfers.capacity,
        shared=bool(transfers.shared.any()),
    )


def _solo_rates(transfers: TransferTable, contended: BoolArray) -> FloatArray:
    """Return the rate of each flow, bytes per second, if it has its path to itself, shape (k,).

    Ports bound it only if no message shares them.
    """
    capacity = np.where(contended, np.inf, transfers.capacity)
    narrow = bottleneck_rates(transfers.links, transfers.load_factor, capacity)[transfers.path]
    if transfers.shared.any():
        return narrow
    with np.errstate(divide="ignore"):
        rates: FloatArray = np.minimum(narrow, 1.0 / transfers.beta)
    return rates


@njit_no_alloc()
def _run(engine: Any, flows: ActiveFlows, max_rate_updates: int, longest: float) -> bool:
    """Advance the time by INSTANTS_PER_CHECK instants; return whether to go on.

    Return False when all is done, after too many rate updates, and beyond `longest` seconds.
    """
    queue, p = engine.queue, len(engine.rank)
    for _ in range(INSTANTS_PER_CHECK):
        if queue.size[0] == 0:
            return False
        now = queue.time[0]
        if now > longest:
            return False
        while queue.size[0] > 0 and queue.time[0] == now:
            item = pop(queue)
            if item < p:
                _enter_visit(engine, item, now)
            elif flows.flow[item - p].flowing:
                _finish(engine, flows, item - p, now)
            else:
                add_flow(flows, queue, item, item - p, now)
        _start_ready(engine, flows, now)
        update_rates(flows, queue, p, now)
        if flows.counts[3] > max_rate_updates:
            return False
    return True


@njit_no_alloc(inline="always")
def _enter_visit(engine: Any, number: int, now: float) -> None:
    """Let a rank enter its next visit and post all transfers of it."""
    rank = engine.rank[number]
    rank.visit += 1
    if rank.visit == rank.end:
        rank.done = now
        return
    first, last = engine.post_start[rank.visit], engine.post_start[rank.visit + 1]
    rank.pending, rank.last = last - first, now + engine.copy_seconds[rank.visit]
    if first == last:
        put(engine.queue, number, rank.last + engine.reduction_seconds[rank.visit])
    for at in range(first, last):
        call = engine.transfer[engine.posts[at]]
        call.sides += 1
        sends = call.src == number
        if (sends and call.eager) or (not call.eager and call.sides == 2):
            engine.ready[engine.counts[0]] = engine.posts[at]
            engine.counts[0] += 1
        if not sends:
            call.received = 1
            if call.arrival < np.inf:
                arrival = max(now, call.arrival)
                _complete_part(engine, number, arrival)
                if call.waits_for_recv:
                    call.send_completed = arrival + call.completion_delay
                    _complete_part(engine, call.src, call.send_completed)


@njit_no_alloc(inline="always")
def _complete_part(engine: Any, number: int, when: float) -> None:
    """Count a transfer of the rank's visit as complete.

    After the last one the next visit is put into the queue.
    """
    rank = engine.rank[number]
    rank.pending -= 1
    rank.last = max(rank.last, when)
    if rank.pending == 0:
        put(engine.queue, number, rank.last + engine.reduction_seconds[rank.visit])


@njit_no_alloc(inline="always")
def _start_ready(engine: Any, flows: ActiveFlows, now: float) -> None:
    """Queue what became ready at this instant, in row order, and start what heads both queues."""
    if engine.counts[0] > 1:
        shell_sort(engine.ready[: engine.counts[0]])
    for i in range(engine.counts[0]):
        number = engine.ready[i]
        if engine.transfer[number].shared:
            _start(engine, flows, number, now)
        else:
            engine.transfer[number].joined = now
            _enqueue(engine, number)
    engine.counts[0] = 0
    for i in range(engine.counts[1]):
        call = engine.transfer[engine.head_candidates[i]]
        first = engine.port[call.send_port].head_send == engine.head_candidates[i]
        if (
            first
            and engine.port[call.recv_port].head_receive == engine.head_candidates[i]
            and not call.started
        ):
            _start(engine, flows, engine.head_candidates[i], now)
    engine.counts[1] = 0


@njit_no_alloc(inline="always")
def _enqueue(engine: Any, number: int) -> None:
    """Append a transfer to the queues of the sender's and the receiver's port."""
    call = engine.transfer[number]
    sender, receiver = engine.port[call.send_port], engine.port[call.recv_port]
    if sender.head_send == NO_INDEX:
        sender.head_send = number
    else:
        engine.transfer[sender.tail_send].next_at_sender = number
    if receiver.head_receive == NO_INDEX:
        receiver.head_receive = number
    else:
        engine.transfer[receiver.tail_receive].next_at_receiver = number
    sender.tail_send = receiver.tail_receive = number
    _note_head(engine, number)


@njit_no_alloc(inline="always")
def _note_head(engine: Any, number: int) -> None:
    """Note that a transfer may have come to the head of both queues."""
    if number != NO_INDEX:
        engine.head_candidates[engine.counts[1]] = number
        engine.counts[1] += 1


@njit_no_alloc(inline="always")
def _start(engine: Any, flows: ActiveFlows, number: int, now: float) -> None:
    call = engine.transfer[number]
    call.started, call.start = 1, now
    item = len(engine.rank) + number
    if call.overhead > 0.0:
        put(engine.queue, item, now + call.overhead)
    else:
        add_flow(flows, engine.queue, item, number, now)


@njit_no_alloc(inline="always")
def _finish(engine: Any, flows: ActiveFlows, number: int, now: float) -> None:
    """Release the ports of a transfer; its last byte is still under way."""
    remove_flow(flows, number)
    call = engine.transfer[number]
    if not call.shared:
        sender, receiver = engine.port[call.send_port], engine.port[call.recv_port]
        sender.head_send, receiver.head_receive = call.next_at_sender, call.next_at_receiver
        _note_head(engine, sender.head_send)
        _note_head(engine, receiver.head_receive)
    call.release, call.arrival = now, now + call.alpha
    if call.received or not call.waits_for_recv:
        call.send_completed = max(now, call.arrival + call.completion_delay)
        _complete_part(engine, call.src, call.send_completed)
    if call.received:
        _complete_part(engine, call.dst, call.arrival)
