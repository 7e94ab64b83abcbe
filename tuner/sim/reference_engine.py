"""The reference engine: every rank a SimPy process, every transfer traced. Readable and exact."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import simpy

from tuner.base.arrays import FloatArray
from tuner.sim.reference_links import Clock, Network
from tuner.sim.transfers import Traffic


@dataclass(frozen=True)
class Bar:
    """One transfer in a Gantt chart; times in seconds.

    started     both ports were free and both ranks ready
    released    the ports were free again
    arrived     the last byte was there
    heard       the sender went on
    """

    src: int
    dst: int
    round: int
    nbytes: float
    started: float
    released: float
    arrived: float
    heard: float


def finish_times(traffic: Traffic) -> FloatArray:
    """When each rank is done, in seconds, shape (p,); all ranks start at 0."""
    return _play(traffic)[0]


def trace(traffic: Traffic) -> list[Bar]:
    """Every transfer of the run, in (round, row) order."""
    transfers = _play(traffic)[1].transfers
    return [
        Bar(
            int(traffic.src[t.number]),
            int(traffic.dst[t.number]),
            int(traffic.round[t.number]),
            float(traffic.nbytes[t.number]),
            t.started,
            t.finished,
            t.arrived,
            t.heard,
        )
        for t in transfers
    ]


def _play(traffic: Traffic) -> tuple[FloatArray, Network]:
    clock = Clock()
    network = Network(clock, traffic)
    done = np.zeros(traffic.p)
    for rank in range(traffic.p):
        clock.process(_rank(clock, network, traffic, rank, done))
    clock.run()
    return done, network


def _rank(
    clock: Clock, network: Network, traffic: Traffic, rank: int, done: FloatArray
) -> Generator[simpy.Event, None, None]:
    """Post everything of a round, copy, wait for all of it, fold the arrivals, go on."""
    for visit in range(traffic.visit_start[rank], traffic.visit_start[rank + 1]):
        posts = traffic.posts[traffic.post_start[visit] : traffic.post_start[visit + 1]]
        parts = [network.post(int(number), rank) for number in posts]
        yield clock.all_of([*parts, *_after(clock, traffic.copying[visit])])
        yield clock.all_of(_after(clock, traffic.folding[visit]))
    done[rank] = clock.now


def _after(clock: Clock, seconds: float) -> list[simpy.Event]:
    """The end of work of that many seconds; nothing to wait for without work."""
    if seconds == 0.0:
        return []
    over = clock.event()
    clock.at(clock.now + float(seconds), over.succeed)
    return [over]
