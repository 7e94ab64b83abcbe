"""Names of the regions of a map: one for each connected region that has room for it, inside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import itemgetter

import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from numpy.typing import NDArray
from scipy import ndimage

from tuner.base.arrays import BoolArray

NAME_FONT_SIZE = 7.5  # points
TIME_FONT_SIZE = 6.5  # points
BOLD, NORMAL = "bold", "normal"  # weights: of a name, of a time
MARGIN_IN = 0.06  # free at both sides of a text together
LINE_SPACING = 1.2
POINTS_PER_INCH = 72


def text_height(lines: int, font_size: float) -> float:
    """Return the height of a text in inches."""
    return lines * LINE_SPACING * font_size / POINTS_PER_INCH


@cache
def text_width(line: str, font_size: float, weight: str) -> float:
    """Return the width of a line of text in inches, with a margin."""
    path = TextPath((0, 0), line, size=font_size, prop=FontProperties(weight=weight))
    return float(path.get_extents().width) / POINTS_PER_INCH + MARGIN_IN


@dataclass(frozen=True)
class Cells:
    """The cells of a map, all of the same size.

    width, height   of one cell, in inches
    has_times       whether a time is in the middle of every cell
    """

    width: float
    height: float
    has_times: bool

    @property
    def spans(self) -> tuple[int, ...]:
        """The numbers of rows that a name may be in the middle of."""
        return (1, 2) if self.has_times else (1, 2, 3, 4)

    def room_height(self, rows: int) -> float:
        """Return the height in inches that a name in so many rows has, without that of times."""
        if not self.has_times:
            return rows * self.height
        time = text_height(1, TIME_FONT_SIZE)
        return self.height - time if rows == 2 else (self.height - time) / 2

    def name_offset(self, rows: int) -> float:
        """Return how far above the middle of so many rows a name is, as a fraction of a row."""
        if rows > 1 or not self.has_times:
            return 0.0
        return 0.25 + text_height(1, TIME_FONT_SIZE) / self.height / 4


@dataclass(frozen=True)
class RegionLabel:
    """A name, on one or several lines, and its centre in columns and rows."""

    name: str
    text: str
    column: float
    row: float


def label_regions(best: NDArray[np.str_], cells: Cells) -> Iterator[RegionLabel]:
    """Yield a label for each connected region of equal names that has room for its name.

    best    names by [row, column]; "" where there is none
    """
    for name in filter(None, np.unique(best)):
        regions, _ = ndimage.label(best == name)
        for number, (rows, columns) in enumerate(ndimage.find_objects(regions), start=1):
            label = _best_label(str(name), regions[rows, columns] == number, cells)
            if label is not None:
                yield replace(
                    label, row=label.row + rows.start, column=label.column + columns.start
                )


def _best_label(name: str, inside: BoolArray, cells: Cells) -> RegionLabel | None:
    """Return the label of a region in the best place, or None if it fits nowhere.

    inside      the cells of the smallest rectangle around the region that belong to it

    Few lines come first, then wide places, then places near the middle of the rows.
    """
    middle = (len(inside) - 1) / 2
    found: list[tuple[int, int, float, RegionLabel]] = []
    for rows, first, begin, end in _places(inside, cells.spans):
        width = (end - begin) * cells.width
        lines = fold_name(name, width)
        fits = text_height(len(lines), NAME_FONT_SIZE) <= cells.room_height(rows)
        if fits and max(map(_name_width, lines)) <= width:
            row, column = first + (rows - 1) / 2, (begin + end - 1) / 2
            label = RegionLabel(name, "\n".join(lines), column, row + cells.name_offset(rows))
            found.append((len(lines), begin - end, abs(row - middle), label))
    return min(found, key=itemgetter(0, 1, 2))[-1] if found else None


def _places(inside: BoolArray, spans: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """Yield number of rows, first row, first column and end of each rectangle within a region."""
    for rows in spans:
        for first in range(len(inside) - rows + 1):
            for begin, end in _runs(np.logical_and.reduce(inside[first : first + rows])):
                yield rows, first, begin, end


def _runs(cells: BoolArray) -> list[list[int]]:
    """Return the first index and the one after the last of each run of true cells."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], cells.astype(np.int8), [0]])))
    return [[int(begin), int(end)] for begin, end in edges.reshape(-1, 2)]


def fold_name(name: str, width: float) -> list[str]:
    """Cut a name after `_` into lines of at most `width` inches where the parts allow it."""
    lines = [""]
    for part in re.findall(r"[^_]*_|[^_]+", name):
        if lines[-1] and _name_width(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return lines


def _name_width(line: str) -> float:
    return text_width(line, NAME_FONT_SIZE, BOLD)
