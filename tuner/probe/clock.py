"""A shared clock for ranks on several hosts (rank side).

Hosts have clocks of their own (CLOCK_MONOTONIC counts from the boot). Rank 0's is the shared one.
The offset of another is taken from messages there and back: a rank that asks at `before` and gets
the answer `then` at `after` is ahead of rank 0 by (before + after) / 2 - then, with an error of at
most half the round trip; the shortest of many round trips is used (F. Cristian, Probabilistic clock
synchronization, Distributed Computing 3, 1989). Two such readings some time apart give the drift.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

ROUND_TRIPS_PER_READING = 40  # round trips of one reading
READING_INTERVAL_S = 10.0  # seconds between readings, so that the drift shows
TAG = 7


@dataclass(frozen=True)
class ClockReading:
    """A reading of how far this clock is ahead of rank 0's: `offset` seconds at `local_time`."""

    local_time: float
    offset: float
    uncertainty: float


def clock_identity() -> str:
    """Return a text that is equal for processes that read the same clock.

    These have the same kernel, boot and time namespace.
    """
    boot = Path("/proc/sys/kernel/random/boot_id")
    namespace = Path("/proc/self/ns/time")
    booted = (
        boot.read_text(encoding="ascii").strip() if boot.is_file() else MPI.Get_processor_name()
    )
    return f"{booted} {namespace.readlink() if namespace.is_symlink() else ''}"


class SharedClock:
    """The shared clock of the ranks of `comm`, which only the clock may use from then on.

    read        function that returns this rank's clock in seconds
    name        equal for ranks whose `read` is the same clock
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        read: Callable[[], float] = time.monotonic,
        name: str | None = None,
    ) -> None:
        self._comm, self._read = comm, read
        names: list[str] = comm.allgather(clock_identity() if name is None else name)
        first = {text: names.index(text) for text in reversed(names)}
        self._leaders = sorted(first.values())
        self._leader = first[names[comm.rank]]
        self._group = comm.Split(self._leader, comm.rank)
        self._readings: list[ClockReading] = []
        self.measure()

    @property
    def is_single(self) -> bool:
        """Return whether all ranks read the same clock anyway."""
        return len(self._leaders) == 1

    def now(self) -> float:
        here = self._read()
        return here - self._offset(here)

    def measure(self) -> None:
        """Take a new reading of every clock; collective."""
        mine = ClockReading(self._read(), 0.0, 0.0)
        for leader in self._leaders[1:]:
            if self._comm.rank == leader:
                mine = self._measure_offset()
            elif self._comm.rank == 0:
                self._answer_offset_requests(leader)
        values = np.array([mine.local_time, mine.offset, mine.uncertainty])
        self._group.Bcast(values, 0)
        first = self._readings[:1]
        self._readings = [*first, ClockReading(*values.tolist())]

    def refresh(self) -> None:
        """Call `measure` when the last reading is old; collective, rank 0 decides."""
        old = (
            not self.is_single and self._read() - self._readings[-1].local_time > READING_INTERVAL_S
        )
        if not self.is_single and self._comm.bcast(old):
            self.measure()

    def describe(self) -> dict[str, Any]:
        """Return the source, offsets and uncertainty (s) of each rank's clock; collective."""
        last = self._readings[-1]
        rows = self._comm.allgather((last.offset, last.uncertainty, self._drift()))
        if self.is_single:
            return {
                "source": "CLOCK_MONOTONIC, one clock for all ranks",
                "offsets": [0.0] * len(rows),
                "uncertainty": 0.0,
            }
        return {
            "source": "CLOCK_MONOTONIC of each host, offsets by the shortest round trip",
            "offsets": [row[0] for row in rows],
            "uncertainty": max(row[1] for row in rows),
            "drift": [row[2] for row in rows],
        }

    def _offset(self, here: float) -> float:
        last = self._readings[-1]
        return last.offset + self._drift() * (here - last.local_time)

    def _drift(self) -> float:
        """Return the drift in seconds per second.

        It is 0 while two readings do not differ by more than their uncertainty.
        """
        first, last = self._readings[0], self._readings[-1]
        change = last.offset - first.offset
        if (
            abs(change) <= (first.uncertainty + last.uncertainty) / 2
            or last.local_time == first.local_time
        ):
            return 0.0
        return change / (last.local_time - first.local_time)

    def _measure_offset(self) -> ClockReading:
        best = ClockReading(0.0, 0.0, np.inf)
        then = np.zeros(1)
        for _ in range(ROUND_TRIPS_PER_READING):
            before = self._read()
            self._comm.Send(then, 0, TAG)
            self._comm.Recv(then, 0, TAG)
            after = self._read()
            half = (after - before) / 2
            if half < best.uncertainty:
                best = ClockReading(before + half, before + half - float(then[0]), half)
        return best

    def _answer_offset_requests(self, leader: int) -> None:
        then = np.zeros(1)
        for _ in range(ROUND_TRIPS_PER_READING):
            self._comm.Recv(then, leader, TAG)
            then[0] = self._read()
            self._comm.Send(then, leader, TAG)
