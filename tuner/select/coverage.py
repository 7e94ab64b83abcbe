"""Which measurements speak for a call: where none does, at most simulations are believed."""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product

from tuner.core.table import Choice
from tuner.select.dataset import Kind, Point, Row

REACH = 8.0  # a guess goes beyond what was measured, of nodes and of sizes, up to this factor
_LONE_GAP = 2.0  # how far a single probed size speaks for others

Shape = tuple[int, int]  # nodes, ppn


class Support:
    """What was measured of every kind of calls, by shape and size."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._measured = frozenset((row.point, row.choice) for row in rows)
        sizes: dict[Kind, dict[Shape, set[int]]] = defaultdict(lambda: defaultdict(set))
        for point, _ in self._measured:
            sizes[point.kind][point.nodes, point.ppn].add(point.nbytes)
        self._ladders = {
            kind: {shape: sorted(probed) for shape, probed in shapes.items()}
            for kind, shapes in sizes.items()
        }
        self._ladders_near: dict[tuple[Point, float], dict[Shape, list[int]]] = {}
        self._spoken: dict[tuple[Point, float], Sequence[Sequence[Point]]] = {}

    def measured(self, point: Point) -> bool:
        """Whether calls of this shape were, of any size."""
        return (point.nodes, point.ppn) in self._shapes(point)

    def ladder(self, point: Point) -> Sequence[int]:
        """The sizes at which such a call was measured on any shape, ascending."""
        return sorted({size for sizes in self._shapes(point).values() for size in sizes})

    def covers(self, point: Point, choice: Choice, reach: float = REACH) -> bool:
        """This choice was measured at a probed size next to `point`, on its shape or next to it.

        Between two probed sizes either will do; beyond the last, up to a factor `reach`, and one
        ladder gap in any case, but that no further than REACH.
        A shape that was measured there speaks for itself. For others those do that have the next
        fewer and the next more nodes, or where there is only one of these, it up to a factor
        `reach`; their ppn is the same, or the next in just that way.
        """
        return any(self._speaks(point, choice, reach))

    def around(self, point: Point) -> Sequence[Point]:
        """The same call on the shapes that speak for that of `point`, on both sides; on its own
        where that was measured.
        """
        speaking = _speaking(self._near(point, 1.0), point, 1.0)
        return [replace(point, nodes=nodes, ppn=ppn) for nodes, ppn in speaking]

    def beside(self, point: Point) -> Sequence[Point]:
        """The next smaller and the next larger call that was measured on its own shape."""
        sizes = self._shapes(point).get((point.nodes, point.ppn), [])
        return [point.at(size) for size in _around(sizes, point.nbytes)]

    def surrounds(self, point: Point, choice: Choice) -> bool:
        """Likewise, but on each of the shapes that speak for that of `point`."""
        spoken = self._speaks(point, choice, REACH)
        return bool(spoken) and all(spoken)

    def within(self, point: Point, reach: float = REACH) -> bool:
        """Whether anything was measured at a size next to `point`, on its shape or next to it."""
        return bool(_speaking(self._near(point, reach), point, reach))

    def _speaks(self, point: Point, choice: Choice, reach: float) -> list[bool]:
        """Of each speaking shape, whether this choice was measured there next to `point`'s size."""
        return [
            any((call, choice) in self._measured for call in calls)
            for calls in self._speaking_calls(point, reach)
        ]

    def _speaking_calls(self, point: Point, reach: float) -> Sequence[Sequence[Point]]:
        """The measured calls of each speaking shape next to `point`'s size, likewise."""
        if (point, reach) not in self._spoken:
            shapes = self._near(point, reach)
            self._spoken[point, reach] = [
                [
                    replace(point, nodes=nodes, ppn=ppn, nbytes=size)
                    for size in neighbours(shapes[nodes, ppn], point.nbytes, reach)
                ]
                for nodes, ppn in _speaking(shapes, point, reach)
            ]
        return self._spoken[point, reach]

    def _near(self, point: Point, reach: float) -> dict[Shape, list[int]]:
        """The ladders of the shapes that were measured at a size next to `point`; many choices
        ask.
        """
        if (point, reach) not in self._ladders_near:
            self._ladders_near[point, reach] = {
                shape: sizes
                for shape, sizes in self._shapes(point).items()
                if neighbours(sizes, point.nbytes, reach)
            }
        return self._ladders_near[point, reach]

    def _shapes(self, point: Point) -> dict[Shape, list[int]]:
        return self._ladders.get(point.kind, {})


def gap_above(sizes: Sequence[int]) -> float:
    """How far beyond the largest probed size is believed: as the next smaller one is away."""
    return min(sizes[-1] / max(sizes[-2], 1), REACH) if len(sizes) > 1 else _LONE_GAP


def gap_below(sizes: Sequence[int]) -> float:
    """Likewise, below the smallest one."""
    return min(sizes[1] / max(sizes[0], 1), REACH) if len(sizes) > 1 else _LONE_GAP


def neighbours(sizes: Sequence[int], nbytes: int, reach: float) -> Sequence[int]:
    """The probed sizes that speak for `nbytes`: itself, or the next on both sides."""
    above, below = max(gap_above(sizes), reach), max(gap_below(sizes), reach)
    if nbytes > sizes[-1] * above or nbytes < sizes[0] / below:
        return ()
    return _around(sizes, nbytes)


def _around(ladder: Sequence[int], value: int) -> Sequence[int]:
    """The value itself, or the next lower and the next higher one as far as there are any."""
    above = bisect.bisect_left(ladder, value)
    if above < len(ladder) and ladder[above] == value:
        return (value,)
    return ladder[max(above - 1, 0) : above + 1]


def _speaking(shapes: Iterable[Shape], point: Point, reach: float) -> Sequence[Shape]:
    """The measured shapes that speak for that of `point`."""
    own = (point.nodes, point.ppn)
    known = set(shapes)
    if own in known:
        return (own,)
    found: list[Shape] = []
    for ppn in _reached(sorted({ppn for _, ppn in known}), point.ppn, reach):
        counts = sorted(nodes for nodes, other in known if other == ppn)
        found += product(_reached(counts, point.nodes, reach), (ppn,))
    return found


def _reached(counts: Sequence[int], wanted: int, reach: float) -> Sequence[int]:
    far = max(wanted / counts[-1], counts[0] / wanted) if counts else math.inf
    return _around(counts, wanted) if far <= reach else ()
