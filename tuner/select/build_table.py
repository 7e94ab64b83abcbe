"""The whole way from measurements and their calibration to a tuning table."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from types import ModuleType

from tuner import mpi_libraries
from tuner.base.atomic_io import from_record
from tuner.base.errors import InputError
from tuner.base.progress import Counted, quietly
from tuner.core.calibration import BORROWED, Calibration
from tuner.core.measurement import WANTED, Measurements
from tuner.core.table import NOTHING, Choice, Evidence, Rule, TuningTable
from tuner.mpi_libraries.default_algorithms import decisions_of
from tuner.select.build_rules import tabulate
from tuner.select.constraints import ANYTHING, Constraints
from tuner.select.dataset import Kind, Pair, Point, Row, Simulate, label, measured_pairs
from tuner.select.selector import Selector, train
from tuner.select.significance import Contest, expect, hold_all, repeated
from tuner.select.simulated_times import Simulator
from tuner.topology import Topology
from tuner.topology.readers import described

DESIGNED = "rounds"  # in the provenance of measurements whose points were chosen on the way


def make_table(
    measurements: Measurements,
    calibration: Calibration | None,
    progress: Counted = quietly,
    topology: Topology | None = None,
    shapes: Collection[tuple[int, int]] = (),
    constraints: Constraints = ANYTHING,
    cores: int = 1,
    simulator: Simulator | None = None,
) -> tuple[Sequence[Row], TuningTable]:
    """Return the labelled rows and the table, of choices that the library's rules can say.

    calibration of the measurements; None: nothing is simulated
    topology    of the cluster that was measured; one node of its cores unless it is given
    shapes      (nodes, ppn) for which rules are wanted, measured or not
    cores       for simulations: with more, a script that calls this guards its main module, as
                `multiprocessing` asks
    simulator   of the calibration, with what it has simulated before; by default another one

    Rules are also made for the calls that the measurements say a table is for. Raises InputError
    when calibration, topology and measurements do not belong together, when the ranks do not fit on
    the topology, and for constraints that cannot be met.
    """
    library = mpi_libraries.named(measurements.library)
    simulator = simulator or _simulator(measurements, calibration, topology)
    simulate: Simulate = simulator or (lambda _point, _choice: math.nan)
    doubted = simulator.doubted if simulator else lambda _: False
    pairs = measured_pairs(measurements)
    constraints.require_known(measurements.library, _sayable(pairs, library))
    if simulator:
        simulator.ahead(pairs, progress, cores)
    every = label(measurements, simulate)
    rows = [row for row in every if library.in_rules(row.point.key().collective, row.choice)]
    designed = bool(measurements.provenance.get(DESIGNED))
    trained = partial(train, simulate=simulate, designed=designed, doubted=doubted)
    selector = trained(rows)
    told = _told(measurements)
    wanted = {*told, *_calls(rows, shapes, selector)} - {row.point for row in rows}
    contests = hold_all(rows, designed=designed)
    solid = [row for row in rows if repeated(row)]
    if solid:
        believer = selector if len(solid) == len(rows) else trained(solid)
        contests += _expected(wanted, solid, believer, library)
    table = tabulate(
        measurements,
        contests,
        selector,
        library.order_safe,
        constraints,
        redirected=library.redirected,
    )
    return rows, _noted(table, calibration)


def _simulator(
    measurements: Measurements, calibration: Calibration | None, topology: Topology | None
) -> Simulator | None:
    if calibration is None:
        return None
    _require_together(calibration, measurements)
    decisions = decisions_of(measurements.provenance, measurements.library, "measurements")
    where = described(measurements.cluster, calibration, topology)
    return Simulator(calibration, where, decisions)


def _noted(table: TuningTable, calibration: Calibration | None) -> TuningTable:
    """Return the table, whose provenance says which costs were not measured."""
    notes = list(calibration.borrowed.values()) if calibration else []
    if not notes:
        return table
    provenance = {**table.provenance, BORROWED: notes}
    return TuningTable(table.cluster, table.library, table.rules, provenance)


def default_table(measurements: Measurements, most: int | None = None) -> TuningTable:
    """Return a table that leaves everything to the library, with a rule for each call that was
    measured or that the measurements say a table is for; at most so many.
    """
    pairs = measured_pairs(measurements)
    keys = dict.fromkeys(point.key() for point in (*_told(measurements), *(p for p, _ in pairs)))
    rules = tuple(Rule(key, 0, math.inf, Choice(), Evidence(NOTHING)) for key in keys)[:most]
    provenance = {"probe": dict(measurements.provenance)}
    return TuningTable(measurements.cluster, measurements.library, rules, provenance)


def _require_together(calibration: Calibration, measurements: Measurements) -> None:
    theirs = (calibration.cluster, calibration.library)
    if theirs != (measurements.cluster.name, measurements.library):
        raise InputError(
            f"the calibration is of {theirs[1]} on {theirs[0]}, the measurements of"
            f" {measurements.library} on {measurements.cluster.name}: calibrate these measurements"
        )


def _sayable(pairs: Iterable[Pair], library: ModuleType) -> Iterator[tuple[str, Choice]]:
    """The choices for each collective that the library's rules can say."""
    for point, choice in pairs:
        if library.in_rules(point.key().collective, choice):
            yield point.collective, choice


def _told(measurements: Measurements) -> list[Point]:
    """What a table is for, as `tuner.probe.multi_host.probe_cluster` keeps it."""
    try:
        told = [from_record(Point, one) for one in measurements.provenance.get(WANTED, [])]
        for point in told:
            point.key()  # of a collective that tables know
            if min(point.nodes, point.ppn) < 1 or not (
                point.p < 2**31 and 0 <= point.nbytes < 2**63
            ):
                raise ValueError(f"there is no {point}")
        return told
    except (ValueError, TypeError, InputError) as reason:
        raise InputError(
            f"measurements of {measurements.cluster.name}: the calls that a table is for are"
            f" damaged: {reason}; delete {WANTED!r} in the first line or probe again"
        ) from None


def _calls(
    rows: Iterable[Row], shapes: Iterable[tuple[int, int]], selector: Selector
) -> set[Point]:
    """What was measured of any shape, on these."""
    asked = {
        Point(collective, nodes, ppn, memory, 0, placement)
        for collective, memory, placement in {row.point.kind for row in rows}
        for nodes, ppn in shapes
    }
    return {call.at(nbytes) for call in asked for nbytes in selector.support.ladder(call)}


def _expected(
    points: Iterable[Point], rows: Iterable[Row], selector: Selector, library: ModuleType
) -> list[Contest]:
    """Of points that were not measured, and of which something is believed."""
    known: dict[Kind, dict[Choice, None]] = defaultdict(dict)
    for row in rows:
        known[row.point.kind][row.choice] = None
    contests = [
        expect(point, selector, _offered(library, point, known[point.kind]))
        for point in sorted(points)
    ]
    return [contest for contest in contests if contest is not None]


def _offered(library: ModuleType, point: Point, choices: Iterable[Choice]) -> Collection[Choice]:
    """What would really run there under its own name."""
    segments = sorted({choice.params.get("segment", 0) for choice in choices} - {0})
    collective = point.key().collective
    return frozenset(library.candidates(collective, point.p, point.nbytes, segments))
