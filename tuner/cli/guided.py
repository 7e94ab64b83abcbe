"""Tuning a cluster with few probes: messages first, then rounds of collectives, each of them chosen
by what is known so far, until the table is good enough or the time is spent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner import libraries
from tuner.calibrate import calibrate
from tuner.cli.decisions import known_decisions, switches
from tuner.collective import Collective
from tuner.cost import Calibration
from tuner.errors import InputError
from tuner.libraries.decisions import Decisions, runs
from tuner.measurement import Measurements
from tuner.probe.cluster import probe_chosen, probe_cluster
from tuner.probe.plan import WARM_UP
from tuner.probe.request import Request, Shape, shapes
from tuner.probe.rounds import Chosen
from tuner.probe.watch import Progress
from tuner.runtime.launch import Launcher
from tuner.select.constraints import ANYTHING, Constraints
from tuner.select.dataset import Point, label
from tuner.select.design import Bound, Design
from tuner.select.make import make_table
from tuner.select.offers import Task
from tuner.select.predict import simulator
from tuner.table import Choice, TuningTable
from tuner.topologies import as_probed
from tuner.topology import HOST
from tuner.units import format_time

MOST_HOSTS = 16  # of which every number is a candidate to be measured and gets rules
MESSAGES = 0.4  # of the budget at most: everything is predicted from them
ROUND = 0.1  # of the budget at most: after a look at the results the next round is better chosen
PATIENCE = 2.0  # times that: ranks take seconds to start, and calls longer than was believed
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
    on_note     told what could not be found out

    Killed, the same call resumes; the time that was spent before does not count again. Raises
    InputError and ProbeError as `probe_cluster` does, and InputError as `calibrate` does.
    """
    begin, topology = time.monotonic(), request.topology
    asked, wide = _without_collectives(request), replace(request, shapes=_all_shapes(request))
    known = known_decisions(out, wide, launcher, on_note)
    measurements = probe_cluster(
        out, asked, launcher, name=name, budget=MESSAGES * goal.budget, decisions=known,
        on_progress=on_progress,
    )  # fmt: skip
    _require_messages(measurements, goal)
    calibration = calibrate(measurements, topology)
    where = topology or as_probed(measurements.cluster, calibration)
    simulate, grid = simulator(calibration, where, known), candidates(wide, constraints, known)
    design = Design(grid, simulate, lambda seconds: _price(request, seconds))
    while True:
        rows = label(measurements, simulate)
        design.learn(rows)
        bound, spent = design.bound(), time.monotonic() - begin
        if rows:  # before that a bound only says that nothing is known
            on_round(bound, spent)
        left = goal.budget - spent
        tasks = design.next(min(left, ROUND * goal.budget)) if left > 0 else ()
        if bound.upper <= goal.regret or not tasks:
            break
        measurements = probe_chosen(
            out, asked, launcher, _chosen(tasks), name=name,
            budget=min(left, PATIENCE * ROUND * goal.budget), on_progress=on_progress,
        )  # fmt: skip
    _, table = make_table(
        measurements, calibration, topology=topology, points=list(grid), constraints=constraints
    )
    return Guided(measurements, calibration, table, bound)


def _without_collectives(request: Request) -> Request:
    """These are chosen on the way."""
    parts = tuple(part for part in request.parts if part != "collectives")
    return replace(request, parts=parts)


def _require_messages(measurements: Measurements, goal: Goal) -> None:
    if not any(one.kind == "pingpong" for one in measurements.series):
        raise InputError(
            f"{format_time(goal.budget)} do not suffice for the messages between the hosts: the"
            " same command with a larger --budget, such as 60s, goes on"
        )


def candidates(
    request: Request, constraints: Constraints = ANYTHING, known: Sequence[Decisions] = ()
) -> dict[Point, tuple[Choice, ...]]:
    """Every algorithm that the library's own rules can ask for, at every shape and size, and where
    the default is known to switch between sizes; less what the default runs there itself.
    """
    library, own = libraries.named(request.library), runs(known)
    found = {}
    for collective in request.collectives:
        for shape in shapes(request):
            for nbytes in switches(known, (collective, shape.nodes, shape.ppn), request.sizes):
                point = Point(collective, shape.nodes, shape.ppn, HOST, nbytes)
                offered = library.candidates(
                    collective, shape.ranks, nbytes, request.segments, request.radices
                )
                ran = own(collective, shape.nodes, shape.ppn, nbytes)
                found[point] = tuple(
                    choice for choice in offered
                    if choice != ran
                    and library.in_rules(collective, choice)
                    and constraints.allow(request.library, collective, choice)
                )  # fmt: skip
    return found


def _price(request: Request, seconds: float) -> float:
    """Of one choice at one point, from the seconds of one call; the first calls are not timed."""
    return (request.fewest + WARM_UP) * (seconds + PER_REPETITION)


def _chosen(tasks: Sequence[Task]) -> list[Chosen]:
    return [
        Chosen(Collective(point.collective), point.nodes, point.ppn, point.nbytes,
               tuple(choice for choice in task.choices if not choice.is_default))
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
