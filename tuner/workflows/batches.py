"""Measure the rounds of a tuning run: in each, a launch measures calls that a design chose."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tuner.core.measurement import Measurements
from tuner.core.table import Choice
from tuner.probe.probe_plan import WARM_UP
from tuner.select.acquisition import Task
from tuner.select.dataset import Point, label, wrong_of
from tuner.select.experiment_design import Bound, Design
from tuner.select.simulated_times import Simulator
from tuner.workflows.candidates import Offered, chosen_of, coarse_first, halfway
from tuner.workflows.launches import LEAST, Launches
from tuner.workflows.time_limit import TimeLimit

ROUND = 0.1  # share of the budget that a round may take, so that results soon guide the next one
PATIENCE = 2.0  # times its expected seconds after which a round is ended
SIMULATING = 0.2  # share of the time left that simulations before a round may take
PER_REPETITION = 5e-3  # s beside the call itself, for agreeing on a common start
FASTEST, SLOWEST = 0.5, 8.0  # bounds of the pace

Grid = dict[Point, tuple[Choice, ...]]


@dataclass
class Rounds:
    """The rounds of one run.

    fewest      repetitions of every measured call
    on_note     reports what there was no time for
    tell        reports the present step
    pace        measured over expected seconds of the rounds so far
    whole       whether all points were simulated, so that the bound is of all of them
    """

    offered: Offered
    simulator: Simulator
    launches: Launches
    limit: TimeLimit
    fewest: int
    on_note: Callable[[str], None]
    tell: Callable[[str], None]
    pace: float = 1.0
    whole: bool = False

    def results(
        self, points: Sequence[Point], measurements: Measurements
    ) -> Iterator[tuple[Measurements, Bound]]:
        """Yield all measurements so far and the bound of a table's regret, before the first round
        and after each one, until there is nothing or no time left to measure.
        """
        grid = self._simulated(points)
        design = Design(grid, self.simulator, self._price, doubted=self.simulator.doubted)
        while True:
            self.tell("choosing what to measure next")
            self._limit_simulations()
            with self.limit.timed("choose"):
                self._learn(design, grid, measurements)
                bound = design.bound()
            yield measurements, bound
            tasks = self._next(design)
            if not tasks or self.launches.room < LEAST:
                return
            measurements = self._measure(tasks, measurements)

    def _simulated(self, points: Sequence[Point]) -> Grid:
        """Simulate the candidates of the points in coarse-to-fine order while there is time."""
        self._limit_simulations()
        grid = Grid()
        for point in coarse_first(points):
            self.tell(f"simulating {len(grid)} of {len(points)} calls")
            grid[point] = self.offered(point)
            for choice in (Choice(), *grid[point]):
                self.simulator(point, choice)
            if time.monotonic() > self.simulator.until:
                break
        self.whole = len(grid) == len(points)
        if not self.whole:
            self.on_note(
                f"no time was left to simulate more than {len(grid)} of {len(points)} calls: only"
                " these are measured, and the mean regret is that of these"
            )
        return grid

    def _limit_simulations(self) -> None:
        """Allow simulations to take their share of the time left; what they do not reach then
        counts as unknown.
        """
        self.simulator.until = time.monotonic() + SIMULATING * max(self.limit.left, 0.0)

    def _learn(self, design: Design, grid: Grid, measurements: Measurements) -> None:
        """Pass the measurements to the design, and add sizes between two different choices."""
        rows = label(measurements, self.simulator)
        design.learn(rows, wrong_of(measurements))
        added = {point: self.offered(point) for point in halfway(design, grid, rows)}
        if added:
            design.widen(added)
            grid.update(added)

    def _price(self, seconds: float) -> float:
        """Return the seconds of measuring one choice, warm-up calls included.

        seconds     of one call
        """
        return self.pace * (self.fewest + WARM_UP) * (seconds + PER_REPETITION)

    def _next(self, design: Design) -> Sequence[Task]:
        """Choose what the next launch measures; nothing if there is no time for a launch."""
        room = self.launches.room
        if room < LEAST:
            return ()
        usual = max(ROUND * self.limit.seconds, self.launches.starting)
        return design.next(min(room, usual), room)

    def _measure(self, tasks: Sequence[Task], before: Measurements) -> Measurements:
        """Measure a round, and update the pace."""
        expected = sum(task.seconds for task in tasks)
        most = PATIENCE * max(expected, ROUND * self.limit.seconds)
        begun = time.monotonic()
        found = self.launches.chosen(chosen_of(tasks), min(self.launches.room, most))
        took = time.monotonic() - begun - self.limit.latest("start")
        done = {
            (str(one.subject), one.nodes, one.ppn, one.nbytes)
            for one in found.series[len(before.series) :]
        }
        finished = sum(task.seconds for task in tasks if _call(task.point) in done)
        if min(took, finished) > 0:
            pace = self.pace * math.sqrt(took / finished)
            self.pace = min(max(pace, FASTEST), SLOWEST)
        return found


def _call(point: Point) -> tuple[str, int, int, int]:
    return str(point.collective), point.nodes, point.ppn, point.nbytes
