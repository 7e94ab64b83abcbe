"""Coverage of calls by measurements; elsewhere at most simulations are trusted."""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product

from tuner.core.table import AlgorithmChoice
from tuner.select.dataset import CallKind, CallPoint, Observation

MAX_EXTRAPOLATION = 8.0  # largest factor of extrapolation beyond measured nodes and sizes
GUARDED_EXTRAPOLATION = 4.0  # of rules: two octaves
_SINGLE_SIZE_FACTOR = 2.0  # extrapolation factor around a single probed size

NodesPpn = tuple[int, int]  # nodes, ppn


class Coverage:
    """The measured calls of every kind, by shape and size."""

    def __init__(self, observations: Iterable[Observation]) -> None:
        self._measured_pairs = frozenset((row.point, row.choice) for row in observations)
        self._choices = defaultdict[CallPoint, set[AlgorithmChoice]](set)
        for point, choice in self._measured_pairs:
            self._choices[point].add(choice)
        sizes: dict[CallKind, dict[NodesPpn, set[int]]] = defaultdict(lambda: defaultdict(set))
        for point, _ in self._measured_pairs:
            sizes[point.kind][point.nodes, point.ppn].add(point.nbytes)
        self._sizes_by_shape = {
            kind: {shape: sorted(probed) for shape, probed in shapes.items()}
            for kind, shapes in sizes.items()
        }
        self._nearby_sizes: dict[tuple[CallPoint, float], dict[NodesPpn, list[int]]] = {}
        self._neighbours_cache: dict[tuple[CallPoint, float], Sequence[Sequence[CallPoint]]] = {}

    def is_measured_shape(self, point: CallPoint) -> bool:
        """Return whether calls of this shape were measured at any size."""
        return (point.nodes, point.ppn) in self._shapes(point)

    def measured_choices(self, point: CallPoint) -> frozenset[AlgorithmChoice]:
        """Return the choices that were measured at `point` itself."""
        return frozenset(self._choices.get(point, ()))

    def measured_sizes(self, point: CallPoint) -> Sequence[int]:
        """Return the sizes at which calls of this kind were measured on any shape, ascending."""
        return sorted({size for sizes in self._shapes(point).values() for size in sizes})

    def covers(
        self,
        point: CallPoint,
        choice: AlgorithmChoice,
        max_extrapolation: float = MAX_EXTRAPOLATION,
    ) -> bool:
        """Return whether a choice was measured near `point`: at a neighbouring size and shape.

        Between two probed sizes either one suffices. Beyond the last size, `max_extrapolation` is
        the largest factor, and one step of the probed sizes is always allowed, up to
        MAX_EXTRAPOLATION. A shape that was measured there is its own only neighbour. Neighbours of
        other shapes have the next fewer and the next more nodes; if only one of these exists, up to
        a factor `max_extrapolation`. Their ppn is the same, or the next one by the same rule.
        """
        return any(self._covered_by(point, choice, max_extrapolation))

    def size_neighbours(self, point: CallPoint) -> Sequence[CallPoint]:
        """Return the next smaller and the next larger call that was measured on the same shape.

        If the call itself was measured, it is the only one.
        """
        sizes = self._shapes(point).get((point.nodes, point.ppn), [])
        return [point.with_size(size) for size in _bracket(sizes, point.nbytes)]

    def covers_on_all_sides(self, point: CallPoint, choice: AlgorithmChoice) -> bool:
        """Return whether a choice was measured near `point` on every neighbouring shape."""
        spoken = self._covered_by(point, choice, MAX_EXTRAPOLATION)
        return bool(spoken) and all(spoken)

    def is_in_domain(self, point: CallPoint, max_extrapolation: float = MAX_EXTRAPOLATION) -> bool:
        """Return whether any choice was measured at a neighbouring size and shape of `point`."""
        return bool(
            _neighbouring_shapes(
                self._shapes_near_size(point, max_extrapolation), point, max_extrapolation
            )
        )

    def shows_trend(self, point: CallPoint) -> bool:
        """Return whether several node counts were measured or that of `point`, and so for ppn."""
        counts = zip(*self._shapes(point), strict=True)
        return all(
            value in measured or len({*measured}) > 1
            for value, measured in zip((point.nodes, point.ppn), counts, strict=False)
        )

    def _covered_by(
        self, point: CallPoint, choice: AlgorithmChoice, max_extrapolation: float
    ) -> list[bool]:
        """Return for each neighbouring shape whether a choice was measured near `point`'s size."""
        return [
            any((call, choice) in self._measured_pairs for call in calls)
            for calls in self._neighbour_calls(point, max_extrapolation)
        ]

    def _neighbour_calls(
        self, point: CallPoint, max_extrapolation: float
    ) -> Sequence[Sequence[CallPoint]]:
        """Return for each neighbouring shape the measured calls near `point`'s size."""
        if (point, max_extrapolation) not in self._neighbours_cache:
            shapes = self._shapes_near_size(point, max_extrapolation)
            self._neighbours_cache[point, max_extrapolation] = [
                [
                    replace(point, nodes=nodes, ppn=ppn, nbytes=size)
                    for size in neighbouring_sizes(
                        shapes[nodes, ppn], point.nbytes, max_extrapolation
                    )
                ]
                for nodes, ppn in _neighbouring_shapes(shapes, point, max_extrapolation)
            ]
        return self._neighbours_cache[point, max_extrapolation]

    def _shapes_near_size(
        self, point: CallPoint, max_extrapolation: float
    ) -> dict[NodesPpn, list[int]]:
        """Return the sizes of the shapes that were measured near the size of `point`.

        The result is cached, because it is needed for many choices.
        """
        if (point, max_extrapolation) not in self._nearby_sizes:
            self._nearby_sizes[point, max_extrapolation] = {
                shape: sizes
                for shape, sizes in self._shapes(point).items()
                if neighbouring_sizes(sizes, point.nbytes, max_extrapolation)
            }
        return self._nearby_sizes[point, max_extrapolation]

    def _shapes(self, point: CallPoint) -> dict[NodesPpn, list[int]]:
        return self._sizes_by_shape.get(point.kind, {})


def max_factor_beyond(last: Sequence[int]) -> float:
    """Return the extrapolation factor beyond the first or last two sizes, or one: their step."""
    if len(last) < 2:
        return _SINGLE_SIZE_FACTOR
    return min(last[1] / max(last[0], 1), MAX_EXTRAPOLATION)


def neighbouring_sizes(
    sizes: Sequence[int], nbytes: int, max_extrapolation: float
) -> Sequence[int]:
    """Return `nbytes` if it was probed, else the next probed sizes on both sides.

    The result is empty beyond the range of extrapolation.
    """
    above = max(max_factor_beyond(sizes[-2:]), max_extrapolation)
    below = max(max_factor_beyond(sizes[:2]), max_extrapolation)
    if nbytes > sizes[-1] * above or nbytes < sizes[0] / below:
        return ()
    return _bracket(sizes, nbytes)


def _bracket(values: Sequence[int], value: int) -> Sequence[int]:
    """Return the value if it is in `values`, else its next lower and next higher neighbours."""
    above = bisect.bisect_left(values, value)
    if above < len(values) and values[above] == value:
        return (value,)
    return values[max(above - 1, 0) : above + 1]


def _neighbouring_shapes(
    shapes: Iterable[NodesPpn], point: CallPoint, max_extrapolation: float
) -> Sequence[NodesPpn]:
    """Return the measured shapes that neighbour that of `point`."""
    own = (point.nodes, point.ppn)
    known = set(shapes)
    if own in known:
        return (own,)
    found: list[NodesPpn] = []
    for ppn in _bracket_within(sorted({ppn for _, ppn in known}), point.ppn, max_extrapolation):
        counts = sorted(nodes for nodes, other in known if other == ppn)
        found += product(_bracket_within(counts, point.nodes, max_extrapolation), (ppn,))
    return found


def _bracket_within(counts: Sequence[int], value: int, max_extrapolation: float) -> Sequence[int]:
    far = max(value / counts[-1], counts[0] / value) if counts else math.inf
    return _bracket(counts, value) if far <= max_extrapolation else ()
