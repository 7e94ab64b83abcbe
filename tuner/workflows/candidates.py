"""List the calls and algorithms that a tuning run may measure, and order them for short budgets.

The algorithm that the library's default runs for a call needs no measuring of its own; which that
is, the ranks are asked or the run's file tells.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tuner import mpi_libraries
from tuner.base.errors import InputError, LaunchTimeoutError, ProbeError
from tuner.core.call_profile import ProfiledCall, typical_sizes
from tuner.core.collective import PROBE_ELEMENT_BYTES, Collective
from tuner.core.table import AlgorithmChoice
from tuner.launch import CompletedRun, Launcher, MultiHostLauncher
from tuner.mpi_libraries.default_algorithms import (
    DefaultAlgorithms,
    PlacedCollective,
    default_algorithms_from_provenance,
    default_lookup,
)
from tuner.probe.batches import ExperimentRequest, read_provenance
from tuner.probe.probe_spec import ProbeShape, ProbeSpec, shapes_to_measure
from tuner.select.constraints import UNCONSTRAINED, Constraints
from tuner.select.dataset import CallPoint, Observation
from tuner.select.experiment_design import Experiment, ExperimentDesign
from tuner.topology import HOST
from tuner.validation.libraries import TUNED_LIBRARIES

NEARBY_SIZE_RATIO = 1.2  # a switch within this factor of a candidate size gets no size of its own
DISCOVERY_FAILED = "nothing is known of what the library's default runs between sizes: "
MAX_HOSTS = 16  # largest cluster of which every number of hosts is a candidate shape and gets rules
LATENCY_BYTES = 20_000  # as long as a message's latency: 2 us at 10 GB/s, the line of the unknown
MIN_SIZE_RATIO = 4.0  # smallest ratio of two sizes that leaves room for one between


def discover_defaults(
    out: Path,
    request: ProbeSpec,
    launcher: Launcher,
    on_note: Callable[[str], None],
    timeout_s: float = math.inf,
) -> tuple[DefaultAlgorithms, ...]:
    """Return the default's algorithms for all shapes and sizes of `request`.

    They are read from `out` where it has them, and otherwise found out. The result is empty if
    that fails.

    on_note     called with the reason why nothing is known
    timeout_s   seconds that the ranks may take

    Raises InputError for a damaged file.
    """
    calls = [
        (one, each.nodes, each.ppn, each.placement)
        for one in request.collectives
        for each in shapes_to_measure(request)
    ]
    most = max(request.sizes)
    kept = default_algorithms_from_provenance(read_provenance(out), request.library, str(out))
    if _covers_calls(kept, calls, most):
        return kept
    starter = _TimeLimitedLauncher(launcher, request.hosts, request.ppn, timeout_s)
    try:
        return TUNED_LIBRARIES[request.library].find_defaults(starter, calls, most)
    except LaunchTimeoutError:
        on_note(f"{DISCOVERY_FAILED}no time was left to find out")
        return ()
    except (InputError, ProbeError) as reason:
        on_note(f"{DISCOVERY_FAILED}{reason}")
        return ()


@dataclass(frozen=True)
class _TimeLimitedLauncher(MultiHostLauncher):
    """A launcher that ends its ranks after `timeout_s` seconds."""

    timeout_s: float = math.inf

    def run(
        self, ranks: int, arguments: Sequence[str], *, timeout: float | None = None, **known: Any
    ) -> CompletedRun:
        """Start ranks as `MultiHostLauncher.run` does, with the shorter of both timeouts."""
        least = min(self.timeout_s, math.inf if timeout is None else timeout)
        return super().run(ranks, arguments, timeout=None if least == math.inf else least, **known)


def _covers_calls(
    kept: Iterable[DefaultAlgorithms], calls: Iterable[PlacedCollective], most: int
) -> bool:
    reached = {each.placed_collective: each.max_bytes for each in kept}
    return all(reached.get(call, -1) >= most for call in calls)


def with_default_thresholds(
    known: Iterable[DefaultAlgorithms], call: PlacedCollective, sizes: Iterable[int]
) -> tuple[int, ...]:
    """Return the sizes and the thresholds between them at which the default switches.

    Thresholds within a factor of `NEARBY_SIZE_RATIO` of another size are left out.
    """
    found = sorted(sizes)
    for start in sorted(
        start for each in known if each.placed_collective == call for start in each.thresholds
    ):
        near = any(max(start, size) <= NEARBY_SIZE_RATIO * min(start, size) for size in found)
        if found and found[0] < start < found[-1] and not near:
            found.append(start)
            found.sort()
    return tuple(found)


def candidate_points(
    request: ProbeSpec, default_algorithms: Sequence[DefaultAlgorithms] = ()
) -> list[CallPoint]:
    """Return all shapes and sizes, and the sizes at which the default switches algorithms.

    Of a table for the calls of a profile alone they are those that stand for its calls.
    Where every rank has a share of the buffer, sizes are rounded down to whole shares. Raises
    InputError if no size suffices for a share.
    """
    found = {
        CallPoint(
            *call[:3], HOST, collective.rounded_down(nbytes, shape.ranks), shape.placement
        ): None
        for collective in request.collectives
        for shape in shapes_to_measure(request)
        for call in [(collective, shape.nodes, shape.ppn, shape.placement)]
        for nbytes in with_default_thresholds(
            default_algorithms, call, _sizes_of_calls(request, collective, shape)
        )
    }
    points = [point for point in found if point.nbytes > 0]
    if not points:
        fewest = min(shape.ranks for shape in shapes_to_measure(request))
        raise InputError(
            f"no size of --sizes gives each of {fewest} ranks {PROBE_ELEMENT_BYTES} bytes:"
            " name larger ones"
        )
    counts = counts_of_calls(points, request.profile)
    return [point for point in points if counts[point]] if request.only_profile else points


def _sizes_of_calls(request: ProbeSpec, collective: Collective, shape: ProbeShape) -> Sequence[int]:
    """Return the sizes of the request, or those typical of the calls if it is for these alone.

    Calls of less than an element for each rank are measured with one.
    """
    if not request.only_profile:
        return request.sizes
    own = [
        call
        for call in request.profile
        if (call.collective, call.nodes, call.ppn) == (collective, shape.nodes, shape.ppn)
    ]
    least = PROBE_ELEMENT_BYTES * (shape.ranks if collective.has_blocks else 1)
    return [max(nbytes, least) for nbytes in typical_sizes(own)]


@dataclass(frozen=True)
class CandidateGenerator:
    """A generator of the choices that may be measured at a point.

    These are all that the library's own rules can express there, except the one that the default
    is known to run itself.
    """

    request: ProbeSpec
    constraints: Constraints = UNCONSTRAINED
    default_algorithms: Sequence[DefaultAlgorithms] = ()

    def __call__(self, point: CallPoint) -> tuple[AlgorithmChoice, ...]:
        """Return the candidate choices of a point, without the default."""
        request, collective = self.request, Collective(point.collective)
        library = mpi_libraries.library_module(request.library)
        call = (collective, point.nodes, point.ppn, point.placement)
        ran = default_lookup(self.default_algorithms, request.library)(call, point.nbytes)
        return tuple(
            choice
            for choice in library.candidates(
                collective, point.p, point.nbytes, request.segments, request.radices
            )
            if choice != ran
            and library.is_expressible(collective, choice, request.library)
            and self.constraints.is_allowed(request.library, collective, choice)
        )


def counts_of_calls(
    points: Iterable[CallPoint], profile: Iterable[ProfiledCall]
) -> Counter[CallPoint]:
    """Return how often an application makes the calls that each point stands for.

    Each of its calls is counted at the nearest size of its collective and shape.
    """
    alike: dict[tuple[str, int, int], list[CallPoint]] = defaultdict(list)
    for point in points:
        alike[point.collective, point.nodes, point.ppn].append(point)
    counts = Counter[CallPoint]()
    for call in profile:
        own = alike[call.collective, call.nodes, call.ppn]
        away = {point: abs(math.log(point.nbytes / call.nbytes)) for point in own}
        least = min(away.values(), default=0.0)
        counts.update({point: call.calls for point in own if away[point] == least})
    return counts


def order_points(
    points: Collection[CallPoint], profile: Collection[ProfiledCall] = ()
) -> list[CallPoint]:
    """Return the points in coarse-to-fine order, so that any first few are spread over all.

    The largest shape and the middle size come first, then those half way between. Before them come
    the calls of a profile, those first that should take most time by a rough line.
    """
    counts = counts_of_calls(points, profile)
    every = sorted({_shape_key(point) for point in points})
    sizes = sorted({point.nbytes for point in points})
    depth = dict(
        zip(every, [*(1 + each for each in _bisection_depths(len(every) - 1)), 0], strict=True)
    )
    rank = dict(zip(sizes, _bisection_depths(len(sizes)), strict=True))
    return sorted(
        points,
        key=lambda q: (
            -counts[q] * (LATENCY_BYTES + q.nbytes),
            depth[_shape_key(q)] + rank[q.nbytes],
            -q.p,
            q,
        ),
    )


def _shape_key(point: CallPoint) -> tuple[int, int, str]:
    return point.p, point.nodes, point.placement


def _bisection_depths(count: int) -> list[int]:
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


def bisection_points(
    design: ExperimentDesign, points: Collection[CallPoint], rows: Iterable[Observation]
) -> list[CallPoint]:
    """Return new points half way between measured ones with different winners.

    The two points differ in size alone, by a factor of `MIN_SIZE_RATIO` at least, and a table would
    choose another choice for each. Only a measurement tells where it should change, since the
    default may be slower in between than on either side.
    """
    measured = {row.point for row in rows}
    found = [
        _middle_point(low, high)
        for low, high in pairwise(sorted(measured.intersection(points), key=_sort_key))
        if low.with_size(high.nbytes) == high
        and high.nbytes >= MIN_SIZE_RATIO * low.nbytes
        and design.choose(low) != design.choose(high)
    ]
    return [point for point in found if point not in points]


def _sort_key(point: CallPoint) -> tuple[object, ...]:
    """Return a sort key by which the sizes of one call follow one another."""
    return point.placement, point


def _middle_point(low: CallPoint, high: CallPoint) -> CallPoint:
    """Return the point of the geometric mean of two sizes, rounded down to a valid size."""
    size = round(math.sqrt(low.nbytes * high.nbytes)) // PROBE_ELEMENT_BYTES * PROBE_ELEMENT_BYTES
    return low.with_size(Collective(low.collective).rounded_down(size, low.p))


def chosen_calls(tasks: Sequence[Experiment]) -> list[ExperimentRequest]:
    """Return the experiments of a design as requests to a probe."""
    return [
        ExperimentRequest(
            Collective(point.collective),
            point.nodes,
            point.ppn,
            point.nbytes,
            tuple(choice for choice in task.choices if not choice.is_default),
            point.placement,
            AlgorithmChoice() in task.choices,
        )
        for task in tasks
        for point in (task.point,)
    ]


def all_shapes(request: ProbeSpec) -> tuple[ProbeShape, ...]:
    """Return the shapes of the request; if none are given, those of every number of hosts.

    Clusters of more than `MAX_HOSTS` hosts get the shapes of a probe instead.
    """
    if request.shapes or request.nodes > MAX_HOSTS:
        return shapes_to_measure(request)
    each = {1, request.ppn}
    found = {ProbeShape(n, k) for n in range(1, request.nodes + 1) for k in each} - {
        ProbeShape(1, 1)
    }
    return tuple(sorted(found, key=lambda one: (one.ranks, one.nodes)))
