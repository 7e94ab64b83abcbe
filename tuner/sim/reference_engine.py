"""The reference engine: every rank is a SimPy process and every transfer is traced."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import simpy

from tuner.base.arrays import FloatArray
from tuner.sim.reference_links import SharedNetwork, SimulationClock
from tuner.sim.transfers import TransferTable


@dataclass(frozen=True)
class TransferSpan:
    """The times of one transfer, in seconds, as for a Gantt chart.

    started         both ports were free and both ranks ready
    released        the ports were free again
    arrived         the last byte had arrived
    send_completed  the sender went on
    """

    src: int
    dst: int
    round: int
    nbytes: float
    started: float
    released: float
    arrived: float
    send_completed: float


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
