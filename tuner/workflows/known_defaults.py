"""The algorithms that a library's default runs, told by the library of this computer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from tuner.base.errors import InputError, ProbeError
from tuner.core.collective import PROBE_ELEMENT_BYTES, Collective
from tuner.core.table import AlgorithmChoice, RuleKey
from tuner.launch import Launcher, find_interpreter
from tuner.mpi_libraries.default_algorithms import DefaultAlgorithms
from tuner.rank_programs.bisection import find_change_points
from tuner.select.cases import EvaluationCase, with_alternatives
from tuner.select.dataset import CallKind, CallPoint, DefaultRuns, stands_for, unknown_default
from tuner.topology import HOST
from tuner.validation.libraries import TUNED_LIBRARIES

MAX_BYTES = 1 << 32  # of calls whose algorithms a trained selector keeps


@cache
def known_defaults(library: str) -> DefaultRuns:
    """Return what the default of a release, such as "openmpi 4.1.6", runs with buffers on the host.

    Nothing is known where this computer has no library that decides as that release does.
    """
    name = library.partition(" ")[0]
    if name not in TUNED_LIBRARIES:
        return unknown_default
    tuned = TUNED_LIBRARIES[name]
    try:
        launcher = Launcher.find(name, find_interpreter(name))
        installed = launcher.installation.library
        [*tuned.default_choices(launcher, RuleKey(next(iter(Collective)), 1, 2), [1])]
    except (InputError, ProbeError):
        return unknown_default

    @cache
    def runs(point: CallPoint) -> AlgorithmChoice | None:
        known = point.collective in tuple(Collective) and point.memory == HOST
        if not known or not tuned.decides_alike(library, installed, point.nodes):
            return None
        return next(iter(tuned.default_choices(launcher, point.key(), [point.nbytes])))

    return runs


def fill_in_defaults(cases: Sequence[EvaluationCase]) -> list[EvaluationCase]:
    """Return the cases, with the default where only the algorithm that it runs was measured.

    Its time is then that of the algorithm. Calls that leave nothing to choose stay as they are, and
    so do all of one kind in a group if some would lack the default, while none has it measured:
    those without it are not compared with the others.
    """
    filled, lacking = [*map(_filled_in, cases)], set[tuple[str, CallKind]]()
    for case in with_alternatives(filled):
        if not case.default:
            lacking.add((case.group, case.point.kind))
    for case in cases:
        if case.default:
            lacking.discard((case.group, case.point.kind))
    return [
        case if (case.group, case.point.kind) in lacking else own
        for case, own in zip(cases, filled, strict=True)
    ]


def _filled_in(case: EvaluationCase) -> EvaluationCase:
    if case.default or not with_alternatives([case]):
        return case
    runs = known_defaults(case.library)(case.point)
    rows = case.observations.items()
    found = [row for choice, row in rows if runs is not None and stands_for(choice, runs)]
    default = {AlgorithmChoice(): replace(row, choice=AlgorithmChoice()) for row in found[:1]}
    return replace(case, observations={**default, **case.observations})


@dataclass(frozen=True)
class DefaultCounts:
    """Numbers of calls whose default has a known time or algorithm.

    measured    calls in which the default was measured
    by_rules    calls of which the library's rules tell the algorithm that it runs
    """

    calls: int
    measured: int
    by_rules: int

    @classmethod
    def of(cls, cases: Sequence[EvaluationCase]) -> DefaultCounts:
        """Count the calls of cases as they were measured."""
        measured = sum(case.default is not None for case in cases)
        told = sum(known_defaults(case.library)(case.point) is not None for case in cases)
        return cls(len(cases), measured, told)


def default_algorithms(cases: Iterable[EvaluationCase]) -> dict[str, tuple[DefaultAlgorithms, ...]]:
    """Return by group what the default runs on each shape of the cases, as far as it is known.

    It is not for a collective of which a group has calls without a library: a selector is trained
    on all of them, and the default of these runs something else.
    """
    found = defaultdict[str, list[DefaultAlgorithms]](list)
    shapes = {(case.group, case.library, case.point.with_size(0)) for case in cases}
    unknown = {(group, point.collective) for group, library, point in shapes if not library}
    for group, library, point in sorted(shapes):
        runs = known_defaults(library)
        is_known = runs is not unknown_default and (group, point.collective) not in unknown
        if is_known and point.collective in tuple(Collective):
            found[group] += _algorithms_of_shape(runs, point)
    return {group: tuple(own) for group, own in found.items() if own}


def _algorithms_of_shape(runs: DefaultRuns, shape: CallPoint) -> list[DefaultAlgorithms]:
    """Return what the default runs on a shape in calls of up to MAX_BYTES; none if unknown."""
    collective = Collective(shape.collective)
    least = PROBE_ELEMENT_BYTES * max(collective.blocks(shape.p))
    steps = find_change_points(lambda nbytes: runs(shape.with_size(nbytes)), MAX_BYTES, least)
    if all(choice is None for _, choice in steps):
        return []
    starts, choices = tuple(start for start, _ in steps), tuple(choice for _, choice in steps)
    at = collective, shape.nodes, shape.ppn
    return [DefaultAlgorithms(*at, MAX_BYTES, starts, choices, shape.placement)]
