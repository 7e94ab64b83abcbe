"""Crossover maps of a study: which algorithm is best over message size and number of ranks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from tuner.base.arrays import BoolArray, FloatArray
from tuner.base.units import format_size, format_time
from tuner.core.collective import Collective
from tuner.report import palette
from tuner.report.figures import TEXT_COLOUR
from tuner.report.palette import FillStyle
from tuner.report.region_labels import (
    BOLD,
    NAME_FONT_SIZE,
    NORMAL,
    TIME_FONT_SIZE,
    Cells,
    label_regions,
    text_height,
    text_width,
)
from tuner.report.time_breakdown import LETTERS_PER_INCH
from tuner.whatif.axes import AXIS_FORMATTERS
from tuner.whatif.study_result import StudyPoint, StudyResult

# A cell has room for a time, and a name above it.
CELL_WIDTH_IN = 0.48
CELL_HEIGHT_IN = 0.4
# Of the axes.
MIN_WIDTH_IN = 6.2
MAX_WIDTH_IN = 12.0
MIN_HEIGHT_IN = 3.5
MAX_HEIGHT_IN = 9.6
TICK_WIDTH_IN = 0.47  # of the label of a size
MAX_LABELLED_ROWS = 24
DARK_LUMA = 0.47  # of a colour on which text is white
NAME_STYLE = {"fontsize": NAME_FONT_SIZE, "fontweight": BOLD}
TIME_STYLE = {"fontsize": TIME_FONT_SIZE}


@dataclass(frozen=True)
class CrossoverMap:
    """One figure: the best algorithm over message size and number of ranks.

    name        name of the file without suffix
    best        algorithm by [ranks, size]; "" where nothing was simulated
    seconds     its time; 0 where nothing was simulated
    """

    name: str
    collective: Collective
    title: str
    ranks: tuple[int, ...]
    sizes: tuple[int, ...]
    best: NDArray[np.str_]
    seconds: FloatArray


def crossover_maps(result: StudyResult) -> Iterator[CrossoverMap]:
    """Yield a map for each collective and each combination of the axes that are not its rows."""
    rows = "nodes" if len(result.axes["nodes"]) > 1 else "ppn"
    groups: dict[tuple[object, ...], list[StudyPoint]] = {}
    for point in result.points:
        fixed = tuple((axis, value) for axis, value in point.axis_values.items() if axis != rows)
        groups.setdefault((point.collective, *fixed), []).append(point)
    for points in groups.values():
        told = {
            axis: f"{axis.replace('_', ' ')} {AXIS_FORMATTERS[axis](value)}"
            for axis, value in points[0].axis_values.items()
            if axis != rows
        }
        varying = [
            text.partition(" (")[0] for axis, text in told.items() if len(result.axes[axis]) > 1
        ]
        name = "-".join(["crossover", points[0].collective, *varying])
        title = ", ".join([f"{points[0].collective} on {result.topology}", *told.values()])
        yield _map(_file_name(name), title, points)


def _file_name(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in text)


def _map(name: str, title: str, points: Sequence[StudyPoint]) -> CrossoverMap:
    best = {(_ranks(p), p.nbytes): p.best for p in points if p.nbytes > 0}
    ranks = tuple(sorted({count for count, _ in best}))
    sizes = tuple(sorted({nbytes for _, nbytes in best}))
    cells = [[best.get((count, nbytes)) for nbytes in sizes] for count in ranks]
    names = np.array([[one.algorithm if one else "" for one in row] for row in cells])
    seconds = np.array([[one.seconds if one else 0.0 for one in row] for row in cells])
    return CrossoverMap(name, points[0].collective, title, ranks, sizes, names, seconds)


def _ranks(point: StudyPoint) -> int:
    return int(point.axis_values["nodes"]) * int(point.axis_values["ppn"])


def fill_styles(points: Iterable[StudyPoint]) -> dict[str, FillStyle]:
    """Return colour and hatch of each algorithm, the most frequent first.

    All figures of a collective use the same ones.
    """
    number = Counter(point.best.algorithm for point in points)
    return palette.fill_styles({name: name for name, _ in number.most_common()})


def map_size(drawn: CrossoverMap) -> tuple[float, float]:
    """Return width and height of a map's axes in inches: as many as the times in its cells need."""
    rows, columns = drawn.best.shape
    return (
        min(MAX_WIDTH_IN, max(MIN_WIDTH_IN, columns * CELL_WIDTH_IN)),
        min(MAX_HEIGHT_IN, max(MIN_HEIGHT_IN, rows * CELL_HEIGHT_IN)),
    )


def draw_map(figure: Figure, drawn: CrossoverMap, look: Mapping[str, FillStyle]) -> None:
    """Draw a map into an empty figure, with one cell for each size and number of ranks.

    Its axes fill the figure, for which `map_size` is a good size; labels and legend are outside.
    A cell has the time of its fastest algorithm. Where cells are too small for that, lines join
    equal times; a single row or column has none.
    """
    width, height = figure.get_size_inches()
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    there = [name for name in look if (drawn.best == name).any()]
    for name in there:
        _fill(axes, drawn.best == name, look[name])
    axes.add_collection(LineCollection(_boundaries(drawn.best), colors=TEXT_COLOUR, linewidths=1.1))
    rows, columns = drawn.best.shape
    cells = _cells(width / columns, height / rows, drawn)
    if cells.has_times:
        _write_times(axes, drawn, look)
    elif min(rows, columns) > 1:
        _draw_contours(axes, drawn)
    for label in label_regions(drawn.best, cells):
        _write(axes, label.column, label.row, label.text, look[label.name], NAME_STYLE)
    _label(axes, drawn, width)
    has_times = cells.has_times or min(rows, columns) > 1
    _add_legend(axes, {name: look[name] for name in there}, has_times)


def _cells(width: float, height: float, drawn: CrossoverMap) -> Cells:
    """Return the cells of a map: with times if the longest one fits, and a name above it."""
    longest = max((len(format_time(t)) for t in drawn.seconds[drawn.best != ""]), default=0)
    fits = text_width("8" * longest, TIME_FONT_SIZE, NORMAL) <= width
    both = text_height(1, TIME_FONT_SIZE) + text_height(1, NAME_FONT_SIZE)
    return Cells(width, height, fits and both <= height)


def _fill(axes: Axes, inside: BoolArray, style: FillStyle) -> None:
    colour, hatch = style
    rows, columns = inside.shape
    axes.pcolor(
        np.arange(columns + 1) - 0.5,
        np.arange(rows + 1) - 0.5,
        np.ma.masked_where(~inside, np.ones(inside.shape)),
        cmap=ListedColormap([colour]),
        hatch=hatch,
        linewidth=0,
        edgecolor="white" if hatch else colour,
    )


def _write_times(axes: Axes, drawn: CrossoverMap, look: Mapping[str, FillStyle]) -> None:
    for row, column in np.argwhere(drawn.best != ""):
        text = format_time(float(drawn.seconds[row, column]))
        _write(axes, column, row, text, look[str(drawn.best[row, column])], TIME_STYLE)


def _write(
    axes: Axes, column: float, row: float, text: str, style: FillStyle, font: Mapping[str, Any]
) -> None:
    """Write into a region, dark or light as its colour requires, and legible on its hatch."""
    colour, hatch = style
    red, green, blue = to_rgb(colour)
    dark = 0.299 * red + 0.587 * green + 0.114 * blue < DARK_LUMA
    axes.text(
        column,
        row,
        text,
        ha="center",
        va="center",
        color="white" if dark else "black",
        path_effects=[withStroke(linewidth=3, foreground=colour)] if hatch else [],
        **font,
    )


def _draw_contours(axes: Axes, drawn: CrossoverMap) -> None:
    """Draw lines of equal time, three in a decade."""
    known = np.where((drawn.best != "") & (drawn.seconds > 0), drawn.seconds, np.nan)
    exponents = range(
        math.floor(math.log10(np.nanmin(known))), math.ceil(math.log10(np.nanmax(known)))
    )
    levels = [math.log10(step) + exponent for exponent in exponents for step in (1, 2, 5)]
    lines = axes.contour(np.log10(known), levels, colors="white", linestyles="--", linewidths=0.9)
    for text in axes.clabel(
        lines, fontsize=NAME_FONT_SIZE, fmt=lambda exponent: format_time(10.0**exponent)
    ):
        text.set(color="black", path_effects=[withStroke(linewidth=2, foreground="white")])


def _add_legend(axes: Axes, look: Mapping[str, FillStyle], has_times: bool) -> None:
    handles = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=name)
        for name, (colour, hatch) in look.items()
    ]
    axes.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        frameon=False,
        title="fastest algorithm and its time" if has_times else "fastest algorithm",
        alignment="left",
    )


def _boundaries(best: NDArray[np.str_]) -> list[list[tuple[float, float]]]:
    """Return the lines between neighbouring cells of different algorithms."""
    lines = [
        [(j + 0.5, i - 0.5), (j + 0.5, i + 0.5)]
        for i, j in np.argwhere(best[:, 1:] != best[:, :-1])
    ]
    lines += [
        [(j - 0.5, i + 0.5), (j + 0.5, i + 0.5)] for i, j in np.argwhere(best[1:] != best[:-1])
    ]
    return lines


def _label(axes: Axes, drawn: CrossoverMap, width: float) -> None:
    unbroken = drawn.title.replace(" ", "\N{NO-BREAK SPACE}").replace(",\N{NO-BREAK SPACE}", ", ")
    axes.set_title("\n".join(wrap(unbroken, int(width * LETTERS_PER_INCH))))
    axes.set_xlim(-0.5, len(drawn.sizes) - 0.5)
    axes.set_ylim(-0.5, len(drawn.ranks) - 0.5)
    x = _labelled_positions(drawn.sizes, int(width / TICK_WIDTH_IN))
    y = _labelled_positions(drawn.ranks, MAX_LABELLED_ROWS)
    axes.set_xticks(x, [format_size(drawn.sizes[at]) for at in x], fontsize=8)
    axes.set_yticks(y, [str(drawn.ranks[at]) for at in y])
    axes.grid(visible=False)
    axes.set_xlabel("message size, those simulated")
    axes.set_ylabel("ranks")


def _labelled_positions(values: Sequence[int], most: int) -> range:
    """Return the indices of the values that get a label: evenly spaced, at most `most`."""
    return range(0, len(values), -(-len(values) // most))
