"""Time operations that several ranks do together (rank side).

Every sample starts at an instant that all ranks agreed on, and lasts until the last of them is
done: the caller of a collective waits for its own part, a program waits for the slowest. On one
host the ranks read one clock; on several, instants are converted by the measured offsets of their
clocks (`clock.py`). The skew that remains is due to ranks held back by the scheduler. It is part
of the sample, and the delay of the latest start is recorded beside it.
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
from tuner.probe.clock import SharedClock
from tuner.probe.probe_plan import MIN_LONG_WARM_UPS, MIN_REPETITIONS, WARM_UP_REPETITIONS
from tuner.probe.sampling import (
    MAX_REPETITIONS,
    RepetitionRule,
    decisive_seconds,
    fewest_repetitions,
    shuffled_order,
    warm_up_repetitions,
)

MIN_LEAD_CALLS = 15  # minimum calls to check whether ranks of several hosts start in time,
MAX_LEAD_TRIAL_S = 0.05  # unless fewer already take so long
POLL_INTERVAL_S = 0.005  # seconds between two polls of a rank that must stay idle


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class TimedOperation:
    """An operation to compare with others, of which `call` is timed.

    Not timed are `before` and `after`, which run right around it, and `warm_up`, which runs before
    the ranks agree on the start.
    """

    call: Callable[[], object]
    before: Callable[[], object] = _nothing
    after: Callable[[], object] = _nothing
    warm_up: Callable[[], object] = _nothing
    calls_per_sample: int = 1  # calls in one sample, for calls too short for the clock


class Stopwatch:
    """A stopwatch for operations on the ranks of `comm`, no communicator under test.

    oversubscribed  more ranks than cores: waiting ranks yield the core
    clock           shared clock of ranks on several hosts; None: all ranks read the same clock
    keep_alive      called before every sample
    deadline        end of all measurements, as time.monotonic() on rank 0 shows it
    """

    def __init__(
        self,
        comm: MPI.Comm,
        oversubscribed: bool,
        clock: SharedClock | None = None,
        keep_alive: Callable[[], object] = _nothing,
        deadline: float = math.inf,
    ) -> None:
        self._comm = comm
        self._keep_alive, self._deadline = keep_alive, deadline
        self._oversubscribed = oversubscribed
        self._now = time.monotonic if clock is None else clock.now
        self._clock = clock
        self._lead_seconds = 0.0
        self.start_delays = np.zeros(0)  # seconds by which the latest rank began late, per sample

    def sample(
        self,
        operations: Sequence[TimedOperation],
        *,
        ci_half_width: float,
        seconds: float,
        seed: int,
        is_comparison: bool = True,
        min_repetitions: int = MIN_REPETITIONS,
        series_seconds: float = math.inf,
    ) -> FloatArray:
        """Return the seconds per call on the slowest rank, shape (repetitions, operations).

        series_seconds  of a series of ever longer operations, only the first ones are sampled: as
                        many as rank 0 finds to fit into these seconds

        In each repetition every operation runs once, in random order, so that drift affects all
        alike. Sampling ends when rank 0 finds the medians `is_precise_enough`, or `seconds` spent.
        There are none if too few repetitions fit before the deadline: `min_repetitions`, or what
        `fewest_repetitions` says of long calls.
        """
        known = self._warm_up(operations, min_repetitions, series_seconds)
        if known is None:
            return np.zeros((0, len(operations)))
        each, lap = known
        operations, nothing = operations[: len(each)], np.zeros((0, len(each)))
        rule = RepetitionRule(min_repetitions, ci_half_width, is_comparison, each)
        calls = np.array([operation.calls_per_sample for operation in operations])
        done, rows = np.zeros((0, 2, len(operations))), list[FloatArray]()
        begin = time.monotonic()
        while True:
            count = len(done) + len(rows)
            passed = time.monotonic() - begin
            spent = count >= MAX_REPETITIONS or passed > seconds
            needed = max(rule.fewest - count, 0) * (passed / count if count else lap)
            over = rule.is_met or (spent and count >= rule.fewest)
            order = shuffled_order(seed, count, len(operations))
            row = self._repeat([operations[number] for number in order.tolist()], over, needed)
            if row is not None:
                rows.append(row[:, np.argsort(order)])
            if row is None or count + 1 >= rule.next_look:
                done, rows = np.concatenate([done, self._max_over_ranks(rows, len(operations))]), []
            if row is None:
                self.start_delays = done[:, 1].ravel()
                return done[:, 0].copy() if len(done) >= rule.fewest else nothing
            if count + 1 >= rule.next_look:
                rule.look(done[:, 0], calls)

    def _repeat(
        self, operations: Sequence[TimedOperation], over: bool, needed: float
    ) -> FloatArray | None:
        """Return seconds and delays of one call of each, shape (2, operations), None at the end.

        over    whether rank 0 ends here
        needed  seconds that must be left before the deadline
        """
        row = np.zeros((2, len(operations)))
        for place, operation in enumerate(operations):
            stop = place == 0 and (over or self._would_be_late(needed))
            sample = self._time_once(operation, stop or self._would_be_late())
            if sample is None:
                self._barrier_if_oversubscribed()
                return None
            row[:, place] = sample[:2]
        self._barrier_if_oversubscribed()
        return row

    def _barrier_if_oversubscribed(self) -> None:
        """Wait for the other ranks if there are more ranks than cores.

        A rank that is done early and begins its bookkeeping would slow down those that share its
        core, and the last operation alone would look twice as slow.
        """
        if self._oversubscribed:
            self._comm.Barrier()

    def _warm_up(
        self, operations: Sequence[TimedOperation], min_repetitions: int, series_seconds: float
    ) -> tuple[FloatArray, float] | None:
        """Warm up; return the seconds of each operation and of a repetition, or None if too late.

        The calls begin as soon as all ranks are there, and show how long ranks take to get ready.
        Operations that do not fit into `series_seconds` are left out of the result.
        """
        self._lead_seconds = 0.0
        first = self._first_calls(operations, min_repetitions, series_seconds)
        if first is None or not len(first):
            return None
        operations, late = operations[: len(first)], first[:, 1:, 2].ravel().tolist()
        longest = first[:, :, :2].copy()
        self._comm.Allreduce(MPI.IN_PLACE, longest, MPI.MAX)
        each = _bare_seconds(longest)
        turns = np.array([warm_up_repetitions(one) for one in each])
        for turn in range(MIN_LONG_WARM_UPS, WARM_UP_REPETITIONS):
            for number in np.flatnonzero(turns > turn).tolist():
                sample = self._time_once(operations[number], self._would_be_late())
                if sample is None:
                    return None
                late.append(sample[2])
        self._lengthen_lead(late)
        if self._clock is not None:
            self._try_lead(operations)
        return each, _seconds_of_repetition(first)

    def _first_calls(
        self, operations: Sequence[TimedOperation], min_repetitions: int, series_seconds: float
    ) -> FloatArray | None:
        """Make the warm-up calls that even long operations have, or return None if it is too late.

        They have shape (operations that fit, MIN_LONG_WARM_UPS, 4): seconds from the agreed start
        to the end, by which the call began late, by which this rank was ready late, and of the call
        with everything around it.
        """
        calls = list[list[tuple[float, ...]]]()
        for operation in operations:
            turns = list[tuple[float, ...]]()
            for _ in range(MIN_LONG_WARM_UPS):
                begin = time.monotonic()
                sample = self._time_once(operation, self._would_be_late())
                if sample is None:
                    return None
                whole = time.monotonic() - begin
                turns.append((sample[0] * operation.calls_per_sample, *sample[1:], whole))
            calls.append(turns)
            if series_seconds < math.inf:
                fits = _seconds_left(np.array(calls), min_repetitions) <= series_seconds
                if self._agree_on_start(0.0, stop=not fits) is None:
                    calls.pop()
                    break
        return np.array(calls).reshape(-1, MIN_LONG_WARM_UPS, 4)

    def _try_lead(self, operations: Sequence[TimedOperation]) -> None:
        """Make some more calls, to check whether the lead suffices between hosts.

        It may not: right after a call the library may still have messages to finish that other
        ranks wait for, and a rank that waits for the start does not progress them.
        """
        end, late = time.monotonic() + MAX_LEAD_TRIAL_S, list[float]()
        for operation in islice(cycle(operations), max(MIN_LEAD_CALLS, len(operations))):
            sample = self._time_once(operation, self._would_be_late() or time.monotonic() > end)
            if sample is None:
                break
            late.append(sample[2])
        self._lengthen_lead(late)

    def _lengthen_lead(self, late: Sequence[float]) -> None:
        """Lengthen the lead by twice the median delay of the rank that is usually last, if any."""
        more = np.array([2 * max(float(np.median(late)), 0.0) if late else 0.0])
        self._comm.Allreduce(MPI.IN_PLACE, more, MPI.MAX)
        self._lead_seconds += float(more[0])

    def _would_be_late(self, needed: float = 0.0) -> bool:
        """Return whether something that takes `needed` seconds would end after the deadline."""
        return time.monotonic() + needed > self._deadline

    def _max_over_ranks(self, rows: list[FloatArray], count: int) -> FloatArray:
        """Return the maximum over ranks of all rows, with one exchange for all of them."""
        together = np.array(rows).reshape(-1, 2, count)
        self._comm.Allreduce(MPI.IN_PLACE, together, MPI.MAX)
        return together

    def _time_once(
        self, operation: TimedOperation, stop: bool = False
    ) -> tuple[float, float, float] | None:
        """Time one call; return None when rank 0 says `stop`.

        Returns the seconds of the call, the seconds by which it began late on this rank, and those
        by which this rank was ready late (negative: in time).
        """
        self._keep_alive()
        operation.warm_up()
        start = self._agree_on_start(self._lead_seconds, stop)
        if start is None:
            return None
        operation.before()
        ready = self._now()
        self._wait_until(start)
        begin = self._now()
        for _ in range(operation.calls_per_sample):
            operation.call()
        end = self._now()
        operation.after()
        return (end - start) / operation.calls_per_sample, begin - start, ready - start

    def _wait_until(self, start: float) -> None:
        if self._oversubscribed and self._clock is not None:
            # More ranks than cores and several hosts: ranks must sleep so that others get ready.
            time.sleep(max(start - self._now(), 0.0))
        while self._now() < start:
            if self._oversubscribed:
                os.sched_yield()

    def _agree_on_start(self, lead: float, stop: bool = False) -> float | None:
        """Return the instant `lead` seconds after the last rank's arrival; None if rank 0 stops."""
        agreed = np.array([self._now() + lead, float(stop and self._comm.rank == 0)])
        self._comm.Allreduce(MPI.IN_PLACE, agreed, MPI.MAX)
        return None if agreed[1] else float(agreed[0])


def _bare_seconds(calls: FloatArray) -> FloatArray:
    """Return the seconds of each operation from where its call began, shape (operations,).

    calls       as of `Stopwatch._first_calls`

    They are the least of several, since a first call may open connections.
    """
    least: FloatArray = (calls[:, :, 0] - calls[:, :, 1]).min(axis=1)
    return least


def _seconds_of_repetition(calls: FloatArray) -> float:
    """Return the seconds of one call of every operation with everything around them."""
    return float(calls[:, :, 3].min(axis=1).sum())


def _seconds_left(calls: FloatArray, min_repetitions: int) -> float:
    """Return the seconds that a series of operations takes after its first calls."""
    typical = decisive_seconds(_bare_seconds(calls), is_comparison=False)
    further = warm_up_repetitions(typical) - MIN_LONG_WARM_UPS
    return _seconds_of_repetition(calls) * (further + fewest_repetitions(min_repetitions, typical))


def yielding_barrier(world: MPI.Comm, on_poll: Callable[[], object] = _nothing) -> None:
    """Wait for all other ranks without occupying a core."""
    request = world.Ibarrier()
    while not request.Test():
        on_poll()
        time.sleep(POLL_INTERVAL_S)
