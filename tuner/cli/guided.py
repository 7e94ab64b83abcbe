"""Tuning a cluster with few probes: messages first, then rounds of collectives, each of them chosen
by what is known so far, until the table is good enough or the time is spent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

from tuner import libraries
from tuner.calibrate import calibrate
from tuner.cli.decisions import known_decisions, switches
from tuner.collective import Collective
from tuner.cost import Calibration
from tuner.errors import InputError
from tuner.libraries.decisions import Decisions, runs
from tuner.measurement import Measurements
from tuner.probe.calls import ITEM, divisible
from tuner.probe.cluster import check_probe, probe_chosen, probe_cluster
from tuner.probe.plan import WARM_UP
from tuner.probe.request import Request, Shape, shapes
from tuner.probe.rounds import Chosen
from tuner.probe.watch import Progress
from tuner.runtime.launch import Launcher
from tuner.select.constraints import ANYTHING, Constraints
from tuner.select.dataset import Point, Row, Wrong, label, wrong_of
from tuner.select.design import Bound, Design
from tuner.select.make import make_table
from tuner.select.offers import Task
from tuner.select.predict import Simulator
from tuner.sim.compiled import compiling
from tuner.sim.cores import usable
from tuner.table import Choice, TuningTable
from tuner.topologies import described
from tuner.topology import HOST, Topology
from tuner.units import format_time

MOST_HOSTS = 16  # of which every number is a candidate to be measured and gets rules
MESSAGES = 0.3  # of the budget at most: everything is predicted from them
ROUND = 0.1  # of the budget at most: after a look at the results the next round is better chosen
PATIENCE = 2.0  # times that: ranks take seconds to start, and calls longer than was believed
APART = 4.0  # sizes by so much leave room for a size between that is half as far from both
LEAST = 60.0  # seconds of a budget that is advised
ROUGH = 1.0  # relative half-width: what deserves more repetitions is chosen again
PER_REPETITION = 5e-3  # s besides the call itself: agreeing on a start, and waiting for it


@dataclass(frozen=True)
class Goal:
    """When to stop: `budget` seconds of measuring are spent, or with 95 % certainty the mean regret
    is below `regret`."""

    budget: float
    regret: float


@dataclass(frozen=True)
class Guided:
    """What came of it."""

    measurements: Measurements
    calibration: Calibration
    table: TuningTable
    bound: Bound


def guided(
    out: Path,
    request: Request,
    launcher: Launcher,
    goal: Goal,
    *,
    name: str = "",
    constraints: Constraints = ANYTHING,
    on_progress: Callable[[Progress], None] = lambda _: None,
    on_round: Callable[[Bound, float], None] = lambda _bound, _spent: None,
    on_note: Callable[[str], None] = lambda _: None,
) -> Guided:
    """Measure into `out` and make a table for all shapes and sizes of `request`.

    on_round    told what the table would be worth, and the seconds spent
    on_note     told what could not be found out, and what was noticed about the messages

    Killed, the same call resumes; the time that was spent before does not count again. Raises
    InputError and ProbeError as `probe_cluster` and `calibrate` do, before any ranks where it can.
    """
    begin, topology = time.monotonic() - compiling(), request.topology
    asked, wide = _without_collectives(request), replace(request, shapes=_all_shapes(request))
    _check(out, asked, launcher, constraints, name)
    known = known_decisions(out, wide, launcher, on_note)
    points, offered = candidates(wide, known), Offered(wide, constraints, known)
    measurements = probe_cluster(
        out, asked, launcher, name=name, budget=MESSAGES * goal.budget, decisions=known,
        wanted=[asdict(point) for point in points], on_progress=on_progress,
    )  # fmt: skip
    for note in measurements.provenance.get("notes", ()):
        on_note(note)
    first = _calibrated(_first_launch(measurements), topology, goal)
    simulate, grid = Simulator(*first, known), {point: offered(point) for point in points}
    design = Design(grid, simulate, lambda seconds: _price(request, seconds))
    while True:
        rows = label(measurements, simulate)
        grid |= _learned(design, rows, wrong_of(measurements), grid, offered)
        bound, spent = design.bound(), time.monotonic() - compiling() - begin
        if rows:  # before that a bound only says that nothing is known
            on_round(bound, spent)
        left = goal.budget - spent
        tasks = design.next(min(left, ROUND * goal.budget)) if left > 0 else ()
        if bound.upper <= goal.regret or not tasks:
            break
        measurements = probe_chosen(
            out, asked, launcher, _chosen(tasks), name=name,
            budget=min(left, PATIENCE * ROUND * goal.budget), target=ROUGH,
            on_progress=on_progress,
        )  # fmt: skip
    return _made(measurements, goal, topology, constraints, bound)


def _made(
    measurements: Measurements,
    goal: Goal,
    topology: Topology | None,
    constraints: Constraints,
    bound: Bound,
) -> Guided:
    """Of everything that was measured: what anybody makes of the file. Raises InputError where that
    is no collective.
    """
    if not any(one.kind == "collective" for one in measurements.series):
        raise InputError(_too_little(goal, "messages and collectives"))
    calibration, _ = _calibrated(measurements, topology, goal)
    _, table = make_table(
        measurements, calibration, topology=topology, constraints=constraints, cores=usable()
    )
    return Guided(measurements, calibration, table, bound)


def _check(
    out: Path, asked: Request, launcher: Launcher, constraints: Constraints, name: str
) -> None:
    """Whatever needs no ranks to be known."""
    check_probe(out, asked, launcher, name=name)
    constraints.require_known(asked.library, ((one, Choice()) for one in asked.collectives))


def _without_collectives(request: Request) -> Request:
    """These are chosen on the way."""
    parts = tuple(part for part in request.parts if part != "collectives")
    return replace(request, parts=parts)


def _first_launch(measurements: Measurements) -> Measurements:
    """What the first round was chosen by, also for who goes on with a file of several."""
    first = tuple(one for one in measurements.series if one.launch == 0)
    return replace(measurements, series=first)


def _calibrated(
    measurements: Measurements, topology: Topology | None, goal: Goal
) -> tuple[Calibration, Topology]:
    """By the messages, and the cluster as they show it where nobody has described it."""
    if not any(one.kind == "pingpong" for one in measurements.series):
        raise InputError(_too_little(goal, "the messages between the hosts"))
    calibration = calibrate(measurements, topology)
    return calibration, described(measurements.cluster, calibration, topology)


def _too_little(goal: Goal, what: str) -> str:
    """A sentence."""
    more = format_time(max(2 * goal.budget, LEAST))
    return (
        f"{format_time(goal.budget)} do not suffice for {what}: the same command with a larger"
        f" --budget, such as {more}, goes on"
    )


def candidates(request: Request, known: Sequence[Decisions] = ()) -> list[Point]:
    """Every shape and size, and where the default is known to switch between sizes; where every
    rank has a share, whole shares.
    """
    found = {
        Point(*call[:3], HOST, divisible(collective, nbytes, shape), shape.placement): None
        for collective in request.collectives
        for shape in shapes(request)
        for call in [(collective, shape.nodes, shape.ppn, shape.placement)]
        for nbytes in switches(known, call, request.sizes)
    }
    return [point for point in found if point.nbytes > 0]


@dataclass(frozen=True)
class Offered:
    """What may be measured at a point: every algorithm that the library's own rules can ask for
    there, less what the default is known to run itself.
    """

    request: Request
    constraints: Constraints = ANYTHING
    known: Sequence[Decisions] = ()

    def __call__(self, point: Point) -> tuple[Choice, ...]:
        """The choices beside the default."""
        request, collective = self.request, Collective(point.collective)
        library = libraries.named(request.library)
        call = (collective, point.nodes, point.ppn, point.placement)
        ran = runs(self.known, request.library)(call, point.nbytes)
        return tuple(
            choice
            for choice in library.candidates(
                collective, point.p, point.nbytes, request.segments, request.radices
            )
            if choice != ran
            and library.in_rules(collective, choice)
            and self.constraints.allow(request.library, collective, choice)
        )


def _learned(
    design: Design, rows: Sequence[Row], wrong: Wrong, grid: Collection[Point], offered: Offered
) -> dict[Point, tuple[Choice, ...]]:
    """Tell the design what was measured; the points that this adds, which it has then, too."""
    design.learn(rows, wrong)
    added = {point: offered(point) for point in halfway(design, grid, rows)}
    if added:
        design.widen(added)
    return added


def halfway(design: Design, points: Collection[Point], rows: Iterable[Row]) -> list[Point]:
    """Beside `points`: between two of them that were measured, are `APART` and of which a table
    would say another choice each. Where it should change, only measuring tells, since the default
    may do worse there than on either side.
    """
    measured = {row.point for row in rows}
    found = [
        _between(low, high)
        for low, high in pairwise(sorted(measured.intersection(points), key=_by_size))
        if low.at(high.nbytes) == high
        and high.nbytes >= APART * low.nbytes
        and design.choose(low) != design.choose(high)
    ]
    return [point for point in found if point not in points]


def _by_size(point: Point) -> tuple[object, ...]:
    """Points of one call follow one another."""
    return point.placement, point


def _between(low: Point, high: Point) -> Point:
    """As many times larger than the one as smaller than the other."""
    size = round(math.sqrt(low.nbytes * high.nbytes)) // ITEM * ITEM
    return low.at(divisible(Collective(low.collective), size, Shape(low.nodes, low.ppn)))


def _price(request: Request, seconds: float) -> float:
    """Of one choice at one point, from the seconds of one call; the first calls are not timed."""
    return (request.fewest + WARM_UP) * (seconds + PER_REPETITION)


def _chosen(tasks: Sequence[Task]) -> list[Chosen]:
    return [
        Chosen(Collective(point.collective), point.nodes, point.ppn, point.nbytes,
               tuple(choice for choice in task.choices if not choice.is_default),
               point.placement)
        for task in tasks
        for point in (task.point,)
    ]  # fmt: skip


def _all_shapes(request: Request) -> tuple[Shape, ...]:
    """Those that were asked for; else of small clusters every number of hosts."""
    if request.shapes or request.nodes > MOST_HOSTS:
        return shapes(request)
    each = {1, request.ppn}
    found = {Shape(n, k) for n in range(1, request.nodes + 1) for k in each} - {Shape(1, 1)}
    return tuple(sorted(found, key=lambda one: (one.ranks, one.nodes)))
