"""Evaluation cases for selectors: one call, with its time for every candidate."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import median

import numpy as np

from tuner.base.errors import InputError, shortened_repr
from tuner.base.statistics import NORMAL_95
from tuner.core.measurement import MIN_SAMPLE_S, Measurements
from tuner.core.path_classes import BLOCK
from tuner.core.speedup import LAUNCH_RELATIVE_SD, mean_over_launches
from tuner.core.table import AlgorithmChoice
from tuner.importers import BenchmarkResult
from tuner.select.dataset import (
    CallPoint,
    Observation,
    SimulateFunction,
    build_observations,
    group_by_point,
)

_RunTimes = Mapping[AlgorithmChoice, Sequence[float]]  # seconds, of one call in one run


@dataclass(frozen=True)
class EvaluationCase:
    """The observations of one call.

    group       cases of one group are comparable, such as "leonardo openmpi 4.1.6"
    library     whose rules decide what its default runs; "" where several are compared, and for
                MPI_Reduce_scatter_block, since its rules are not known
    """

    group: str
    point: CallPoint
    observations: Mapping[AlgorithmChoice, Observation]
    library: str = ""

    @property
    def default(self) -> Observation | None:
        """Return the observation of the default; None where it was not measured."""
        return self.observations.get(AlgorithmChoice())

    @property
    def fastest(self) -> AlgorithmChoice:
        return min(self.observations, key=lambda choice: self.observations[choice].seconds)

    def regret(self, choice: AlgorithmChoice) -> float:
        return self.observations[choice].seconds / self.observations[self.fastest].seconds - 1


def cases_from_measurements(
    measurements: Measurements, simulate: SimulateFunction
) -> list[EvaluationCase]:
    """Return the cases of a probe, one for every point."""
    group = f"{measurements.cluster.name} {measurements.library}"
    rows = build_observations(measurements, simulate)
    return [
        EvaluationCase(group, point, {row.choice: row for row in own}, measurements.library)
        for point, own in group_by_point(rows).items()
    ]


def cases_from_readings(
    readings: Iterable[BenchmarkResult], merge_libraries: bool = False
) -> list[EvaluationCase]:
    """Return the cases of imported benchmark results, sorted by their first run and point.

    merge_libraries     whether libraries are compared with one another, instead of separately

    Several readings of one call and algorithm in one run are merged into one, with their median;
    runs of one call that measured a common algorithm are one case, runs without one are several.
    Raises InputError when no reading is of a collective.
    """
    chosen = [reading for reading in readings if is_collective_reading(reading)]
    named = _names_with_library(chosen) if merge_libraries else {}
    times: dict[tuple[str, CallPoint, str], dict[str, dict[AlgorithmChoice, list[float]]]] = (
        defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    )
    for reading in chosen:
        library = "" if merge_libraries else reading.library
        group = " ".join(filter(None, (reading.cluster, library)))
        name = named.get((reading.algorithm, reading.library), reading.algorithm)
        choice = AlgorithmChoice(name, reading.params)
        decides = "" if reading.benchmark.is_of_namesake else library
        times[group, _point(reading), decides][reading.run][choice] += reading.samples
    if not times:
        raise InputError("expected readings of collectives with their nodes, sizes and times")
    found = [
        (group, runs[0], point, library, _over_runs(point, [by_run[run] for run in runs]))
        for (group, point, library), by_run in times.items()
        for runs in _linked_runs(by_run)
    ]
    return [
        EvaluationCase(group, point, rows, library)
        for group, _, point, library, rows in sorted(found, key=lambda case: case[:4])
    ]


def _linked_runs(by_run: Mapping[str, _RunTimes]) -> list[list[str]]:
    """Return the runs of a call, sorted, in groups whose times can be compared.

    A run measured an algorithm in common with another one of its group, none with other groups.
    """
    groups = list[list[str]]()
    for run, times in by_run.items():
        linked = [own for own in groups if any(times.keys() & by_run[one].keys() for one in own)]
        groups = [own for own in groups if own not in linked]
        groups.append(sorted([run, *chain(*linked)]))
    return groups


def _over_runs(point: CallPoint, runs: Sequence[_RunTimes]) -> dict[AlgorithmChoice, Observation]:
    """Return the observation of each choice of a call over the runs that measured it.

    The logarithm of a time is that of the choice plus what its run is faster or slower by, in the
    mean of the runs nothing: least squares. What remains is the error, which is taken to have
    `LAUNCH_RELATIVE_SD` in one observation more than there are.
    """
    if len(runs) == 1:
        return {choice: _observation(point, choice, own) for choice, own in runs[0].items()}
    choices = [*dict.fromkeys(chain(*runs))]
    times = [
        (choices.index(choice), len(choices) + number, math.log(max(median(own), MIN_SAMPLE_S)))
        for number, run in enumerate(runs)
        for choice, own in run.items()
    ]
    design = np.zeros((len(times) + 1, len(choices) + len(runs)))
    for row, (choice, run, _) in enumerate(times):
        design[row, [choice, run]] = 1.0
    design[-1, len(choices) :] = 1.0  # what runs differ by adds up to nothing
    logs = np.array([*(log for _, _, log in times), 0.0])
    inverse = np.linalg.pinv(design)
    found = inverse @ logs
    free = len(design) - design.shape[1]
    error = np.square(logs - design @ found).sum() + LAUNCH_RELATIVE_SD**2
    deviations = np.sqrt(np.square(inverse[: len(choices), :-1]).sum(axis=1) * error / (free + 1))
    return {
        choice: _over_all(point, choice, [run[choice] for run in runs if choice in run], log, sd)
        for choice, log, sd in zip(choices, found, deviations, strict=False)
    }


def _over_all(
    point: CallPoint,
    choice: AlgorithmChoice,
    times: Iterable[Sequence[float]],
    log: float,
    sd: float,
) -> Observation:
    """Return an observation of one launch with this logarithm of its time and its deviation."""
    half = NORMAL_95 * sd
    ends = math.exp(log), math.exp(log - half), math.exp(log + half)
    return Observation(point, choice, {0: tuple(chain(*times))}, *ends)


def drop_algorithms(
    cases: Sequence[EvaluationCase], names: Collection[str]
) -> list[EvaluationCase]:
    """Return the cases without these algorithms; raise InputError for one that was not measured."""
    known = {choice.algorithm for case in cases for choice in case.observations}
    unknown = sorted(set(names) - known)
    if unknown:
        raise InputError(
            f"{', '.join(map(shortened_repr, unknown))} cannot be left out: measured are"
            f" {', '.join(sorted(known))}"
        )
    return [
        replace(case, observations=kept)
        for case in cases
        if (kept := {c: row for c, row in case.observations.items() if c.algorithm not in names})
    ]


def group_cases(
    cases: Iterable[EvaluationCase], pooled: bool = False, to_learn: bool = False
) -> dict[str, list[EvaluationCase]]:
    """Return the cases that are evaluated together, by name.

    These are calls of one kind, of one group or, with `pooled`, of all groups. Where some cases
    have the library default, those that lack it are left out, unless they are only `to_learn` from.
    """
    found: dict[str, list[EvaluationCase]] = defaultdict(list)
    for case in cases:
        collective, memory, placement = case.point.kind
        placed = "" if placement == BLOCK else placement
        words = ("" if pooled else case.group, collective, memory, placed)
        found[" ".join(filter(None, words))].append(case)
    return dict(found) if to_learn else {name: _with_default(own) for name, own in found.items()}


def compared_rows(cases: Sequence[EvaluationCase]) -> list[Observation]:
    """Return the observations of each call's first case with the default."""
    first: dict[CallPoint, EvaluationCase] = {}
    for case in with_alternatives(cases):
        if case.default:
            first.setdefault(case.point, case)
    return [row for case in first.values() for row in case.observations.values()]


def with_alternatives(cases: Sequence[EvaluationCase]) -> list[EvaluationCase]:
    """Return the cases with several candidates; with one alone no choice can be wrong."""
    return [case for case in cases if len(case.observations) > 1]


def from_machine(cases: Sequence[EvaluationCase], group: str) -> list[EvaluationCase]:
    """Return the cases as the machine of a group knows them: others are of other machines."""
    return [
        case
        if case.group == group
        else replace(
            case,
            observations={
                choice: replace(row, machine=case.group)
                for choice, row in case.observations.items()
            },
        )
        for case in cases
    ]


def prior_rows(cases: Sequence[EvaluationCase], of: EvaluationCase) -> tuple[Observation, ...]:
    """Return what other machines know of calls of the same kind as one case."""
    alike = [case for case in cases if case.point.kind == of.point.kind and case.group != of.group]
    return tuple(
        row for case in from_machine(alike, of.group) for row in case.observations.values()
    )


Fold = tuple[Sequence[EvaluationCase], Sequence[EvaluationCase]]  # to train on, and to select at


def folds(cases: Sequence[EvaluationCase], protocol: str) -> list[Fold]:
    """Return (training cases, test cases) for each value that the protocol leaves out.

    The list is empty if there are fewer than two values.
    """
    values = sorted({_held_out_value(case, protocol) for case in cases}, key=str)
    if len(values) < 2:
        return []
    if protocol == LARGEST_NODE_COUNT_OUT:  # at which there is something to choose
        values = [max(case.point.nodes for case in with_alternatives(cases))]
    return [
        (
            [case for case in cases if _held_out_value(case, protocol) != value],
            [case for case in cases if _held_out_value(case, protocol) == value],
        )
        for value in values
    ]


LEAVE_NODE_COUNT_OUT = "leave-one-node-count-out"
LARGEST_NODE_COUNT_OUT = "largest-node-count-out"
LEAVE_SIZE_OUT = "leave-one-size-out"
NEW_MACHINE = "new-machine"
CV_PROTOCOLS = (LEAVE_NODE_COUNT_OUT, LARGEST_NODE_COUNT_OUT, LEAVE_SIZE_OUT, NEW_MACHINE)
HELD_OUT_VARIABLE = {
    LEAVE_NODE_COUNT_OUT: "node count",
    LARGEST_NODE_COUNT_OUT: "node count",
    LEAVE_SIZE_OUT: "size",
    NEW_MACHINE: "machine",
}


def _held_out_value(case: EvaluationCase, protocol: str) -> Hashable:
    if protocol == NEW_MACHINE:
        return case.group
    return case.point.nbytes if protocol == LEAVE_SIZE_OUT else case.point.nodes


def _with_default(cases: list[EvaluationCase]) -> list[EvaluationCase]:
    return [case for case in cases if case.default] or cases


def is_collective_reading(reading: BenchmarkResult) -> bool:
    """Return whether a reading has nodes, size and time of a collective."""
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
    """Return names with the library's for algorithms that several libraries have."""
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
    point: CallPoint, choice: AlgorithmChoice, samples: Sequence[float]
) -> Observation:
    """Return an observation whose time is the median, as in published regrets of such results."""
    middle, (_, low, high) = median(samples), mean_over_launches([samples])
    return Observation(
        point, choice, {0: tuple(samples)}, middle, min(low, middle), max(high, middle)
    )
