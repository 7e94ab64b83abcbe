"""Timing of something that several ranks do together (rank side).

Every sample starts at an instant that all ranks agreed on, and lasts until the last of them is
done: the caller of a collective waits for its own part, a program waits for the slowest. On one
host the ranks read one clock; on several, instants are converted by the measured offsets of their
clocks (`clock.py`). What remains of skew is a rank that the scheduler held back, and that is part
of the sample: how late the latest began is kept beside it.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np
from mpi4py import MPI

from tuner.base.arrays import FloatArray
from tuner.probe.clock import Clock
from tuner.probe.probe_plan import FEWEST, WARM_UP
from tuner.probe.sampling import MOST, next_look, order, settled

LEAD_CALLS = 15  # at least show whether ranks of several hosts are ready in time,
LEAD_SECONDS = 0.05  # unless fewer already take so long
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
    clock       the shared time of ranks on several hosts; None: they are on one and read one clock
    alive       called ahead of every sample, for who watches over the ranks
    end         of everything, seconds as time.monotonic on rank 0 shows them
    """

    def __init__(
        self,
        comm: MPI.Comm,
        crowded: bool,
        clock: Clock | None = None,
        alive: Callable[[], object] = _nothing,
        end: float = math.inf,
    ) -> None:
        self._comm = comm
        self._alive, self._end = alive, end
        self._crowded = crowded
        self._now = time.monotonic if clock is None else clock.now
        self._clock = clock
        self._lead = 0.0
        self.spread = np.zeros(0)  # seconds by which the latest rank began late, per sample

    def sample(
        self,
        arms: Sequence[Arm],
        *,
        target: float,
        seconds: float,
        seed: int,
        compete: bool = True,
        fewest: int = FEWEST,
    ) -> FloatArray:
        """(repetitions, arms) seconds per call, the latest rank's.

        In each repetition every arm runs once, in random order, so a drift hits all alike. It ends
        when rank 0 finds the medians `settled`, or `seconds` spent; with fewer than `fewest`
        repetitions if so many would not fit before the end of everything.
        """
        lap = self._warm_up(arms)
        if lap is None:
            return np.zeros((0, len(arms)))
        done, rows = np.zeros((0, 2, len(arms))), list[FloatArray]()
        begin = time.monotonic()
        look, enough = next_look(0, fewest), False
        while True:
            count = len(done) + len(rows)
            passed = time.monotonic() - begin
            spent = count >= MOST or passed > seconds
            needed = max(fewest - count, 0) * (passed / count if count else lap)
            row = np.zeros((2, len(arms)))
            ended = False
            for place, number in enumerate(order(seed, count, len(arms))):
                over = place == 0 and (enough or (spent and count >= fewest))
                stop = over or self._late(needed if place == 0 else 0.0)
                sample = self._once(arms[number], stop)
                if sample is None:
                    ended = True
                    break
                row[:, number] = sample[:2]
            self._leave_cores()
            if not ended:
                rows.append(row)
            if ended or count + 1 >= look:
                done, rows = np.concatenate([done, self._latest(rows, len(arms))]), []
                look = next_look(len(done), fewest)
                enough = settled(done[:, 0], target, compete, fewest)
            if ended:
                self.spread = done[:, 1].ravel()
                return done[:, 0].copy()

    def fitting(self, arms: Sequence[Arm], seconds: float, fewest: int = FEWEST) -> int:
        """How many of the arms, from the first on, could have `fewest` repetitions in so many
        seconds, as rank 0 finds. The faster of two calls of each tells: the first one may open
        connections.
        """
        lap = 0.0
        for count, arm in enumerate(arms):
            lap += min(self._spent_once(arm) for _ in range(2))
            if self._agree(0.0, stop=(WARM_UP + fewest) * lap > seconds) is None:
                return count
        return len(arms)

    def _spent_once(self, arm: Arm) -> float:
        """Seconds of a call with all that is done around it."""
        begin = time.monotonic()
        self._once(arm)
        return time.monotonic() - begin

    def _leave_cores(self) -> None:
        """Wait for the other ranks. One that is done early and went on to its books would hold up
        those which share its core and are not: the last arm alone would look twice as slow.
        """
        if self._crowded:
            self._comm.Barrier()

    def _warm_up(self, arms: Sequence[Arm]) -> float | None:
        """Seconds of a repetition, roughly; None if it is too late for as much as that.

        The calls begin as soon as all are there, and show how long ranks then take to be ready.
        """
        self._lead, late = 0.0, list[float]()
        begin = time.monotonic()
        for arm in arms:
            for turn in range(WARM_UP):
                sample = self._once(arm, self._late())
                if sample is None:
                    return None
                late += [sample[2]] * (turn > 0)
        lap = (time.monotonic() - begin) / WARM_UP
        self._lengthen_lead(late)
        if self._clock is not None:
            self._try_lead(arms)
        return lap

    def _try_lead(self, arms: Sequence[Arm]) -> None:
        """Some calls more, which show whether the lead suffices among hosts.

        It may not: right after a call the library may still have messages to finish, on which
        others wait, and a rank that waits for the start does not look after them.
        """
        end, late = time.monotonic() + LEAD_SECONDS, list[float]()
        for arm in islice(cycle(arms), max(LEAD_CALLS, len(arms))):
            sample = self._once(arm, self._late() or time.monotonic() > end)
            if sample is None:
                break
            late.append(sample[2])
        self._lengthen_lead(late)

    def _lengthen_lead(self, late: Sequence[float]) -> None:
        """By twice what the rank is late that usually is ready last; not if it is in time."""
        more = np.array([2 * max(float(np.median(late)), 0.0) if late else 0.0])
        self._comm.Allreduce(MPI.IN_PLACE, more, MPI.MAX)
        self._lead += float(more[0])

    def _late(self, needed: float = 0.0) -> bool:
        """Whether something that takes so many seconds would end too late."""
        return time.monotonic() + needed > self._end

    def _latest(self, rows: list[FloatArray], arms: int) -> FloatArray:
        """The rows with the latest rank's numbers; one exchange for all of them."""
        together = np.array(rows).reshape(-1, 2, arms)
        self._comm.Allreduce(MPI.IN_PLACE, together, MPI.MAX)
        return together

    def _once(self, arm: Arm, stop: bool = False) -> tuple[float, float, float] | None:
        """Seconds of a call, by how many it began late here, and by how many this rank was ready
        late (negative: in time); None when rank 0 says `stop`.
        """
        self._alive()
        arm.warm()
        start = self._agree(self._lead, stop)
        if start is None:
            return None
        arm.before()
        ready = self._now()
        self._wait(start)
        begin = self._now()
        for _ in range(arm.repeat):
            arm.call()
        end = self._now()
        arm.after()
        return (end - start) / arm.repeat, begin - start, ready - start

    def _wait(self, start: float) -> None:
        if self._crowded and self._clock is not None:
            # More ranks than cores and several hosts: only whoever sleeps lets the others be ready.
            time.sleep(max(start - self._now(), 0.0))
        while self._now() < start:
            if self._crowded:
                os.sched_yield()

    def _agree(self, lead: float, stop: bool = False) -> float | None:
        """An instant `lead` seconds after the last rank has come here; None: rank 0 says `stop`."""
        agreed = np.array([self._now() + lead, float(stop and self._comm.rank == 0)])
        self._comm.Allreduce(MPI.IN_PLACE, agreed, MPI.MAX)
        return None if agreed[1] else float(agreed[0])


def wait_quietly(world: MPI.Comm, meanwhile: Callable[[], object] = _nothing) -> None:
    """Meet all other ranks without using a core meanwhile."""
    request = world.Ibarrier()
    while not request.Test():
        meanwhile()
        time.sleep(SLEEP)
