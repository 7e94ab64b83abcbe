"""Count down the wall-clock budget of a command, and record how long its steps take."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

BUSY = 1.5  # slowdown from which on the machine counts as busy
ENOUGH = 2e8  # ns of processor time from which on a slowdown can be told
MARGIN = 1.5  # by how much longer than the last time a step may take
LONGEST_START = 10.0  # s that Python and imports take at most before the command counts its time


class TimeLimit:
    """Counts down the wall-clock seconds of a command.

    seconds     budget of the whole command
    begun       time.monotonic() at which the command began; by default now
    spent       seconds of the budget that the interrupted run took which this one resumes
    slowdown    time that computing takes over the time on an idle computer
    """

    def __init__(self, seconds: float, begun: float | None = None, slowdown: float = 1.0) -> None:
        self.seconds, self.spent, self.slowdown = seconds, 0.0, slowdown
        self._begun = time.monotonic() if begun is None else begun
        self._taken: dict[str, float] = {}

    @property
    def elapsed(self) -> float:
        """Return the seconds since the command began."""
        return time.monotonic() - self._begun

    @property
    def left(self) -> float:
        """Return the seconds left of the budget, negative after its end."""
        return self.unspent - self.spent

    @property
    def unspent(self) -> float:
        """Return the seconds left if those of the interrupted run are not counted."""
        return self.seconds - self.elapsed

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Time a step of computing, and update the slowdown if the step is long enough."""
        begun, before = time.monotonic(), scheduled()
        yield
        self.took(step, time.monotonic() - begun)
        if (now := scheduled()).ran - before.ran > ENOUGH:
            self.slowdown = slowdown(now, before)

    def took(self, step: str, seconds: float) -> None:
        """Record how long a step took."""
        self._taken[step] = seconds

    def latest(self, step: str, idle: float = 0.0) -> float:
        """Return the seconds that a step took the last time; before the first time, `idle` times
        the slowdown.

        idle    seconds that the step takes on an idle computer
        """
        return self._taken.get(step, self.slowdown * idle)

    def expected(self, step: str, idle: float = 0.0) -> float:
        """Return the seconds to reserve for a step: `latest` with a margin."""
        return MARGIN * self.latest(step, idle) if step in self._taken else self.latest(step, idle)


def busy(slowdown: float) -> str:
    """Return the sentence for a computer that other programs keep busy."""
    return f"the machine is busy: this takes about {slowdown:.1f} times as long"


def process_age() -> float:
    """Return the seconds since this process was started, but at most `LONGEST_START`; 0 if the
    system does not report it.

    A shell replaces itself with the last command of its list, which then counts as old as the shell
    is: what ran before in it is no time of this command.
    """
    stat = Path("/proc/self/stat")
    if not stat.exists():
        return 0.0
    started = int(stat.read_text(encoding="ascii").rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
    return min(max(age, 0.0), LONGEST_START)


@dataclass(frozen=True)
class Scheduled:
    """Times of this process in ns.

    ran         on a processor
    waited      in the run queue, ready to run
    """

    ran: int = 0
    waited: int = 0


START = Scheduled()


def scheduled() -> Scheduled:
    """Return the times since the process was started; zeros if the system does not report them
    (Linux does, by schedstats).
    """
    try:
        ran, waited, _ = map(int, Path("/proc/self/schedstat").read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return Scheduled()
    return Scheduled(ran, waited)


def slowdown(now: Scheduled, before: Scheduled = START) -> float:
    """Return by which factor waiting for a processor slowed this process between two moments."""
    ran, waited = now.ran - before.ran, now.waited - before.waited
    return 1.0 + waited / ran if ran > 0 else 1.0
