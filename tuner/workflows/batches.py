"""Measure the messages of a tuning run, then its batches of calls that a design chose.

Each launch measures into the run's file and ends in time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.core.measurement import Measurements
from tuner.core.table import AlgorithmChoice
from tuner.launch import Launcher
from tuner.mpi_libraries.default_algorithms import DefaultAlgorithms
from tuner.probe.batches import ExperimentRequest
from tuner.probe.monitor import STARTUP_SECONDS_KEY, ProbeProgress
from tuner.probe.multi_host import probe_cluster, probe_experiments
from tuner.probe.probe_spec import ProbeSpec, shapes_to_measure
from tuner.probe.sampling import fewest_repetitions, warm_up_repetitions
from tuner.select.dataset import CallPoint, build_observations, incorrect_algorithms
from tuner.select.experiment_design import Experiment, ExperimentDesign, RegretBound
from tuner.select.simulated_times import Simulator
from tuner.workflows.candidates import (
    CandidateGenerator,
    bisection_points,
    chosen_calls,
    counts_of_calls,
    order_points,
)
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
# Share of the budget for one batch; small, so that results soon guide the next one.
MAX_BATCH_SHARE = 0.1
MAX_OVERRUN_RATIO = 2.0  # a batch is ended after this multiple of its expected seconds
MAX_SIMULATION_SHARE = 0.2  # share of the time left that simulations before a batch may take
CHECKING_CALLS = 2  # roughly, of a choice before its calls are timed: one to three
SYNCHRONISATION_S = 5e-3  # seconds beside the call itself, for agreeing on a common start
MIN_PACE = 0.5
MAX_PACE = 8.0

CandidateGrid = dict[CallPoint, tuple[AlgorithmChoice, ...]]


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
        """Return the seconds that the ranks of a batch are expected to take to start."""
        return self.launches * self.limit.expected_duration("start", START_S)

    @property
    def launches(self) -> int:
        """The largest number of launches of a batch: one, or one for each number of ranks here."""
        shapes = shapes_to_measure(self.request)
        return len({one.ranks for one in shapes}) if self.request.hosts.is_local else 1

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
        """Measure these calls and no messages that the file lacks; None where time is too short.

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


@dataclass
class MeasurementBatches:
    """The measurement batches of one tuning run.

    min_repetitions     minimum repetitions of short calls
    on_note             called with what there was no time for
    on_step             called with the present step
    on_plan             called with what the next batch measures
    pace                ratio of measured to expected seconds of the batches so far
    covers_all_points   whether all points were simulated, so that the bound holds for all of them
    has_doubts          whether calls whose launches were disturbed are to be measured again
    """

    generate_candidates: CandidateGenerator
    simulator: Simulator
    launches: ProbeLaunches
    limit: TimeLimit
    min_repetitions: int
    on_note: Callable[[str], None]
    on_step: Callable[[str], None]
    on_plan: Callable[[Sequence[Experiment]], None]
    pace: float = 1.0
    covers_all_points: bool = False
    has_doubts: bool = False

    def iter_results(
        self, points: Sequence[CallPoint], measurements: Measurements
    ) -> Iterator[tuple[Measurements, RegretBound]]:
        """Yield all measurements so far and the regret bound of a table made from them.

        Yields before the first batch and after each one, until nothing is left to measure or no
        time is left.
        """
        grid = self._simulate_candidates(points)
        design = ExperimentDesign(
            grid,
            self.simulator,
            self._measurement_cost,
            uses_unmeasured_costs=self.simulator.uses_unmeasured_costs,
            default_runs=self.simulator.default_runs,
            counts=counts_of_calls(grid, self.generate_candidates.request.profile),
        )
        while True:
            self.on_step("choosing what to measure next")
            self._limit_simulations()
            with self.limit.measure_step("choose"):
                self._update_design(design, grid, measurements)
                bound, self.has_doubts = design.regret_bound(), bool(design.doubtful_points)
            yield measurements, bound
            tasks = self._next_batch(design)
            if not tasks or self.launches.measuring_seconds < MIN_MEASURING_S:
                return
            self.on_plan(tasks)
            measurements = self._measure_batch(tasks, measurements)

    def _simulate_candidates(self, points: Sequence[CallPoint]) -> CandidateGrid:
        """Simulate the candidates of the points in coarse-to-fine order while there is time."""
        self._limit_simulations()
        grid = CandidateGrid()
        for point in order_points(points, self.generate_candidates.request.profile):
            self.on_step(f"simulating {len(grid)} of {len(points)} calls")
            grid[point] = self.generate_candidates(point)
            for choice in (AlgorithmChoice(), *grid[point]):
                self.simulator(point, choice)
            if time.monotonic() > self.simulator.deadline:
                break
        self.covers_all_points = len(grid) == len(points)
        if not self.covers_all_points:
            self.on_note(
                f"no time was left to simulate more than {len(grid)} of {len(points)} calls: only"
                " these are measured, and the mean regret is that of these"
            )
        return grid

    def _limit_simulations(self) -> None:
        """Give simulations their share of the time left, as a deadline.

        Calls that are not simulated by then count as unknown.
        """
        self.simulator.deadline = time.monotonic() + MAX_SIMULATION_SHARE * max(
            self.limit.remaining, 0.0
        )

    def _update_design(
        self, design: ExperimentDesign, grid: CandidateGrid, measurements: Measurements
    ) -> None:
        """Pass the measurements to the design, and add sizes between two different choices."""
        rows = build_observations(measurements, self.simulator)
        design.update(rows, incorrect_algorithms(measurements))
        certain = [row for row in rows if row.point not in design.doubtful_points]
        between = (
            []
            if self.generate_candidates.request.only_profile
            else bisection_points(design, grid, certain)
        )
        added = {point: self.generate_candidates(point) for point in between}
        if added:
            design.add_points(added)
            grid.update(added)

    def _measurement_cost(self, seconds: float) -> float:
        """Return the seconds of measuring one choice, checks and warm-up calls included.

        seconds     duration of one call
        """
        calls = (
            CHECKING_CALLS
            + warm_up_repetitions(seconds)
            + fewest_repetitions(self.min_repetitions, seconds)
        )
        return self.pace * calls * (seconds + SYNCHRONISATION_S)

    def _next_batch(self, design: ExperimentDesign) -> Sequence[Experiment]:
        """Choose what the next launch measures; nothing if there is no time for a launch."""
        room = self.launches.measuring_seconds
        if room < MIN_MEASURING_S:
            return ()
        usual = max(MAX_BATCH_SHARE * self.limit.seconds, self.launches.start_seconds)
        return design.next_batch(min(room, usual), room)

    def _measure_batch(self, tasks: Sequence[Experiment], before: Measurements) -> Measurements:
        """Measure a batch, and update the pace."""
        expected = sum(task.seconds for task in tasks)
        most = MAX_OVERRUN_RATIO * max(expected, MAX_BATCH_SHARE * self.limit.seconds)
        begun = time.monotonic()
        found = self.launches.measure_chosen(
            chosen_calls(tasks), min(self.launches.measuring_seconds, most)
        )
        started = 1 if not self.launches.request.hosts.is_local else len({t.point.p for t in tasks})
        took = time.monotonic() - begun - started * self.limit.latest_duration("start")
        done = {
            (str(one.subject), one.nodes, one.ppn, one.nbytes)
            for one in found.series[len(before.series) :]
        }
        finished = sum(task.seconds for task in tasks if _call_key(task.point) in done)
        if min(took, finished) > 0:
            pace = self.pace * math.sqrt(took / finished)
            self.pace = min(max(pace, MIN_PACE), MAX_PACE)
        return found


def _call_key(point: CallPoint) -> tuple[str, int, int, int]:
    return str(point.collective), point.nodes, point.ppn, point.nbytes
