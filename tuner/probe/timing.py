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


@dataclass(frozen=True)
class FirstCalls:
    """The durations of the first two calls of operations.

    each    seconds of each operation, the same on all ranks: the least of two calls, since the
            first may open connections
    lap     seconds that one call of each of them takes on this rank, with everything around it
    """

    each: FloatArray
    lap: float


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
        first_calls: FirstCalls | None = None,
    ) -> FloatArray:
        """Return the seconds per call on the slowest rank, shape (repetitions, operations).

        first_calls     what `fit_within` found of these operations, which are then called twice
                        less before they are timed

        In each repetition every operation runs once, in random order, so that drift affects all
        alike. Sampling ends when rank 0 finds the medians `is_precise_enough`, or `seconds` spent.
        There are none if too few repetitions fit before the deadline: `min_repetitions`, or what
        `fewest_repetitions` says of long calls.
        """
        nothing = np.zeros((0, len(operations)))
        known = self._warm_up(operations, first_calls)
        if known is None:
            return nothing
        lap = known.lap
        rule = RepetitionRule(min_repetitions, ci_half_width, is_comparison, known.each)
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

    def fit_within(
        self,
        operations: Sequence[TimedOperation],
        seconds: float,
        min_repetitions: int = MIN_REPETITIONS,
    ) -> FirstCalls:
        """Call operations, from the first on, as long as they fit into `seconds`; rank 0 decides.

        An operation fits if it can have its repetitions there. The faster of two calls of each
        counts, since the first one may open connections.
        """
        lap, each = 0.0, list[float]()
        for operation in operations:
            turns = [self._total_seconds_once(operation) for _ in range(MIN_LONG_WARM_UPS)]
            longer = lap + min(whole for whole, _ in turns)
            every = [*each, min(call for _, call in turns)]
            mean = decisive_seconds(np.array(every), is_comparison=False)
            calls = warm_up_repetitions(mean) + fewest_repetitions(min_repetitions, mean)
            if self._agree_on_start(0.0, stop=calls * longer > seconds) is None:
                break
            lap, each = longer, every
        slowest = np.array(each)
        self._comm.Allreduce(MPI.IN_PLACE, slowest, MPI.MAX)
        return FirstCalls(slowest, lap)

    def _total_seconds_once(self, operation: TimedOperation) -> tuple[float, float]:
        """Return the seconds of one sample with everything around it, and without."""
        begin = time.monotonic()
        sample = self._time_once(operation)
        bare = _bare_seconds(operation, sample) if sample else 0.0
        return time.monotonic() - begin, bare

    def _barrier_if_oversubscribed(self) -> None:
        """Wait for the other ranks if there are more ranks than cores.

        A rank that is done early and begins its bookkeeping would slow down those that share its
        core, and the last operation alone would look twice as slow.
        """
        if self._oversubscribed:
            self._comm.Barrier()

    def _warm_up(
        self, operations: Sequence[TimedOperation], first_calls: FirstCalls | None
    ) -> FirstCalls | None:
        """Warm up; return what the first calls showed, or None if it is too late.

        The calls begin as soon as all ranks are there, and show how long ranks take to get ready.
        """
        self._lead_seconds, late = 0.0, list[float]()
        known = first_calls or self._first_calls(operations, late)
        if known is None:
            return None
        turns = np.array([warm_up_repetitions(one) for one in known.each])
        for turn in range(MIN_LONG_WARM_UPS, WARM_UP_REPETITIONS):
            for number in np.flatnonzero(turns > turn).tolist():
                sample = self._time_once(operations[number], self._would_be_late())
                if sample is None:
                    return None
                late.append(sample[2])
        self._lengthen_lead(late)
        if self._clock is not None:
            self._try_lead(operations)
        return known

    def _first_calls(
        self, operations: Sequence[TimedOperation], late: list[float]
    ) -> FirstCalls | None:
        """Make the untimed calls that even long operations have, in turns; None if it is too late.

        late    receives the seconds by which this rank was ready late, but for the first turn
        """
        each, begin = np.full(len(operations), np.inf), 0.0
        for turn in range(MIN_LONG_WARM_UPS):
            rows = np.zeros((2, len(operations)))
            begin = time.monotonic()
            for number, operation in enumerate(operations):
                sample = self._time_once(operation, self._would_be_late())
                if sample is None:
                    return None
                rows[:, number] = sample[0] * operation.calls_per_sample, sample[1]
                late += [sample[2]] * (turn > 0)
            self._comm.Allreduce(MPI.IN_PLACE, rows, MPI.MAX)
            each = np.minimum(each, rows[0] - rows[1])
        return FirstCalls(each, time.monotonic() - begin)

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


def _bare_seconds(operation: TimedOperation, sample: tuple[float, float, float]) -> float:
    """Return the seconds of a sample on this rank, from its own begin on."""
    return sample[0] * operation.calls_per_sample - sample[1]


def yielding_barrier(world: MPI.Comm, on_poll: Callable[[], object] = _nothing) -> None:
    """Wait for all other ranks without occupying a core."""
    request = world.Ibarrier()
    while not request.Test():
        on_poll()
        time.sleep(POLL_INTERVAL_S)
