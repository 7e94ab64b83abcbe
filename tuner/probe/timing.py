"""Timing of something that several ranks do together (rank side).

Every sample starts at an instant that all ranks agreed on, and lasts until the last of them is
done: the caller of a collective waits for its own part, a program waits for the slowest. The ranks
are on one host and read one clock (CLOCK_MONOTONIC), so instants compare without correction; what
remains of skew is a rank that the scheduler held back, and that is part of the sample.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from tuner.probe.sampling import MOST, next_look, order, settled

WARM_UP = 2  # untimed repetitions: first use opens connections and touches pages
LEAD_TRIALS = 15
SLEEP = 0.005  # seconds between two looks of a rank that must stay quiet


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Arm:
    """One of the things compared: `call` is timed.

    Untimed: `before` and `after` right around it, `warm` ahead of the agreement on the start.
    """

    call: Callable[[], object]
    before: Callable[[], object] = _nothing
    after: Callable[[], object] = _nothing
    warm: Callable[[], object] = _nothing
    repeat: int = 1  # calls in one sample, for calls too short for the clock


class Stopwatch:
    """Times arms on the ranks of `comm`, which must not be a communicator under test.

    crowded     more ranks than cores: waiting ranks yield the core
    """

    def __init__(self, comm: MPI.Comm, crowded: bool) -> None:
        self._comm = comm
        self._crowded = crowded
        self._lead = 0.0

    def sample(
        self,
        arms: Sequence[Arm],
        *,
        target: float,
        seconds: float,
        seed: int,
        compete: bool = True,
    ) -> NDArray[np.float64]:
        """(repetitions, arms) seconds per call, the latest rank's.

        In each repetition every arm runs once, in random order, so a drift hits all alike. It ends
        when rank 0 finds the medians `settled`, or `seconds` spent.
        """
        for arm in arms:
            for _ in range(WARM_UP):
                self._once(arm)
        self._lead = self._agreed_lead(arms)
        rows: list[NDArray[np.float64]] = []
        deadline = time.monotonic() + seconds
        look, enough = next_look(0), False
        while not enough:
            row = np.zeros(len(arms) + 1)
            for number in order(seed, len(rows), len(arms)):
                row[number] = self._once(arms[number])
            if self._comm.rank == 0:
                spent = len(rows) + 1 >= MOST or time.monotonic() > deadline
                row[-1] = spent and len(rows) + 1 >= next_look(0)
                if len(rows) >= look:
                    look = next_look(len(rows))
                    row[-1] = row[-1] or settled(np.array(rows), target, compete)
            self._comm.Allreduce(MPI.IN_PLACE, row, MPI.MAX)
            rows.append(row[:-1])
            enough = bool(row[-1])
        return np.array(rows)

    def _once(self, arm: Arm) -> float:
        arm.warm()
        start = self._agree(self._lead)
        arm.before()
        while time.monotonic() < start:
            if self._crowded:
                os.sched_yield()
        for _ in range(arm.repeat):
            arm.call()
        end = time.monotonic()
        arm.after()
        return (end - start) / arm.repeat

    def _agree(self, lead: float) -> float:
        """An instant `lead` seconds after the last rank has come here."""
        instant = np.array([time.monotonic() + lead])
        self._comm.Allreduce(MPI.IN_PLACE, instant, MPI.MAX)
        return float(instant[0])

    def _agreed_lead(self, arms: Sequence[Arm]) -> float:
        """Long enough for every rank to have left the agreement and prepared any arm."""
        taken = []
        for trial in range(LEAD_TRIALS):
            begin = self._agree(0.0)
            arm = arms[trial % len(arms)]
            arm.before()
            arm.after()
            taken.append(time.monotonic() - begin)
        lead = np.array([2 * float(np.median(taken))])
        self._comm.Allreduce(MPI.IN_PLACE, lead, MPI.MAX)
        return float(lead[0])


def wait_quietly(world: MPI.Comm) -> None:
    """Meet all other ranks without using a core meanwhile."""
    request = world.Ibarrier()
    while not request.Test():
        time.sleep(SLEEP)
