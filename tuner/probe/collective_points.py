"""The collective calls that a probe of several hosts measures, and which of them concurrently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache, partial

from tuner import algorithms, mpi_libraries
from tuner.algorithms import available_capabilities, describe
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmChoice
from tuner.probe.p2p_points import SECONDS_PER_BYTE, SECONDS_PER_CALL, SECONDS_PER_MESSAGE
from tuner.probe.probe_plan import ProbeCandidate, ProbePoint
from tuner.probe.probe_spec import ALL_SCHEDULES, ProbeShape, ProbeSpec
from tuner.probe.representative_pairs import ProbedHosts


def points_of_shape(shape: ProbeShape, spec: ProbeSpec) -> Iterator[ProbePoint]:
    """Yield every collective at every size, with all algorithms that can run it."""
    library = mpi_libraries.library_module(spec.library)
    for collective in spec.collectives:
        for nbytes in dict.fromkeys(
            collective.rounded_down(n, shape.ranks) for n in sorted(spec.sizes)
        ):
            if nbytes > 0:
                found = library.candidates(
                    collective, shape.ranks, nbytes, spec.segments, spec.radices
                )
                own = _schedule_choices(collective, shape, nbytes, spec)
                yield collective_point(spec.library, collective, shape, nbytes, [*found, *own])


def collective_point(
    library: str,
    collective: Collective,
    shape: ProbeShape,
    nbytes: int,
    choices: Iterable[AlgorithmChoice],
) -> ProbePoint:
    """Return a point with a candidate for each choice; raise InputError for unknown ones."""
    known = mpi_libraries.library_module(library)
    candidates = tuple(
        ProbeCandidate(choice.algorithm, dict(choice.params), runner=SCHEDULE)
        if choice.runner == SCHEDULE
        else ProbeCandidate(
            choice.algorithm, dict(choice.params), known.settings(collective, choice)
        )
        for choice in choices
    )
    sample = SECONDS_PER_CALL + shape.ranks * (SECONDS_PER_MESSAGE + SECONDS_PER_BYTE * nbytes)
    return ProbePoint(
        "collective",
        str(collective),
        shape.ranks,
        nbytes,
        candidates,
        len(candidates) * sample,
        nodes=shape.nodes,
        ppn=shape.ppn,
        placement=shape.placement,
    )


def _schedule_choices(
    collective: Collective, shape: ProbeShape, nbytes: int, spec: ProbeSpec
) -> Iterator[AlgorithmChoice]:
    """Yield the requested schedules of ours that suit the shape, with the library's segments.

    There are none for ragged calls, which no schedule runs.
    """
    if collective.is_ragged:
        return
    there = available_capabilities((), False, shape.nodes, shape.ppn)
    for name in algorithms.algorithm_names(collective, there):
        if name not in spec.schedules and ALL_SCHEDULES not in spec.schedules:
            continue
        yield AlgorithmChoice(name, runner=SCHEDULE)
        if "segment" in describe(collective, name).params:
            segments = [n for n in spec.segments if n < nbytes]
            yield from (AlgorithmChoice(name, {"segment": n}, SCHEDULE) for n in segments)


def make_concurrent(spec: ProbeSpec, points: Iterable[ProbePoint]) -> Iterator[ProbePoint]:
    """Yield the points of each shape, distributed over disjoint copies of the shape.

    With a topology the copies are alike and share no links; without one this is unknown.
    """
    begins = cache(partial(_first_hosts, spec))
    by_shape: dict[ProbeShape, list[ProbePoint]] = {}
    for point in points:
        shape = ProbeShape(point.nodes, point.ppn, point.placement)
        by_shape.setdefault(shape, []).append(point)
    for number, (shape, found) in enumerate(by_shape.items(), start=1):
        places = begins(shape.nodes)
        copies = len(places)
        heaviest = sorted(found, key=lambda point: -point.weight)
        dealt = [
            replace(
                point,
                weight=point.weight / copies,
                concurrency_group=number if copies > 1 else 0,
                first_host=places[turn % copies],
            )
            for turn, point in enumerate(heaviest)
        ]
        yield from sorted(dealt, key=lambda point: (point.first_host, point.weight))


def _first_hosts(spec: ProbeSpec, nodes: int) -> list[int]:
    if spec.topology is None:
        return list(range(0, spec.nodes - nodes + 1, nodes))
    return ProbedHosts(spec.topology, spec.hosts.names).find_equivalent_sets(nodes)
