"""The complete path from measurements and their calibration to a tuning table."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from tuner import mpi_libraries
from tuner.base.atomic_io import dataclass_from_record
from tuner.base.errors import InputError
from tuner.base.progress import ProgressCallback, no_progress
from tuner.core.calibration import BORROWED_KEY, Calibration
from tuner.core.measurement import REQUESTED_CALLS_KEY, Measurements
from tuner.core.table import (
    DISTURBED_KEY,
    NO_EVIDENCE,
    AlgorithmChoice,
    Evidence,
    Rule,
    TuningTable,
)
from tuner.mpi_libraries.default_algorithms import default_algorithms_from_provenance
from tuner.select.build_rules import table_from_comparisons
from tuner.select.constraints import UNCONSTRAINED, Constraints
from tuner.select.dataset import (
    BATCHES_KEY,
    CallPoint,
    Observation,
    PointConfig,
    build_observations,
    incorrect_algorithms,
    is_incorrect,
    measured_pairs,
    no_simulation,
)
from tuner.select.disturbances import ScreenedLaunches, screen_launches
from tuner.select.selector import Selector, train
from tuner.select.significance import (
    Comparison,
    compare_all_with_default,
    has_repetitions,
    predict_comparison,
)
from tuner.select.simulated_times import Simulator
from tuner.topology import Topology
from tuner.topology.readers import topology_for


def make_table(
    measurements: Measurements,
    calibration: Calibration | None,
    progress: ProgressCallback = no_progress,
    topology: Topology | None = None,
    shapes: Collection[tuple[int, int]] = (),
    constraints: Constraints = UNCONSTRAINED,
    cores: int = 1,
    simulator: Simulator | None = None,
) -> tuple[Sequence[Observation], TuningTable]:
    """Return the observations and the table, with choices that the library's rules can express.

    calibration of the measurements; None: nothing is simulated
    topology    of the measured cluster; default: one node with its cores
    shapes      (nodes, ppn) to make rules for, measured or not
    cores       processes for simulations; with more than one, a script that calls this must guard
                its main module, as `multiprocessing` requires
    simulator   of the calibration, with its cache; default: a new one

    Rules are also made for the calls that the measurements request. Raises InputError when
    calibration, topology and measurements do not belong together, when the ranks do not fit on the
    topology, and for constraints that cannot be met.
    """
    library = mpi_libraries.library_module(measurements.library)
    simulator = simulator or _simulator(measurements, calibration, topology)
    pairs = measured_pairs(measurements)
    usable = _expressible(pairs, measurements.library)
    constraints.check_excluded_names(measurements.library, usable)
    if simulator:
        simulator.prefetch(pairs, progress, cores)
    every = build_observations(measurements, simulator or no_simulation)
    rows = [row for row in every if (row.point.collective, row.choice) in usable]
    designed = bool(measurements.provenance.get(BATCHES_KEY))
    screened = screen_launches(rows if designed else ())
    rows = [*screened.observations] if designed else rows
    table = default_table(measurements, constraints.max_rules)
    if screened.disturbed and not rows:  # nothing else was measured
        return rows, _with_notes(table, calibration, screened)
    trainer = _trainer(simulator, designed)
    selector = trainer(rows)
    requested = {*_requested_calls(measurements), *_calls_on_shapes(rows, shapes, selector)}
    measured = {row.point for row in rows}
    wanted = requested | measured if designed else requested - measured
    comparisons = [] if designed else compare_all_with_default(rows)
    comparisons += _expected_comparisons(measurements, rows, wanted, selector, trainer)
    if comparisons or not designed:
        own = table_from_comparisons(measurements, comparisons, selector, library, constraints)
        table = _with_default_rules(own, table, constraints.max_rules) if designed else own
    return rows, _with_notes(table, calibration, screened)


def _expected_comparisons(
    measurements: Measurements,
    rows: Sequence[Observation],
    wanted: Collection[CallPoint],
    selector: Selector,
    trainer: Callable[[Sequence[Observation]], Selector],
) -> list[Comparison]:
    """Return what is expected of the wanted calls from observations with repetitions."""
    solid = [row for row in rows if has_repetitions(row)]
    if not solid:
        return []
    expecting = selector if len(solid) == len(rows) else trainer(solid)
    library = mpi_libraries.library_module(measurements.library)
    wrong = incorrect_algorithms(measurements)
    comparisons = []
    for point in sorted(wanted):
        known = expecting.posterior_model(point.kind).choices
        segments = sorted({choice.params.get("segment", 0) for choice in known} - {0})
        runnable = library.candidates(point.key().collective, point.p, point.nbytes, segments)
        usable = {one for one in runnable if not is_incorrect((point, one), wrong)}
        comparisons.append(predict_comparison(point, expecting, usable))
    return [comparison for comparison in comparisons if comparison is not None]


def _trainer(
    simulator: Simulator | None, designed: bool
) -> Callable[[Sequence[Observation]], Selector]:
    """Return a function that trains selectors which expect what is simulated.

    designed    whether an experiment design chose what was measured
    """
    if simulator is None:
        return partial(train, simulate=no_simulation, adaptive=designed)
    return partial(
        train,
        simulate=simulator,
        adaptive=designed,
        uses_unmeasured_costs=simulator.uses_unmeasured_costs,
        default_runs=simulator.default_runs,
    )


def _with_default_rules(
    table: TuningTable, default: TuningTable, max_rules: int | None
) -> TuningTable:
    """Return the table with rules for the default for calls of which too little was measured."""
    lacking = [rule for rule in default.rules if rule.key not in table.keys]
    room = None if max_rules is None else max_rules - len(table.rules)
    rules = (*table.rules, *lacking[:room])
    return TuningTable(table.cluster, table.library, rules, table.provenance)


def _simulator(
    measurements: Measurements, calibration: Calibration | None, topology: Topology | None
) -> Simulator | None:
    if calibration is None:
        return None
    theirs = (calibration.cluster, calibration.library)
    if theirs != (measurements.cluster.name, measurements.library):
        raise InputError(
            f"the calibration is of {theirs[1]} on {theirs[0]}, the measurements of"
            f" {measurements.library} on {measurements.cluster.name}: calibrate these measurements"
        )
    decisions = default_algorithms_from_provenance(
        measurements.provenance, measurements.library, "measurements"
    )
    where = topology_for(measurements.cluster, calibration, topology)
    return Simulator(calibration, where, decisions)


def _with_notes(
    table: TuningTable, calibration: Calibration | None, screened: ScreenedLaunches
) -> TuningTable:
    """Return the table with notes in its provenance of costs not measured and of disturbances."""
    notes = {
        BORROWED_KEY: list(calibration.borrowed_costs.values()) if calibration else [],
        DISTURBED_KEY: screened.record(),
    }
    provenance = {**table.provenance, **{key: told for key, told in notes.items() if told}}
    return TuningTable(table.cluster, table.library, table.rules, provenance)


def default_table(measurements: Measurements, max_rules: int | None = None) -> TuningTable:
    """Return a table that uses the library default for every measured or requested call.

    max_rules   largest number of rules
    """
    pairs = measured_pairs(measurements)
    keys = dict.fromkeys(
        point.key() for point in (*_requested_calls(measurements), *(p for p, _ in pairs))
    )
    rules = tuple(Rule(key, 0, math.inf, AlgorithmChoice(), Evidence(NO_EVIDENCE)) for key in keys)[
        :max_rules
    ]
    provenance = {"probe": dict(measurements.provenance)}
    return TuningTable(measurements.cluster, measurements.library, rules, provenance)


def _expressible(
    pairs: Iterable[PointConfig], library: str
) -> Collection[tuple[str, AlgorithmChoice]]:
    """Return the collectives and choices that the library's rules can express."""
    known = mpi_libraries.library_module(library)
    return {
        (point.collective, choice)
        for point, choice in pairs
        if known.is_expressible(point.key().collective, choice, library)
    }


def _requested_calls(measurements: Measurements) -> list[CallPoint]:
    """Return the calls that `tuner.probe.multi_host.probe_cluster` recorded as wanted."""
    try:
        told = [
            dataclass_from_record(CallPoint, one)
            for one in measurements.provenance.get(REQUESTED_CALLS_KEY, [])
        ]
        for point in told:
            point.key()  # raises ValueError for a collective without tables
            if min(point.nodes, point.ppn) < 1 or not (
                point.p < 2**31 and 0 <= point.nbytes < 2**63
            ):
                raise ValueError(f"expected 1 to 2^31 - 1 ranks, 0 to 2^63 - 1 bytes, not {point}")
        return told
    except (ValueError, TypeError, InputError) as reason:
        raise InputError(
            f"measurements of {measurements.cluster.name}: the calls that a table is for are"
            f" damaged: {reason}; delete {REQUESTED_CALLS_KEY!r} in the first line or probe again"
        ) from None


def _calls_on_shapes(
    observations: Iterable[Observation], shapes: Collection[tuple[int, int]], selector: Selector
) -> set[CallPoint]:
    """Return the calls that were measured on any shape, on the shapes given."""
    asked = {
        CallPoint(collective, nodes, ppn, memory, 0, placement)
        for collective, memory, placement in {row.point.kind for row in observations}
        for nodes, ppn in shapes
    }
    return {
        call.with_size(nbytes)
        for call in asked
        for nbytes in selector.coverage.measured_sizes(call)
    }
