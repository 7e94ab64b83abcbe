"""Start the launches of a tuning run; each measures into the run's file and ends in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.core.measurement import Measurements
from tuner.launch import Launcher
from tuner.mpi_libraries.default_algorithms import DefaultAlgorithms
from tuner.probe.batches import ExperimentRequest
from tuner.probe.monitor import STARTUP_SECONDS_KEY, ProbeProgress
from tuner.probe.multi_host import probe_cluster, probe_experiments
from tuner.probe.probe_spec import ProbeSpec
from tuner.workflows.time_limit import TimeLimit

MAX_MESSAGES_SHARE = 0.3  # share of the budget that messages may take
MAX_FIRST_LAUNCH_SHARE = 0.6  # share of the time left that the first launch may take
# On an idle computer.
START_S = 3.0  # starting ranks
TABLE_S = 2.0  # making a table
MIN_MEASURING_S = 1.0  # shortest measuring
SLACK_S = 1.0  # seconds beside what is expected
# Relative half-width of a call's confidence interval; the design may ask again.
TARGET_CI_HALF_WIDTH = 1.0


@dataclass
class ProbeLaunches:
    """Starts ranks that measure into `out` within the time left.

    request     probe of the messages; collective calls are chosen during the run
    provenance  provenance of the run
    on_progress called with what is being measured
    has_started whether ranks were started
    """

    out: Path
    request: ProbeSpec
    launcher: Launcher
    limit: TimeLimit
    provenance: Mapping[str, Any]
    on_progress: Callable[[ProbeProgress], None]
    has_started: bool = False

    @property
    def start_seconds(self) -> float:
        """Return the seconds that the ranks of a launch are expected to take to start."""
        return self.limit.expected_duration("start", START_S)

    @property
    def measuring_seconds(self) -> float:
        """Return the seconds for which one more launch may measure and leave time for a table."""
        after = sum(map(self.limit.expected_duration, ("choose", "calibrate")))
        table = self.limit.expected_duration("table", TABLE_S)
        return self.limit.remaining - self.start_seconds - after - table - SLACK_S

    def measure_messages(
        self, decisions: Sequence[DefaultAlgorithms], retry_skipped: bool
    ) -> Measurements:
        """Measure messages while there is time; return all measurements of the file.

        decisions       what the library's default runs
        retry_skipped   whether to measure what an earlier run left out for lack of time
        """
        most = MAX_FIRST_LAUNCH_SHARE * self.limit.remaining - self.start_seconds
        seconds = max(min(MAX_MESSAGES_SHARE * self.limit.seconds, most), 0.0)
        found = probe_cluster(
            self.out,
            self.request,
            self.launcher,
            budget=seconds,
            default_algorithms=decisions,
            extra_provenance=self.provenance,
            on_progress=self._forward_progress,
            deadline=self._deadline(seconds),
            retry_skipped=retry_skipped,
        )
        return self._record_start_time(found)

    def measure_chosen(self, chosen: Sequence[ExperimentRequest], seconds: float) -> Measurements:
        """Measure these calls for at most `seconds`; return all measurements of the file."""
        return self._measure(chosen, seconds, self._deadline(seconds))

    def measure_without_messages(self, chosen: Sequence[ExperimentRequest]) -> Measurements | None:
        """Measure these calls without the messages that the file lacks; None if there is no time.

        A busy machine may be faster than expected, so that ranks are started even if there seems
        to be too little time, unless an earlier start has shown that there is.
        """
        if self.measuring_seconds >= MIN_MEASURING_S:
            return self._measure(
                chosen,
                self.measuring_seconds,
                self._deadline(self.measuring_seconds),
                without_messages=True,
            )
        seconds = self.limit.remaining - self.limit.latest_duration("table", TABLE_S) / 2
        if seconds < (self.limit.latest_duration("start") or START_S) + MIN_MEASURING_S:
            return None
        return self._measure(chosen, seconds, time.monotonic() + seconds, without_messages=True)

    def _measure(
        self,
        chosen: Sequence[ExperimentRequest],
        seconds: float,
        end: float,
        without_messages: bool = False,
    ) -> Measurements:
        found = probe_experiments(
            self.out,
            self.request,
            self.launcher,
            chosen,
            budget=seconds,
            ci_half_width=TARGET_CI_HALF_WIDTH,
            extra_provenance=self.provenance,
            on_progress=self._forward_progress,
            deadline=end,
            skip_first_plan=without_messages,
        )
        return self._record_start_time(found)

    def _deadline(self, seconds: float) -> float:
        return time.monotonic() + self.start_seconds + seconds

    def _forward_progress(self, progress: ProbeProgress) -> None:
        self.has_started = True
        self.on_progress(progress)

    def _record_start_time(self, found: Measurements) -> Measurements:
        """Record how long the ranks took to start, if this run started any."""
        if self.has_started and STARTUP_SECONDS_KEY in found.provenance:
            self.limit.record_step("start", float(found.provenance[STARTUP_SECONDS_KEY]))
        return found
