"""Measure the batches of a tuning run: each launch measures calls that a design chose."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tuner.core.measurement import Measurements
from tuner.core.table import AlgorithmConfig
from tuner.probe.probe_plan import WARM_UP_REPETITIONS
from tuner.select.acquisition import Experiment
from tuner.select.dataset import CallPoint, build_observations, incorrect_algorithms
from tuner.select.experiment_design import ExperimentDesign, RegretBound
from tuner.select.simulated_times import Simulator
from tuner.workflows.candidates import (
    CandidateGenerator,
    bisection_points,
    chosen_calls,
    order_points,
)
from tuner.workflows.launches import MIN_MEASURING_S, ProbeLaunches
from tuner.workflows.time_limit import TimeLimit

# Share of the budget for one batch; small, so that results soon guide the next one.
MAX_BATCH_SHARE = 0.1
MAX_OVERRUN_RATIO = 2.0  # a batch is ended after this multiple of its expected seconds
MAX_SIMULATION_SHARE = 0.2  # share of the time left that simulations before a batch may take
SYNCHRONISATION_S = 5e-3  # seconds beside the call itself, for agreeing on a common start
MIN_PACE = 0.5
MAX_PACE = 8.0

CandidateGrid = dict[CallPoint, tuple[AlgorithmConfig, ...]]


@dataclass
class MeasurementBatches:
    """The measurement batches of one tuning run.

    min_repetitions     repetitions of every measured call
    on_note             called with what there was no time for
    on_step             called with the present step
    on_plan             called with what the next batch measures
    pace                ratio of measured to expected seconds of the batches so far
    covers_all_points   whether all points were simulated, so that the bound holds for all of them
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
        )
        while True:
            self.on_step("choosing what to measure next")
            self._limit_simulations()
            with self.limit.measure_step("choose"):
                self._update_design(design, grid, measurements)
                bound = design.regret_bound()
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
        for point in order_points(points):
            self.on_step(f"simulating {len(grid)} of {len(points)} calls")
            grid[point] = self.generate_candidates(point)
            for choice in (AlgorithmConfig(), *grid[point]):
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
        added = {
            point: self.generate_candidates(point) for point in bisection_points(design, grid, rows)
        }
        if added:
            design.add_points(added)
            grid.update(added)

    def _measurement_cost(self, seconds: float) -> float:
        """Return the seconds of measuring one choice, warm-up calls included.

        seconds     duration of one call
        """
        return (
            self.pace * (self.min_repetitions + WARM_UP_REPETITIONS) * (seconds + SYNCHRONISATION_S)
        )

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
        took = time.monotonic() - begun - self.limit.latest_duration("start")
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
