"""Names of the regions of a map: one for each connected region that has room for it, inside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from tuner.base.arrays import BoolArray

NAME_FONT_SIZE, TIME_FONT_SIZE = 7.5, 6.5  # points
EM_PER_LETTER = 0.66  # average width of a letter of a bold name
LINE_SPACING = 1.2
POINTS_PER_INCH = 72


def text_height(lines: int, font_size: float) -> float:
    """Return the height of a text in inches."""
    return lines * LINE_SPACING * font_size / POINTS_PER_INCH


def text_width(letters: int, font_size: float) -> float:
    """Return the width of a text in inches, on average."""
    return letters * EM_PER_LETTER * font_size / POINTS_PER_INCH


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
        letters = int((end - begin) * cells.width / text_width(1, NAME_FONT_SIZE))
        text = name if len(name) <= letters else fold_name(name, letters)
        lines = text.split("\n")
        fits = text_height(len(lines), NAME_FONT_SIZE) <= cells.room_height(rows)
        if fits and max(map(len, lines)) <= letters:
            row = first + (rows - 1) / 2
            label = RegionLabel(name, text, (begin + end - 1) / 2, row + cells.name_offset(rows))
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


def fold_name(name: str, letters: int) -> str:
    """Cut a name after `_`, with at most `letters` letters on a line where the parts allow it."""
    lines = [""]
    for part in re.findall(r"[^_]*_?", name):
        if lines[-1] and len(lines[-1]) + len(part) > letters:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)
