"""The reference engine: every rank is a SimPy process and every transfer is traced.

Exact times matter: two engines must agree about which of two messages came first. SimPy computes
`now + delay`; `schedule_at` takes an absolute time instead, which avoids that rounding.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from heapq import heappush

import numpy as np
import simpy
from simpy.events import EventPriority

from tuner.base.arrays import FloatArray
from tuner.sim.maxmin import fair_rates
from tuner.sim.transfer_spans import TransferSpan
from tuner.sim.transfers import TransferTable

NORMAL_PRIORITY = 1  # SimPy's normal priority
SETTLE_PRIORITY = 2  # ports and rates are settled after all other events of an instant


def finish_times(transfers: TransferTable) -> FloatArray:
    """Return when each rank is done, in seconds, shape (p,); all ranks start at 0."""
    return _run(transfers)[0]


def trace(transfer_table: TransferTable) -> list[TransferSpan]:
    """Return the times of every transfer of the run, in (round, row) order."""
    transfers = _run(transfer_table)[1].transfers
    return [
        TransferSpan(
            int(transfer_table.src[t.number]),
            int(transfer_table.dst[t.number]),
            int(transfer_table.round[t.number]),
            float(transfer_table.nbytes[t.number]),
            t.started,
            t.finished,
            t.arrived,
            t.send_completed,
        )
        for t in transfers
    ]


def _run(transfers: TransferTable) -> tuple[FloatArray, SharedNetwork]:
    clock = SimulationClock()
    network = SharedNetwork(clock, transfers)
    done = np.zeros(transfers.p)
    for rank in range(transfers.p):
        clock.process(_run_rank(clock, network, transfers, rank, done))
    clock.run()
    return done, network


def _run_rank(
    clock: SimulationClock,
    network: SharedNetwork,
    transfers: TransferTable,
    rank: int,
    done: FloatArray,
) -> Generator[simpy.Event, None, None]:
    """Run the rounds of a rank: post transfers, copy, wait for them, reduce the arrivals."""
    for visit in range(transfers.visit_start[rank], transfers.visit_start[rank + 1]):
        posts = transfers.posts[transfers.post_start[visit] : transfers.post_start[visit + 1]]
        parts = [network.post(int(number), rank) for number in posts]
        yield clock.all_of([*parts, *_work_events(clock, transfers.copy_seconds[visit])])
        yield clock.all_of(_work_events(clock, transfers.reduction_seconds[visit]))
    done[rank] = clock.now


def _work_events(clock: SimulationClock, seconds: float) -> list[simpy.Event]:
    """Return the event that ends this many seconds of work; none for 0 seconds."""
    if seconds == 0.0:
        return []
    over = clock.event()
    clock.schedule_at(clock.now + float(seconds), over.succeed)
    return [over]


class SimulationClock(simpy.Environment):
    """A SimPy environment that can also schedule for absolute times."""

    def schedule_at(
        self, time: float, action: Callable[[], object], priority: int = NORMAL_PRIORITY
    ) -> None:
        """Call `action` at exactly `time`."""
        event = simpy.Event(self)
        event.callbacks.append(partial(_call, action))
        event._ok, event._value = True, None
        heappush(self._queue, (time, EventPriority(priority), next(self._eid), event))


def _call(action: Callable[[], object], _: simpy.Event) -> None:
    action()


@dataclass
class TransferState:
    """The state of one transfer, with times in seconds, infinite until known."""

    number: int
    sent: simpy.Event  # triggered when the sender's part is complete
    received: simpy.Event  # triggered when the receiver's part is complete
    send_posted: bool = False
    receive_posted: bool = False
    started: float = math.inf
    finished: float = math.inf
    arrived: float = math.inf
    send_completed: float = math.inf
    rate: float = 0.0
    bytes_left: float = 0.0  # bytes at `since`
    since: float = 0.0


class SharedNetwork:
    """The network: FIFO ports and links with max-min fair sharing.

    A FIFO message joins the queues of its sender's and its receiver's port when it is ready, and
    starts when it heads both. A shared message starts at once; the capacity of its ports is shared
    like that of a link.
    """

    def __init__(self, clock: SimulationClock, transfers: TransferTable) -> None:
        self.clock = clock
        self.traffic = transfers
        p, k = transfers.p, len(transfers.src)
        self.sending: list[deque[TransferState]] = [deque() for _ in range(2 * p)]
        self.receiving: list[deque[TransferState]] = [deque() for _ in range(2 * p)]
        self.transfers = [TransferState(i, clock.event(), clock.event()) for i in range(k)]
        ports = np.stack([transfers.send_port, transfers.recv_port + 2 * p], axis=1)
        links = transfers.links[transfers.path]
        self.resources = np.hstack([ports, np.where(links < 0, -1, links + 4 * p)])
        self.use = np.hstack(
            [transfers.beta[:, None] * transfers.port_share, transfers.load_factor[transfers.path]]
        )
        self.capacity = np.concatenate([np.ones(4 * p), transfers.capacity])
        self.ready: list[TransferState] = []
        self.flowing: dict[int, TransferState] = {}
        self.is_settling = self.is_dirty = False

    def post(self, number: int, rank: int) -> simpy.Event:
        """Post a rank's part of a transfer; return the event of its completion."""
        transfer, sender = self.transfers[number], rank == self.traffic.src[number]
        if sender:
            transfer.send_posted = True
        else:
            transfer.receive_posted = True
            if transfer.arrived <= self.clock.now:
                transfer.received.succeed()
                if self.traffic.waits_for_recv[number]:
                    self._acknowledge(transfer)
        both = transfer.send_posted and transfer.receive_posted
        if (sender and self.traffic.eager[number]) or (both and not self.traffic.eager[number]):
            self.ready.append(transfer)
            self._settle_soon()
        return transfer.sent if sender else transfer.received

    def _settle_soon(self) -> None:
        if not self.is_settling:
            self.is_settling = True
            self.clock.schedule_at(self.clock.now, self._settle, SETTLE_PRIORITY)

    def _settle(self) -> None:
        """Queue what became ready at this instant, start what can start, and update rates."""
        self.is_settling = False
        for transfer in sorted(self.ready, key=lambda t: t.number):
            if self.traffic.shared[transfer.number]:
                self._start(transfer)
            else:
                self.sending[self.traffic.send_port[transfer.number]].append(transfer)
                self.receiving[self.traffic.recv_port[transfer.number]].append(transfer)
        self.ready.clear()
        for queue in self.sending:
            if queue and queue[0].started == math.inf:
                head = queue[0]
                if self.receiving[self.traffic.recv_port[head.number]][0] is head:
                    self._start(head)
        if self.is_dirty:
            self._update_rates()

    def _start(self, transfer: TransferState) -> None:
        transfer.started = self.clock.now
        overhead = float(self.traffic.overhead[transfer.number])
        if overhead > 0.0:
            self.clock.schedule_at(transfer.started + overhead, partial(self._add_flow, transfer))
        else:
            self._add_flow(transfer)

    def _add_flow(self, transfer: TransferState) -> None:
        transfer.bytes_left = float(self.traffic.nbytes[transfer.number])
        transfer.since = self.clock.now
        self.flowing[transfer.number] = transfer
        self.is_dirty = True
        self._settle_soon()

    def _update_rates(self) -> None:
        """Compute new max-min rates; a flow whose rate stays is left alone."""
        self.is_dirty = False
        numbers = np.array(sorted(self.flowing), dtype=np.int64)
        rates = fair_rates(self.resources[numbers], self.use[numbers], self.capacity)
        now = self.clock.now
        for number, rate in zip(numbers.tolist(), rates.tolist(), strict=True):
            transfer = self.flowing[number]
            if rate != transfer.rate:
                if transfer.rate > 0.0:
                    transfer.bytes_left = max(
                        0.0, transfer.bytes_left - transfer.rate * (now - transfer.since)
                    )
                transfer.rate, transfer.since = rate, now
                transfer.finished = now + transfer.bytes_left / rate
                self.clock.schedule_at(
                    transfer.finished, partial(self._finish, transfer, transfer.finished)
                )

    def _finish(self, transfer: TransferState, due: float) -> None:
        if due != transfer.finished or transfer.number not in self.flowing:
            return  # its rate has changed since this was scheduled
        number = transfer.number
        del self.flowing[number]
        self.is_dirty = True
        if not self.traffic.shared[number]:
            self.sending[self.traffic.send_port[number]].popleft()
            self.receiving[self.traffic.recv_port[number]].popleft()
        if self.traffic.completion_delay[number] == -math.inf:
            self._complete_send(transfer)
        arrival = self.clock.now + float(self.traffic.alpha[number])
        self.clock.schedule_at(arrival, partial(self._arrive, transfer))
        self._settle_soon()

    def _arrive(self, transfer: TransferState) -> None:
        transfer.arrived = self.clock.now
        if transfer.receive_posted or not self.traffic.waits_for_recv[transfer.number]:
            self._acknowledge(transfer)
        if transfer.receive_posted:
            transfer.received.succeed()

    def _acknowledge(self, transfer: TransferState) -> None:
        """Complete the send after the delay, if the sender waits for the arrival."""
        seconds = float(self.traffic.completion_delay[transfer.number])
        if seconds >= 0.0:
            self.clock.schedule_at(self.clock.now + seconds, partial(self._complete_send, transfer))

    def _complete_send(self, transfer: TransferState) -> None:
        transfer.send_completed = self.clock.now
        transfer.sent.succeed()
