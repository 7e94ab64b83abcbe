"""Measured tables as cases to evaluate selectors on: one call in one run, its time by candidate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from tuner.base.errors import InputError, quoted
from tuner.core.measurement import SHORTEST, Measurements
from tuner.core.path_classes import CONSECUTIVE
from tuner.core.speedup import over_launches
from tuner.core.table import Choice
from tuner.importers import Reading
from tuner.select.dataset import Point, Row, Simulate, by_point, label


@dataclass(frozen=True)
class Case:
    """What was measured for one call in one run.

    group   the cases that are compared with one another, such as "leonardo openmpi 4.1.6"
    """

    group: str
    run: str
    point: Point
    rows: Mapping[Choice, Row]

    @property
    def best(self) -> float:
        """Seconds of the fastest candidate."""
        return min(row.typical for row in self.rows.values())

    def regret(self, choice: Choice) -> float:
        """Of this choice against the fastest."""
        return self.rows[choice].typical / self.best - 1


def cases_of_measurements(measurements: Measurements, simulate: Simulate) -> list[Case]:
    """Of what a probe measured, every point one case."""
    group = f"{measurements.cluster.name} {measurements.library}"
    rows = label(measurements, simulate)
    return [
        Case(group, "", point, {row.choice: row for row in own})
        for point, own in by_point(rows).items()
    ]


def cases_of_results(readings: Iterable[Reading], together: bool = False) -> list[Case]:
    """Of what other programs measured, sorted by run and point.

    together    libraries are compared with one another, not each with itself

    Several readings of one call and algorithm in one run are one, their median. Raises InputError
    when no reading is of a collective.
    """
    chosen = [reading for reading in readings if usable(reading)]
    named = _arms(chosen) if together else {}
    times: dict[tuple[str, str, Point], dict[Choice, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for reading in chosen:
        library = "" if together else reading.library
        group = " ".join(filter(None, (reading.cluster, library)))
        name = named.get((reading.algorithm, reading.library), reading.algorithm)
        choice = Choice(name, reading.params)
        times[group, reading.run, _point(reading)][choice] += reading.samples
    if not times:
        raise InputError("no reading is of a collective with its nodes, size and time")
    return [
        Case(group, run, point, {choice: _row(point, choice, own) for choice, own in arms.items()})
        for (group, run, point), arms in sorted(times.items(), key=lambda entry: entry[0])
    ]


def without(cases: Sequence[Case], names: Collection[str]) -> list[Case]:
    """Without the algorithms of these names; raises InputError for one that nobody measured."""
    known = {choice.algorithm for case in cases for choice in case.rows}
    unknown = sorted(set(names) - known)
    if unknown:
        raise InputError(
            f"{', '.join(map(quoted, unknown))} cannot be left out: measured are"
            f" {', '.join(sorted(known))}"
        )
    kept = (
        replace(
            case,
            rows={
                choice: row for choice, row in case.rows.items() if choice.algorithm not in names
            },
        )
        for case in cases
    )
    return [case for case in kept if case.rows]


def sets(cases: Iterable[Case], pooled: bool = False) -> dict[str, list[Case]]:
    """The cases that are evaluated together, by name: of one group, or of all of them, and of calls
    of one kind.

    Where some cases have the library's default, those that lack it are left out.
    """
    found: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        collective, memory, placement = case.point.kind
        placed = "" if placement == CONSECUTIVE else placement
        words = ("" if pooled else case.group, collective, memory, placed)
        found[" ".join(filter(None, words))].append(case)
    return {name: _with_default(own) for name, own in found.items()}


def folds(cases: Sequence[Case], protocol: str) -> list[tuple[Sequence[Case], Sequence[Case]]]:
    """What to learn from and what to be tested on; none where only one value would be left out."""
    values = sorted({_left_out(case, protocol) for case in cases}, key=str)
    if len(values) < 2:
        return []
    return [
        (
            [case for case in cases if _left_out(case, protocol) != value],
            [case for case in cases if _left_out(case, protocol) == value],
        )
        for value in values
    ]


NODES, SIZE, MACHINE = "leave-one-node-count-out", "leave-one-size-out", "new-machine"
PROTOCOLS = (NODES, SIZE, MACHINE)
LEFT_OUT = {NODES: "node count", SIZE: "size", MACHINE: "machine"}


def _left_out(case: Case, protocol: str) -> Hashable:
    if protocol == MACHINE:
        return case.group
    return case.point.nodes if protocol == NODES else case.point.nbytes


def _with_default(cases: list[Case]) -> list[Case]:
    having = [case for case in cases if Choice() in case.rows]
    return having or cases


def usable(reading: Reading) -> bool:
    """Whether it tells how long a collective took on how many nodes."""
    return bool(
        reading.benchmark.kind == "collective"
        and reading.shape
        and reading.shape.ppn
        and reading.nbytes
        and reading.samples
        and min(reading.samples) >= SHORTEST
        and not reading.left_out
    )


def _arms(readings: Iterable[Reading]) -> Mapping[tuple[str, str], str]:
    """Names of algorithms that several libraries have, with the library's."""
    libraries: dict[str, set[str]] = defaultdict(set)
    for reading in readings:
        libraries[reading.algorithm].add(reading.library)
    return {
        (name, library): f"{library} {name}"
        for name, having in libraries.items()
        if len(having) > 1
        for library in having
    }


def _point(reading: Reading) -> Point:
    if reading.shape is None or reading.nbytes is None:
        raise ValueError(f"line {reading.line}: without shape or size")
    return Point(
        reading.benchmark.subject,
        reading.shape.nodes,
        reading.shape.ppn,
        reading.memory,
        reading.nbytes,
    )


def _row(point: Point, choice: Choice, samples: Sequence[float]) -> Row:
    """Other programs' results are judged by medians, as published regrets of them are."""
    middle, (_, low, high) = median(samples), over_launches([samples])
    return Row(point, choice, {0: tuple(samples)}, middle, min(low, middle), max(high, middle))
