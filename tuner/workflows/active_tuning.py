"""Tune a cluster with few probes within a time limit.

Messages are measured first, then batches of collective calls. Each batch is chosen from the results
so far, until the table is good enough or the budget is spent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tuner.base.errors import InputError
from tuner.base.units import format_time, plural
from tuner.core.calibration import Calibration
from tuner.core.measurement import (
    REQUESTED_CALLS_KEY,
    Measurement,
    Measurements,
    launches_of_calls,
    read_measurements,
    read_partial,
)
from tuner.core.path_classes import omit_default_placement
from tuner.core.table import AlgorithmChoice, TuningTable
from tuner.launch import Launcher
from tuner.mpi_libraries.default_algorithms import DefaultAlgorithms
from tuner.probe.batches import read_provenance
from tuner.probe.monitor import ProbeProgress
from tuner.probe.multi_host import (
    EarlierRun,
    check_probe,
    earlier_run,
    plan_cluster,
    provisional_cluster,
)
from tuner.probe.probe_file import (
    BEGAN_KEY,
    SPENT_KEY,
    TUNING_KEY,
    interrupted_seconds,
    remove_provenance,
)
from tuner.probe.probe_spec import ProbeSpec
from tuner.select.constraints import UNCONSTRAINED, Constraints
from tuner.select.dataset import CallPoint, Observation, build_observations, no_simulation
from tuner.select.disturbances import screen_launches
from tuner.select.experiment_design import Experiment, RegretBound
from tuner.select.simulated_times import Simulator
from tuner.sim.warmup import compile_within
from tuner.workflows.batches import (
    MIN_MEASURING_S,
    START_S,
    TABLE_S,
    MeasurementBatches,
    ProbeLaunches,
)
from tuner.workflows.candidates import (
    CandidateGenerator,
    all_shapes,
    candidate_points,
    chosen_calls,
    discover_defaults,
    order_points,
)
from tuner.workflows.table_building import TableBuilder, has_collectives
from tuner.workflows.time_limit import BUSY_SLOWDOWN, TimeLimit, busy_message

MAX_COMPILE_SHARE = 0.25  # share of the time left for compiling, once for each installation
MAX_DISCOVERY_SHARE = 0.15  # largest share of the time left for finding out the default algorithms
# Seconds on an idle computer; with less, messages and simulations do not pay off.
MIN_SIMULATION_S = 20.0
# Without simulations.
DIRECT_BATCH_CALLS = 24  # calls of a launch
DIRECT_MAX_BYTES = 2**17  # largest message that is measured first
BUDGET_STEP_S = 5.0  # seconds; a suggested budget is rounded up to a multiple of this


@dataclass(frozen=True)
class StoppingRule:
    """The condition under which a tuning run stops.

    It stops when the budget is spent, when the mean regret is below the target with 95 % certainty,
    or when the mean regret is expected to be so much lower than that of the library's default.

    budget          seconds
    target_regret   mean relative regret, such as 0.02
    saved_share     share of the default's mean regret that is enough to save
    min_launches    launches that time calls before the regret decides
    """

    budget: float
    target_regret: float
    saved_share: float = 1.0
    min_launches: int = 1

    def is_met(self, bound: RegretBound) -> bool:
        """Return whether a table of this regret is good enough."""
        enough = (1.0 - self.saved_share) * bound.default
        return bound.upper <= self.target_regret or bound.expected < enough


@dataclass(frozen=True)
class TuningResult:
    """The result of a tuning run.

    calibration     None if no messages were measured and no topology states their cost
    regret_bound    bound of the mean regret; None if nothing was simulated
    observations    what the table was made from, with simulated times
    """

    measurements: Measurements
    calibration: Calibration | None
    table: TuningTable
    regret_bound: RegretBound | None
    observations: Sequence[Observation] = ()


@dataclass(frozen=True)
class Callbacks:
    """Functions that a tuning run calls to report its progress.

    on_progress     receives the present step and the time left
    on_plan         receives what the next batch measures
    on_measured     receives all series so far, after each batch
    on_batch        receives the regret bound and the seconds spent, after each batch
    on_note         receives a sentence about anything that was noticed or left out
    """

    on_progress: Callable[[ProbeProgress], None] = lambda _: None
    on_plan: Callable[[Sequence[Experiment]], None] = lambda _: None
    on_measured: Callable[[Sequence[Measurement]], None] = lambda _: None
    on_batch: Callable[[RegretBound, float], None] = lambda _bound, _spent: None
    on_note: Callable[[str], None] = lambda _: None


NO_CALLBACKS = Callbacks()


def run_active_tuning(
    out: Path,
    request: ProbeSpec,
    launcher: Launcher,
    stopping_rule: StoppingRule,
    *,
    constraints: Constraints = UNCONSTRAINED,
    limit: TimeLimit | None = None,
    callbacks: Callbacks = NO_CALLBACKS,
) -> TuningResult:
    """Measure into `out` and make a table for all shapes and sizes of `request`.

    limit       wall-clock limit; by default `stopping_rule.budget` seconds from now

    The same call resumes an interrupted run with the rest of its budget, and adds another budget to
    a finished one. There is a table for every budget: if no call was measured, it leaves all calls
    to the library's default. Raises InputError and ProbeError as `probe_cluster` does, before any
    ranks start where possible, and InputError for a budget that does not even suffice for starting
    them.
    """
    limit = limit or TimeLimit(stopping_rule.budget)
    return _ActiveTuning(out, request, launcher, stopping_rule, limit, constraints, callbacks).run()


@dataclass
class _ActiveTuning:
    """The state of one tuning run."""

    out: Path
    request: ProbeSpec
    launcher: Launcher
    stopping_rule: StoppingRule
    limit: TimeLimit
    constraints: Constraints
    callbacks: Callbacks
    measurements: Measurements | None = None
    regret_bound: RegretBound | None = None
    reported_notes: set[str] = field(default_factory=set)
    lacks_compilation: bool = False

    def __post_init__(self) -> None:
        parts = tuple(part for part in self.request.parts if part != "collectives")
        asked = replace(self.request, parts=parts)  # collective calls are chosen during the run
        self.full_request = replace(self.request, shapes=all_shapes(self.request))
        self.provenance: dict[str, Any] = {}
        self.has_reported_busy = False
        self.launches = ProbeLaunches(
            self.out,
            asked,
            self.launcher,
            self.limit,
            self.provenance,
            lambda progress: self._report_step(progress.text),
        )
        self.tables = TableBuilder(
            self.request.topology,
            self.constraints,
            self.limit,
            self._report_step,
            self._note,
            self.request.profile if self.request.only_profile else (),
        )

    def run(self) -> TuningResult:
        self._check()
        earlier = self._resume()
        self._require_time(earlier)
        self._report_if_busy()
        if not self._measure_by_simulation(earlier):
            self._measure_directly(DIRECT_MAX_BYTES)
            # What was compiled so far is kept, so that the rest takes less time.
            enough = self.limit.slowdown * MIN_SIMULATION_S
            retries = self.lacks_compilation and self.limit.remaining >= enough
            if not (retries and self._measure_by_simulation(earlier)):
                self._measure_directly(math.inf)
                self._measure_again()
        return self._finish(earlier)

    def _check(self) -> None:
        """Raise InputError for every error that can be found without starting ranks."""
        check_probe(self.out, self.launches.request, self.launcher)
        choices = ((one, AlgorithmChoice()) for one in self.request.collectives)
        self.constraints.check_excluded_names(self.request.library, choices)
        keys = {point.key() for point in candidate_points(self.full_request)}
        most = self.constraints.max_rules
        if most is not None and most < len(keys):
            raise InputError(
                f"a table for these collectives and shapes has {len(keys)} rules at least, not"
                f" {most}: allow more (--max-rules), or name fewer"
            )

    def _resume(self) -> EarlierRun:
        """Read and report the results of an earlier run."""
        record = read_provenance(self.out).get(TUNING_KEY)
        spent = interrupted_seconds(self.out, record) if isinstance(record, dict) else 0.0
        self.is_new_run = record is None
        self.limit.spent_before = min(spent, self.stopping_rule.budget)
        began = time.time() - self.limit.elapsed
        self.provenance[TUNING_KEY] = {BEGAN_KEY: began, SPENT_KEY: self.limit.spent_before}
        self._record_calls(candidate_points(self.full_request))
        earlier = earlier_run(self.out, plan_cluster(self.launches.request))
        if str(earlier):
            self._note(str(earlier))
        return earlier

    def _record_calls(self, points: Sequence[CallPoint]) -> None:
        """Record in the file which calls the table is for."""
        self.provenance[REQUESTED_CALLS_KEY] = [
            omit_default_placement(asdict(point)) for point in points
        ]

    def _require_time(self, earlier: EarlierRun) -> None:
        """Raise InputError if no call was measured before and there is no time for one now."""
        work = START_S + MIN_MEASURING_S + TABLE_S / 2
        if self.limit.remaining_this_run < work and not earlier.measured_calls:
            ranks = plural(self.request.nodes * self.request.ppn, "rank")
            least = self.limit.elapsed + self.limit.slowdown * work
            raise InputError(
                f"{format_time(self.limit.seconds)} do not suffice to measure anything: starting"
                f" {ranks} and making a table take about {math.ceil(least)} s here; give"
                f" --budget {math.ceil(1.5 * least / BUDGET_STEP_S) * BUDGET_STEP_S:.0f}s or more"
            )

    def _report_if_busy(self) -> None:
        """Report once that the machine is busy, if it is."""
        if self.limit.slowdown >= BUSY_SLOWDOWN and not self.has_reported_busy:
            self.has_reported_busy = True
            self._note(busy_message(self.limit.slowdown))

    def _note(self, text: str) -> None:
        """Report a sentence, once."""
        if text not in self.reported_notes:
            self.reported_notes.add(text)
            self.callbacks.on_note(text)

    def _report_step(self, text: str) -> None:
        """Report the present step and how much of the budget is spent."""
        left = max(self.limit.remaining, 0.0)
        self.callbacks.on_progress(ProbeProgress(0, 0, self.limit.seconds - left, left, text))

    def _measure_by_simulation(self, earlier: EarlierRun) -> bool:
        """Measure messages, then the calls that an experiment design chooses from simulations.

        Return whether there are measurements of calls from this run or an earlier one, and a
        simulator.
        """
        if not self._can_simulate(earlier):
            return False
        decisions = self._discover_defaults()
        points = candidate_points(self.full_request, decisions)
        self._record_calls(points)
        self.measurements = self.launches.measure_messages(decisions, self.is_new_run)
        for note in self.measurements.provenance.get("notes", ()):
            self._note(note)
        short = 2 * self.launches.start_seconds + self.limit.slowdown * TABLE_S
        if self.limit.remaining < short and not has_collectives(self.measurements):
            return False
        self.tables.set_up_simulator(self.measurements, decisions)
        if self.tables.simulator is not None:
            self._measure_batches(points, decisions, self.tables.simulator)
        return self.tables.simulator is not None and has_collectives(self.measurements)

    def _can_simulate(self, earlier: EarlierRun) -> bool:
        """Compile the simulation; return whether there is time for messages and it is compiled."""
        measured = (
            earlier.measured_calls and earlier.measured_points
        )  # then perhaps only the table is left to be made
        left, needed = (
            (self.limit.remaining_this_run, 2 * TABLE_S)
            if measured
            else (self.limit.remaining, MIN_SIMULATION_S)
        )
        if left < self.limit.slowdown * needed:
            self._note(
                "too little time to measure messages and to simulate: some calls are"
                " measured without that"
            )
            return False
        lacking = compile_within(
            MAX_COMPILE_SHARE * left,
            lambda: self._note("compiling the simulation: this takes up to a minute, once"),
        )
        self.lacks_compilation = bool(lacking)
        if lacking:
            self._note(f"{lacking}: some calls are measured without it")
        return not lacking

    def _discover_defaults(self) -> Sequence[DefaultAlgorithms]:
        self._report_step("asking what the library's default runs")
        seconds = MAX_DISCOVERY_SHARE * self.limit.remaining
        return discover_defaults(self.out, self.full_request, self.launcher, self._note, seconds)

    def _measure_batches(
        self,
        points: Sequence[CallPoint],
        decisions: Sequence[DefaultAlgorithms],
        simulator: Simulator,
    ) -> None:
        """Measure batch by batch until the table is good enough or the time is spent."""
        assert self.measurements is not None
        offered = CandidateGenerator(self.full_request, self.constraints, decisions)
        rounds = MeasurementBatches(
            offered,
            simulator,
            self.launches,
            self.limit,
            self.request.min_repetitions,
            self._note,
            self._report_step,
            self.callbacks.on_plan,
        )
        for measurements, bound in rounds.iter_results(points, self.measurements):
            self.measurements, self.regret_bound = _without_run_record(measurements), bound
            self.callbacks.on_measured(measurements.series)
            self._report_if_busy()
            if not has_collectives(measurements):  # the bound is not informative
                continue
            self.callbacks.on_batch(bound, self.limit.elapsed)
            enough = launches_of_calls(measurements.series) >= self.stopping_rule.min_launches
            is_known = rounds.covers_all_points and not rounds.has_doubts
            if enough and is_known and self.stopping_rule.is_met(bound):
                break
            if self.tables.table is None:  # times this step, and remains if time runs out
                self.tables.build(self.measurements)

    def _measure_directly(self, largest: float) -> None:
        """Measure calls of up to `largest` bytes without simulations while there is time.

        The calls are spread over all shapes and sizes; each is measured with every candidate.
        """
        offered = CandidateGenerator(replace(self.full_request, segments=()), self.constraints)
        points = self._unmeasured_points(largest)
        for first in range(0, len(points), DIRECT_BATCH_CALLS):
            few = points[first : first + DIRECT_BATCH_CALLS]
            if not self._measure_without_messages({point: offered(point) for point in few}):
                return

    def _measure_again(self) -> None:
        """Measure the calls once more that were disturbed in their launches, if there is time."""
        if self.measurements is not None:
            rows = build_observations(self.measurements, no_simulation)
            offered = CandidateGenerator(replace(self.full_request, segments=()), self.constraints)
            doubtful = screen_launches(rows).doubtful.keys() & {
                *candidate_points(self.full_request)
            }
            if doubtful:
                self._measure_without_messages({point: offered(point) for point in doubtful})

    def _measure_without_messages(
        self, calls: Mapping[CallPoint, Sequence[AlgorithmChoice]]
    ) -> bool:
        """Measure the default and these choices of calls; return whether there was time."""
        tasks = [
            Experiment(point, tuple(dict.fromkeys((AlgorithmChoice(), *choices))), 0.0)
            for point, choices in calls.items()
        ]
        self.callbacks.on_plan(tasks)
        found = self.launches.measure_without_messages(chosen_calls(tasks))
        if found is None:
            return False
        self.measurements = _without_run_record(found)
        self.callbacks.on_measured(found.series)
        return True

    def _unmeasured_points(self, largest: float) -> Sequence[CallPoint]:
        """Return the calls of up to `largest` bytes that the file lacks, from coarse to fine.

        Where all calls are larger, those of the smallest size are returned.
        """
        points = candidate_points(self.full_request)
        largest = max(largest, min(point.nbytes for point in points))
        kept = read_partial(self.out)[1] if self.out.exists() else []
        done = {(one.subject, one.nodes, one.ppn, one.placement, one.nbytes) for one in kept}
        return [
            q
            for q in order_points(
                [q for q in points if q.nbytes <= largest], self.full_request.profile
            )
            if (q.collective, q.nodes, q.ppn, q.placement, q.nbytes) not in done
        ]

    def _finish(self, earlier: EarlierRun) -> TuningResult:
        """Make the table, and record in the file that the run has ended."""
        if self.measurements is None:
            self.measurements = self._existing_measurements(earlier)
        if not has_collectives(self.measurements):
            self._note("no call was measured in this time: a larger --budget measures some")
        table = self.tables.final_table(self.measurements)
        if self.out.exists():
            remove_provenance(self.out, TUNING_KEY)
        return TuningResult(
            self.measurements,
            self.tables.calibration,
            table,
            self.regret_bound,
            self.tables.observations,
        )

    def _existing_measurements(self, earlier: EarlierRun) -> Measurements:
        """Return the content of the file, or empty measurements if there is none."""
        if earlier.measured_points + earlier.measured_calls:
            return _without_run_record(read_measurements(self.out))
        cluster, version = provisional_cluster(self.request), self.launcher.version()
        return _without_run_record(Measurements(cluster, version, self.provenance, ()))


def _without_run_record(measurements: Measurements) -> Measurements:
    """Return the measurements without the record of an unfinished run."""
    about = {name: value for name, value in measurements.provenance.items() if name != TUNING_KEY}
    return replace(measurements, provenance=about)
