"""Tune a cluster with few probes within a time limit.

Messages are measured first, then rounds of collective calls. Each round is chosen from the results
so far, until the table is good enough or the budget is spent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tuner.base.errors import InputError
from tuner.base.units import format_time, plural
from tuner.core.calibration import Calibration
from tuner.core.measurement import WANTED, Measurements, read_measurements, read_partial
from tuner.core.path_classes import placed_record
from tuner.core.table import Choice, TuningTable
from tuner.launch import Launcher
from tuner.mpi_libraries.default_algorithms import Decisions
from tuner.probe.batches import provenance_of
from tuner.probe.monitor import Progress
from tuner.probe.multi_host import EarlierRun, check_probe, cluster_of, earlier_run, plan_cluster
from tuner.probe.probe_file import BEGAN, SPENT, TUNING, forget, seconds_taken
from tuner.probe.probe_spec import Request
from tuner.select.acquisition import Task
from tuner.select.constraints import ANYTHING, Constraints
from tuner.select.dataset import Point
from tuner.select.experiment_design import Bound
from tuner.select.simulated_times import Simulator
from tuner.sim.warmup import compile_within
from tuner.workflows.batches import Rounds
from tuner.workflows.candidates import Offered, all_shapes, candidates, chosen_of, coarse_first
from tuner.workflows.default_algorithms import known_decisions
from tuner.workflows.launches import FINISHING, LEAST, STARTING, Launches
from tuner.workflows.tables import Tables, has_collectives
from tuner.workflows.time_limit import BUSY, TimeLimit, busy

COMPILING = 0.25  # of the time that is left at most, once for each installation
ASKING = 0.15  # of it at most, for what the library's default runs
GUIDED = 20.0  # s on an idle computer: with less left, messages and simulations do not pay
DIRECT, DIRECT_LARGEST = 24, 2**17  # calls of a launch, and bytes of them, without simulations
STEP = 5.0  # seconds to which a sentence rounds up


@dataclass(frozen=True)
class Goal:
    """When to stop: `budget` seconds are spent, or with 95 % certainty the mean regret is below
    `regret`."""

    budget: float
    regret: float


@dataclass(frozen=True)
class Guided:
    """Result of a tuning run.

    calibration     None if no messages were measured and no topology states their cost
    bound           of the regret; None if nothing was simulated
    """

    measurements: Measurements
    calibration: Calibration | None
    table: TuningTable
    bound: Bound | None


@dataclass(frozen=True)
class Callbacks:
    """Functions that a tuning run calls to report its course.

    on_progress     receives the present step and the time left
    on_round        receives the bound of the regret and the seconds spent, after each round
    on_note         receives a sentence about anything that was noticed or left out
    """

    on_progress: Callable[[Progress], None] = lambda _: None
    on_round: Callable[[Bound, float], None] = lambda _bound, _spent: None
    on_note: Callable[[str], None] = lambda _: None


NO_CALLBACKS = Callbacks()


def guided(
    out: Path,
    request: Request,
    launcher: Launcher,
    goal: Goal,
    *,
    name: str = "",
    constraints: Constraints = ANYTHING,
    limit: TimeLimit | None = None,
    callbacks: Callbacks = NO_CALLBACKS,
) -> Guided:
    """Measure into `out` and make a table for all shapes and sizes of `request`.

    limit       of the wall-clock time; by default `goal.budget` seconds from now

    The same call resumes an interrupted run with the rest of its budget, and adds another budget to
    a finished one. There is a table for every budget: if no call was measured, it leaves all calls
    to the library's default. Raises InputError and ProbeError as `probe_cluster` does, before any
    ranks start where possible, and InputError for a budget that does not even suffice for starting
    them.
    """
    limit = limit or TimeLimit(goal.budget)
    return _Tuning(out, request, launcher, goal, limit, name, constraints, callbacks).carried_out()


@dataclass
class _Tuning:
    """State of one tuning run."""

    out: Path
    request: Request
    launcher: Launcher
    goal: Goal
    limit: TimeLimit
    name: str
    constraints: Constraints
    callbacks: Callbacks
    measurements: Measurements | None = None
    bound: Bound | None = None
    noted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        parts = tuple(part for part in self.request.parts if part != "collectives")
        asked = replace(self.request, parts=parts)  # collectives are chosen on the way
        self.wide = replace(self.request, shapes=all_shapes(self.request))
        self.about: dict[str, Any] = {}
        self.busy = False
        self.launches = Launches(
            self.out,
            asked,
            self.launcher,
            self.name,
            self.limit,
            self.about,
            lambda progress: self._tell(progress.text),
        )
        self.tables = Tables(
            self.request.topology, self.constraints, self.limit, self._tell, self._note
        )

    def carried_out(self) -> Guided:
        """Measure, and make the table."""
        self._check()
        earlier = self._resumed()
        self._require_time(earlier)
        self._notice_busy()
        if not self._by_simulation(earlier):
            self._directly()
        return self._finished(earlier)

    def _check(self) -> None:
        """Raise InputError for whatever needs no ranks to be known."""
        check_probe(self.out, self.launches.request, self.launcher, name=self.name)
        choices = ((one, Choice()) for one in self.request.collectives)
        self.constraints.require_known(self.request.library, choices)
        keys, most = {point.key() for point in candidates(self.wide)}, self.constraints.rules
        if most is not None and most < len(keys):
            raise InputError(
                f"a table for these collectives and shapes has {len(keys)} rules at least, not"
                f" {most}: allow more (--rules), or name fewer"
            )

    def _resumed(self) -> EarlierRun:
        """Read what an earlier run left, and report it."""
        record = provenance_of(self.out).get(TUNING)
        spent = seconds_taken(self.out, record) if isinstance(record, dict) else 0.0
        self.anew = record is None
        self.limit.spent = min(spent, self.goal.budget)
        began = time.time() - self.limit.elapsed
        self.about[TUNING] = {BEGAN: began, SPENT: self.limit.spent}
        self._want(candidates(self.wide))
        earlier = earlier_run(self.out, plan_cluster(self.launches.request))
        if str(earlier):
            self._note(str(earlier))
        return earlier

    def _want(self, points: Sequence[Point]) -> None:
        """Record in the file which calls the table is for."""
        self.about[WANTED] = [placed_record(asdict(point)) for point in points]

    def _require_time(self, earlier: EarlierRun) -> None:
        """Raise InputError if no call was measured before and there is no time for one now."""
        work = STARTING + LEAST + FINISHING / 2
        if self.limit.unspent < work and not earlier.calls:
            ranks = plural(self.request.nodes * self.request.ppn, "rank")
            least = self.limit.elapsed + self.limit.slowdown * work
            raise InputError(
                f"{format_time(self.limit.seconds)} do not suffice to measure anything: starting"
                f" {ranks} and making a table take about {math.ceil(least)} s here; give"
                f" --budget {math.ceil(1.5 * least / STEP) * STEP:.0f}s or more"
            )

    def _notice_busy(self) -> None:
        """Report once that the machine is busy, if it is."""
        if self.limit.slowdown >= BUSY and not self.busy:
            self.busy = True
            self._note(busy(self.limit.slowdown))

    def _note(self, text: str) -> None:
        """Report a sentence, once."""
        if text not in self.noted:
            self.noted.add(text)
            self.callbacks.on_note(text)

    def _tell(self, text: str) -> None:
        """Report the present step and how much of the budget is spent."""
        left = max(self.limit.left, 0.0)
        self.callbacks.on_progress(Progress(0, 0, self.limit.seconds - left, left, text))

    def _by_simulation(self, earlier: EarlierRun) -> bool:
        """Measure messages, then the calls that a design chooses from simulations.

        Return whether any call was measured so, now or earlier.
        """
        if not self._can_simulate(earlier):
            return False
        decisions = self._decisions()
        points = candidates(self.wide, decisions)
        self._want(points)
        self.measurements = self.launches.messages(decisions, self.anew)
        for note in self.measurements.provenance.get("notes", ()):
            self._note(note)
        short = 2 * self.launches.starting + self.limit.slowdown * FINISHING
        if self.limit.left < short and not has_collectives(self.measurements):
            return False
        self.tables.simulate_by(self.measurements, decisions)
        if self.tables.simulator is not None:
            self._measure_rounds(points, decisions, self.tables.simulator)
        return self.tables.simulator is not None and has_collectives(self.measurements)

    def _can_simulate(self, earlier: EarlierRun) -> bool:
        """Return whether there is time for messages, and the simulation is compiled."""
        measured = earlier.calls and earlier.points  # only the table may be left to be made
        left, needed = (
            (self.limit.unspent, 2 * FINISHING) if measured else (self.limit.left, GUIDED)
        )
        if left < self.limit.slowdown * needed:
            self._note(
                "too little time to measure messages and to simulate: some calls are"
                " measured without that"
            )
            return False
        lacking = compile_within(
            COMPILING * left,
            lambda: self._note("compiling the simulation: this takes up to a minute, once"),
        )
        if lacking:
            self._note(f"{lacking}: some calls are measured without it")
        return not lacking

    def _decisions(self) -> Sequence[Decisions]:
        self._tell("asking what the library's default runs")
        seconds = ASKING * self.limit.left
        return known_decisions(self.out, self.wide, self.launcher, self._note, seconds)

    def _measure_rounds(
        self, points: Sequence[Point], decisions: Sequence[Decisions], simulator: Simulator
    ) -> None:
        """Measure round by round until the table is good enough or the time is spent."""
        assert self.measurements is not None
        offered = Offered(self.wide, self.constraints, decisions)
        rounds = Rounds(
            offered,
            simulator,
            self.launches,
            self.limit,
            self.request.fewest,
            self._note,
            self._tell,
        )
        for measurements, bound in rounds.results(points, self.measurements):
            self.measurements, self.bound = _whole(measurements), bound
            self._notice_busy()
            if not has_collectives(measurements):  # the bound says that nothing is known
                continue
            self.callbacks.on_round(bound, self.limit.elapsed)
            if rounds.whole and bound.upper <= self.goal.regret:
                break
            if self.tables.table is None:  # shows how long it takes, and remains if time runs out
                self.tables.make(self.measurements)

    def _directly(self) -> None:
        """Measure calls spread over all shapes and sizes, each with every algorithm, while there is
        time.
        """
        offered = Offered(replace(self.wide, segments=()), self.constraints)
        points = self._unmeasured()
        for first in range(0, len(points), DIRECT):
            few = points[first : first + DIRECT]
            tasks = [Task(point, offered(point), 0.0) for point in few]
            found = self.launches.alone(chosen_of(tasks))
            if found is None:
                return
            self.measurements = _whole(found)

    def _unmeasured(self) -> Sequence[Point]:
        """Return the calls of no long messages that the file lacks, in coarse-to-fine order."""
        points = candidates(self.wide)
        largest = max(DIRECT_LARGEST, min(point.nbytes for point in points))
        kept = read_partial(self.out)[1] if self.out.exists() else []
        done = {(one.subject, one.nodes, one.ppn, one.placement, one.nbytes) for one in kept}
        return [
            q
            for q in coarse_first([q for q in points if q.nbytes <= largest])
            if (q.collective, q.nodes, q.ppn, q.placement, q.nbytes) not in done
        ]

    def _finished(self, earlier: EarlierRun) -> Guided:
        """Make the table, and record in the file that the run has ended."""
        if self.measurements is None:
            self.measurements = self._without_launches(earlier)
        if not has_collectives(self.measurements):
            self._note("no call was measured in this time: a larger --budget measures some")
        table = self.tables.last(self.measurements)
        if self.out.exists():
            forget(self.out, TUNING)
        return Guided(self.measurements, self.tables.calibration, table, self.bound)

    def _without_launches(self, earlier: EarlierRun) -> Measurements:
        """Return the content of the file, or empty measurements if there is none."""
        if earlier.points + earlier.calls:
            return _whole(read_measurements(self.out))
        cluster = cluster_of(self.request, self.name)
        return _whole(Measurements(cluster, self.launcher.version(), self.about, ()))


def _whole(measurements: Measurements) -> Measurements:
    """Return the measurements without the record of an unfinished run."""
    about = {name: value for name, value in measurements.provenance.items() if name != TUNING}
    return replace(measurements, provenance=about)
