"""Start the launches of a tuning run; each measures into the run's file and ends in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.core.measurement import Measurements
from tuner.launch import Launcher
from tuner.mpi_libraries.default_algorithms import Decisions
from tuner.probe.batches import Chosen
from tuner.probe.monitor import START, Progress
from tuner.probe.multi_host import probe_chosen, probe_cluster
from tuner.probe.probe_spec import Request
from tuner.workflows.time_limit import TimeLimit

MESSAGES = 0.3  # share of the budget that messages may take
MOST_OF = 0.6  # share of the time left that the first launch may take
STARTING, FINISHING, LEAST = 3.0, 2.0, 1.0  # s on an idle computer: start ranks, a table, measure
SLACK = 1.0  # s beside what is expected
ROUGH = 1.0  # relative half-width of a call; the design asks again where it needs a narrower one


@dataclass
class Launches:
    """Starts ranks that measure into `out` within the time left.

    request     of the messages; collective calls are chosen during the run
    about       provenance of the run
    on_progress receives what is being measured
    has_started whether ranks were started
    """

    out: Path
    request: Request
    launcher: Launcher
    name: str
    limit: TimeLimit
    about: Mapping[str, Any]
    on_progress: Callable[[Progress], None]
    has_started: bool = False

    @property
    def starting(self) -> float:
        """Return the seconds that the ranks of a launch are expected to take to start."""
        return self.limit.expected("start", STARTING)

    @property
    def room(self) -> float:
        """Return the seconds for which one more launch may measure and leave time for a table."""
        after = sum(map(self.limit.expected, ("choose", "calibrate")))
        table = self.limit.expected("table", FINISHING)
        return self.limit.left - self.starting - after - table - SLACK

    def messages(self, decisions: Sequence[Decisions], anew: bool) -> Measurements:
        """Measure messages while there is time; return all measurements of the file.

        anew    whether to measure now what an earlier run left out for lack of time
        """
        most = MOST_OF * self.limit.left - self.starting
        seconds = max(min(MESSAGES * self.limit.seconds, most), 0.0)
        found = probe_cluster(
            self.out,
            self.request,
            self.launcher,
            name=self.name,
            budget=seconds,
            decisions=decisions,
            about=self.about,
            on_progress=self._heard,
            end=self._end(seconds),
            anew=anew,
        )
        return self._noticed(found)

    def chosen(self, chosen: Sequence[Chosen], seconds: float) -> Measurements:
        """Measure these calls for at most `seconds`; return all measurements of the file."""
        return self._measured(chosen, seconds, self._end(seconds))

    def alone(self, chosen: Sequence[Chosen]) -> Measurements | None:
        """Measure these calls without the messages that the file lacks; None if there is no time.

        A busy machine may be faster than expected, so that ranks are started even if there seems
        to be too little time, unless an earlier start has shown that there is.
        """
        if self.room >= LEAST:
            return self._measured(chosen, self.room, self._end(self.room), alone=True)
        seconds = self.limit.left - self.limit.latest("table", FINISHING) / 2
        if seconds < (self.limit.latest("start") or STARTING) + LEAST:
            return None
        return self._measured(chosen, seconds, time.monotonic() + seconds, alone=True)

    def _measured(
        self, chosen: Sequence[Chosen], seconds: float, end: float, alone: bool = False
    ) -> Measurements:
        found = probe_chosen(
            self.out,
            self.request,
            self.launcher,
            chosen,
            name=self.name,
            budget=seconds,
            target=ROUGH,
            about=self.about,
            on_progress=self._heard,
            end=end,
            alone=alone,
        )
        return self._noticed(found)

    def _end(self, seconds: float) -> float:
        return time.monotonic() + self.starting + seconds

    def _heard(self, progress: Progress) -> None:
        self.has_started = True
        self.on_progress(progress)

    def _noticed(self, found: Measurements) -> Measurements:
        """Record how long the ranks took to start, unless that is known of an earlier run alone."""
        if self.has_started and START in found.provenance:
            self.limit.took("start", float(found.provenance[START]))
        return found
