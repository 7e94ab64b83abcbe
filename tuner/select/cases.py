"""Measured tables as cases to evaluate selectors on: one call in one run, its time by candidate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from tuner.base.errors import InputError, shortened_repr
from tuner.core.measurement import MIN_SAMPLE_S, Measurements
from tuner.core.path_classes import BLOCK
from tuner.core.speedup import mean_over_launches
from tuner.core.table import AlgorithmConfig
from tuner.importers import BenchmarkResult
from tuner.select.dataset import (
    CallPoint,
    Observation,
    SimulateFunction,
    build_observations,
    group_by_point,
)


@dataclass(frozen=True)
class EvaluationCase:
    """What was measured for one call in one run.

    group   the cases that are compared with one another, such as "leonardo openmpi 4.1.6"
    """

    group: str
    run: str
    point: CallPoint
    observations: Mapping[AlgorithmConfig, Observation]

    @property
    def best_seconds(self) -> float:
        """Seconds of the fastest candidate."""
        return min(row.seconds for row in self.observations.values())

    def regret(self, choice: AlgorithmConfig) -> float:
        """Of this choice against the fastest."""
        return self.observations[choice].seconds / self.best_seconds - 1


def cases_from_measurements(
    measurements: Measurements, simulate: SimulateFunction
) -> list[EvaluationCase]:
    """Of what a probe measured, every point one case."""
    group = f"{measurements.cluster.name} {measurements.library}"
    rows = build_observations(measurements, simulate)
    return [
        EvaluationCase(group, "", point, {row.config: row for row in own})
        for point, own in group_by_point(rows).items()
    ]


def cases_from_readings(
    readings: Iterable[BenchmarkResult], merge_libraries: bool = False
) -> list[EvaluationCase]:
    """Of what other programs measured, sorted by run and point.

    together    libraries are compared with one another, not each with itself

    Several readings of one call and algorithm in one run are one, their median. Raises InputError
    when no reading is of a collective.
    """
    chosen = [reading for reading in readings if is_collective_reading(reading)]
    named = _names_with_library(chosen) if merge_libraries else {}
    times: dict[tuple[str, str, CallPoint], dict[AlgorithmConfig, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for reading in chosen:
        library = "" if merge_libraries else reading.library
        group = " ".join(filter(None, (reading.cluster, library)))
        name = named.get((reading.algorithm, reading.library), reading.algorithm)
        choice = AlgorithmConfig(name, reading.params)
        times[group, reading.run, _point(reading)][choice] += reading.samples
    if not times:
        raise InputError("no reading is of a collective with its nodes, size and time")
    return [
        EvaluationCase(
            group,
            run,
            point,
            {choice: _observation(point, choice, own) for choice, own in arms.items()},
        )
        for (group, run, point), arms in sorted(times.items(), key=lambda entry: entry[0])
    ]


def drop_algorithms(
    cases: Sequence[EvaluationCase], names: Collection[str]
) -> list[EvaluationCase]:
    """Without the algorithms of these names; raises InputError for one that nobody measured."""
    known = {choice.algorithm for case in cases for choice in case.observations}
    unknown = sorted(set(names) - known)
    if unknown:
        raise InputError(
            f"{', '.join(map(shortened_repr, unknown))} cannot be left out: measured are"
            f" {', '.join(sorted(known))}"
        )
    kept = (
        replace(
            case,
            observations={
                choice: row
                for choice, row in case.observations.items()
                if choice.algorithm not in names
            },
        )
        for case in cases
    )
    return [case for case in kept if case.observations]


def group_cases(
    cases: Iterable[EvaluationCase], pooled: bool = False
) -> dict[str, list[EvaluationCase]]:
    """The cases that are evaluated together, by name: of one group, or of all of them, and of calls
    of one kind.

    Where some cases have the library's default, those that lack it are left out.
    """
    found: dict[str, list[EvaluationCase]] = defaultdict(list)
    for case in cases:
        collective, memory, placement = case.point.kind
        placed = "" if placement == BLOCK else placement
        words = ("" if pooled else case.group, collective, memory, placed)
        found[" ".join(filter(None, words))].append(case)
    return {name: _with_default(own) for name, own in found.items()}


def folds(
    cases: Sequence[EvaluationCase], protocol: str
) -> list[tuple[Sequence[EvaluationCase], Sequence[EvaluationCase]]]:
    """What to learn from and what to be tested on; none where only one value would be left out."""
    values = sorted({_held_out_value(case, protocol) for case in cases}, key=str)
    if len(values) < 2:
        return []
    return [
        (
            [case for case in cases if _held_out_value(case, protocol) != value],
            [case for case in cases if _held_out_value(case, protocol) == value],
        )
        for value in values
    ]


LEAVE_NODE_COUNT_OUT, LEAVE_SIZE_OUT, NEW_MACHINE = (
    "leave-one-node-count-out",
    "leave-one-size-out",
    "new-machine",
)
CV_PROTOCOLS = (LEAVE_NODE_COUNT_OUT, LEAVE_SIZE_OUT, NEW_MACHINE)
HELD_OUT_VARIABLE = {
    LEAVE_NODE_COUNT_OUT: "node count",
    LEAVE_SIZE_OUT: "size",
    NEW_MACHINE: "machine",
}


def _held_out_value(case: EvaluationCase, protocol: str) -> Hashable:
    if protocol == NEW_MACHINE:
        return case.group
    return case.point.nodes if protocol == LEAVE_NODE_COUNT_OUT else case.point.nbytes


def _with_default(cases: list[EvaluationCase]) -> list[EvaluationCase]:
    having = [case for case in cases if AlgorithmConfig() in case.observations]
    return having or cases


def is_collective_reading(reading: BenchmarkResult) -> bool:
    """Whether it tells how long a collective took on how many nodes."""
    return bool(
        reading.benchmark.kind == "collective"
        and reading.rank_counts
        and reading.rank_counts.ppn
        and reading.nbytes
        and reading.samples
        and min(reading.samples) >= MIN_SAMPLE_S
        and not reading.exclusion_reason
    )


def _names_with_library(readings: Iterable[BenchmarkResult]) -> Mapping[tuple[str, str], str]:
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


def _point(reading: BenchmarkResult) -> CallPoint:
    if reading.rank_counts is None or reading.nbytes is None:
        raise ValueError(f"line {reading.line}: without shape or size")
    return CallPoint(
        reading.benchmark.subject,
        reading.rank_counts.nodes,
        reading.rank_counts.ppn,
        reading.memory,
        reading.nbytes,
    )


def _observation(
    point: CallPoint, choice: AlgorithmConfig, samples: Sequence[float]
) -> Observation:
    """Other programs' results are judged by medians, as published regrets of them are."""
    middle, (_, low, high) = median(samples), mean_over_launches([samples])
    return Observation(
        point, choice, {0: tuple(samples)}, middle, min(low, middle), max(high, middle)
    )
