"""Which calls of collectives a probe of several hosts measures, and which of them side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache, partial

from tuner import algorithms, mpi_libraries
from tuner.algorithms import describe, offered
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, Choice
from tuner.probe.p2p_points import PER_BYTE, PER_CALL, PER_MESSAGE
from tuner.probe.probe_plan import Arm, Point
from tuner.probe.probe_spec import ALL, Request, Shape
from tuner.probe.representative_pairs import Reach

ITEM = 4  # bytes of the elements that a probe sends


def of_shape(one: Shape, request: Request) -> Iterator[Point]:
    """Every collective at every size, with all that may carry it out."""
    library = mpi_libraries.named(request.library)
    for collective in request.collectives:
        for nbytes in dict.fromkeys(divisible(collective, n, one) for n in sorted(request.sizes)):
            if nbytes > 0:
                found = library.candidates(
                    collective, one.ranks, nbytes, request.segments, request.radices
                )
                own = _own(collective, one, nbytes, request)
                yield call(request.library, collective, one, nbytes, [*found, *own])


def divisible(collective: Collective, nbytes: int, one: Shape) -> int:
    """The next smaller size of which every rank has a whole number of elements as its share."""
    return nbytes // (ITEM * one.ranks) * ITEM * one.ranks if collective.divided else nbytes


def call(
    library: str, collective: Collective, one: Shape, nbytes: int, choices: Iterable[Choice]
) -> Point:
    """A point with an arm for each choice; raises InputError for those that the library lacks."""
    known = mpi_libraries.named(library)
    arms = tuple(
        Arm(choice.algorithm, dict(choice.params), via=SCHEDULE)
        if choice.via == SCHEDULE
        else Arm(choice.algorithm, dict(choice.params), known.settings(collective, choice))
        for choice in choices
    )
    sample = PER_CALL + one.ranks * (PER_MESSAGE + PER_BYTE * nbytes)
    return Point(
        "collective",
        str(collective),
        one.ranks,
        nbytes,
        arms,
        len(arms) * sample,
        nodes=one.nodes,
        ppn=one.ppn,
        placement=one.placement,
    )


def _own(collective: Collective, one: Shape, nbytes: int, request: Request) -> Iterator[Choice]:
    """Our schedules that are asked for and suit the place; segments as the library's."""
    there = offered((), False, one.nodes, one.ppn)
    for name in algorithms.names(collective, there):
        if name not in request.schedules and ALL not in request.schedules:
            continue
        yield Choice(name, via=SCHEDULE)
        if "segment" in describe(collective, name).params:
            segments = [n for n in request.segments if n < nbytes]
            yield from (Choice(name, {"segment": n}, SCHEDULE) for n in segments)


def side_by_side(request: Request, points: Iterable[Point]) -> Iterator[Point]:
    """Points of one shape dealt out over disjoint copies of it, in the order of shapes.

    With a topology they are alike and share no links; without one nothing is known of that.
    """
    begins = cache(partial(_copies, request))
    by_shape: dict[Shape, list[Point]] = {}
    for point in points:
        shape = Shape(point.nodes, point.ppn, point.placement)
        by_shape.setdefault(shape, []).append(point)
    for number, (shape, found) in enumerate(by_shape.items(), start=1):
        places = begins(shape.nodes)
        copies = len(places)
        heaviest = sorted(found, key=lambda point: -point.weight)
        dealt = [
            replace(
                point,
                weight=point.weight / copies,
                group=number if copies > 1 else 0,
                first=places[turn % copies],
            )
            for turn, point in enumerate(heaviest)
        ]
        yield from sorted(dealt, key=lambda point: (point.first, point.weight))


def _copies(request: Request, nodes: int) -> list[int]:
    """The first hosts of each."""
    if request.topology is None:
        return list(range(0, request.nodes - nodes + 1, nodes))
    return Reach(request.topology, request.hosts.names).copies(nodes)
