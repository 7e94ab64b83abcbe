"""List the calls and algorithms that a tuning run may measure, and order them for short budgets."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tuner import mpi_libraries
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import Choice
from tuner.mpi_libraries.default_algorithms import Decisions, runs
from tuner.probe.batches import Chosen
from tuner.probe.collective_points import ITEM, divisible
from tuner.probe.probe_spec import Request, Shape, shapes
from tuner.select.acquisition import Task
from tuner.select.constraints import ANYTHING, Constraints
from tuner.select.dataset import Point, Row
from tuner.select.experiment_design import Design
from tuner.topology import HOST
from tuner.workflows.default_algorithms import switches

MOST_HOSTS = 16  # of which every number is a candidate to be measured and gets rules
APART = 4.0  # sizes by so much leave room for a size between that is half as far from both


def candidates(request: Request, known: Sequence[Decisions] = ()) -> list[Point]:
    """Every shape and size, and where the default is known to switch between sizes; where every
    rank has a share, whole shares.

    Raises InputError if no size suffices for a share.
    """
    found = {
        Point(*call[:3], HOST, divisible(collective, nbytes, shape), shape.placement): None
        for collective in request.collectives
        for shape in shapes(request)
        for call in [(collective, shape.nodes, shape.ppn, shape.placement)]
        for nbytes in switches(known, call, request.sizes)
    }
    points = [point for point in found if point.nbytes > 0]
    if not points:
        fewest = min(shape.ranks for shape in shapes(request))
        raise InputError(
            f"no size of --sizes gives each of {fewest} ranks {ITEM} bytes: name larger ones"
        )
    return points


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
        library = mpi_libraries.named(request.library)
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


def coarse_first(points: Collection[Point]) -> list[Point]:
    """Return the points in coarse-to-fine order, so that any first few are spread over all.

    The largest shape and the middle size come first, then what lies half way between.
    """
    every = sorted({_shape(point) for point in points})
    sizes = sorted({point.nbytes for point in points})
    depth = dict(zip(every, [*(1 + each for each in _depths(len(every) - 1)), 0], strict=True))
    rank = dict(zip(sizes, _depths(len(sizes)), strict=True))
    return sorted(points, key=lambda q: (depth[_shape(q)] + rank[q.nbytes], -q.p, q))


def _shape(point: Point) -> tuple[int, int, str]:
    return point.p, point.nodes, point.placement


def _depths(count: int) -> list[int]:
    """Return the depth of each of `count` positions in a balanced binary tree over them."""
    depths = [0] * count

    def descend(low: int, high: int, depth: int) -> None:
        if low < high:
            middle = (low + high) // 2
            depths[middle] = depth
            descend(low, middle, depth + 1)
            descend(middle + 1, high, depth + 1)

    descend(0, count, 0)
    return depths


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


def chosen_of(tasks: Sequence[Task]) -> list[Chosen]:
    """Return tasks of a design as a probe takes them."""
    return [
        Chosen(
            Collective(point.collective),
            point.nodes,
            point.ppn,
            point.nbytes,
            tuple(choice for choice in task.choices if not choice.is_default),
            point.placement,
        )
        for task in tasks
        for point in (task.point,)
    ]


def all_shapes(request: Request) -> tuple[Shape, ...]:
    """Those that were asked for; else of small clusters every number of hosts."""
    if request.shapes or request.nodes > MOST_HOSTS:
        return shapes(request)
    each = {1, request.ppn}
    found = {Shape(n, k) for n in range(1, request.nodes + 1) for k in each} - {Shape(1, 1)}
    return tuple(sorted(found, key=lambda one: (one.ranks, one.nodes)))
