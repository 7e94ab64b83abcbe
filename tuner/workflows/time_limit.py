"""Count down the wall-clock budget of a command, and record how long its steps take."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

BUSY_SLOWDOWN = 1.5  # slowdown from which on the machine counts as busy
MIN_CPU_TIME_NS = 2e8  # ns of processor time from which on a slowdown can be estimated
DURATION_MARGIN = 1.5  # factor by which a step may take longer than the last time
MAX_START_S = 10.0  # s that Python and imports take at most before the command counts its time


class TimeLimit:
    """A countdown of the wall-clock seconds of a command.

    seconds         budget of the whole command
    begun           time.monotonic() at which the command began; by default now
    slowdown        time that computing takes over the time on an idle computer
    spent_before    seconds of the budget that the interrupted run took which this one resumes
    """

    def __init__(self, seconds: float, begun: float | None = None, slowdown: float = 1.0) -> None:
        self.seconds, self.spent_before, self.slowdown = seconds, 0.0, slowdown
        self._begun = time.monotonic() if begun is None else begun
        self._durations: dict[str, float] = {}

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._begun

    @property
    def remaining(self) -> float:
        """Return the seconds left of the budget, negative after its end."""
        return self.remaining_this_run - self.spent_before

    @property
    def remaining_this_run(self) -> float:
        """Return the seconds left if those of the interrupted run are not counted."""
        return self.seconds - self.elapsed

    @contextmanager
    def measure_step(self, step: str) -> Iterator[None]:
        """Time a step of computing, and update the slowdown if the step is long enough."""
        begun, before = time.monotonic(), read_scheduling_times()
        yield
        self.record_step(step, time.monotonic() - begun)
        if (now := read_scheduling_times()).running_ns - before.running_ns > MIN_CPU_TIME_NS:
            self.slowdown = slowdown_between(now, before)

    def record_step(self, step: str, seconds: float) -> None:
        self._durations[step] = seconds

    def latest_duration(self, step: str, idle: float = 0.0) -> float:
        """Return the seconds that a step took the last time, or `idle` times the slowdown.

        idle    seconds that the step takes on an idle computer, used before the first time
        """
        return self._durations.get(step, self.slowdown * idle)

    def expected_duration(self, step: str, idle: float = 0.0) -> float:
        """Return the seconds to reserve for a step: the latest duration with a margin."""
        return (
            DURATION_MARGIN * self.latest_duration(step, idle)
            if step in self._durations
            else self.latest_duration(step, idle)
        )


def busy_message(slowdown: float) -> str:
    """Return the sentence for a computer that other programs keep busy."""
    return f"the machine is busy: this takes about {slowdown:.1f} times as long"


def process_age() -> float:
    """Return the seconds since this process was started, but at most `MAX_START_S`.

    Return 0 if the system does not report it. A shell replaces itself with the last command of its
    list, whose process is then as old as the shell; the limit keeps most of that time out.
    """
    stat = Path("/proc/self/stat")
    if not stat.exists():
        return 0.0
    started = int(stat.read_text(encoding="ascii").rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
    return min(max(age, 0.0), MAX_START_S)


@dataclass(frozen=True)
class SchedulingTimes:
    """The scheduling times of this process in ns.

    running_ns      time on a processor
    waiting_ns      time in the run queue, ready to run
    """

    running_ns: int = 0
    waiting_ns: int = 0


NO_SCHEDULING_TIMES = SchedulingTimes()


def read_scheduling_times() -> SchedulingTimes:
    """Return the scheduling times since the process was started.

    They are zero if the system does not report them (Linux does, by schedstats).
    """
    try:
        ran, waited, _ = map(int, Path("/proc/self/schedstat").read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return SchedulingTimes()
    return SchedulingTimes(ran, waited)


def slowdown_between(now: SchedulingTimes, before: SchedulingTimes = NO_SCHEDULING_TIMES) -> float:
    """Return the factor by which waiting for a processor slowed this process down."""
    ran, waited = now.running_ns - before.running_ns, now.waiting_ns - before.waiting_ns
    return 1.0 + waited / ran if ran > 0 else 1.0
