"""Crossover maps of a study: which algorithm is best over message size and number of ranks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from tuner.base.arrays import BoolArray, IntArray
from tuner.base.units import format_size
from tuner.core.collective import Collective
from tuner.report.figures import COLOURS, TEXT_COLOUR
from tuner.whatif import StudyPoint, StudyResult
from tuner.whatif.axes import AXIS_FORMATTERS

HATCHES = ("", "///", "...", "xxx")  # for algorithms beyond the number of colours
FillStyle = tuple[str, str]  # colour, hatch
LETTER_WIDTH, LINE_HEIGHT = 0.0125, 0.042  # fractions of the width and the height of the axes
MAX_LABELLED_ROWS, MAX_LABELLED_COLUMNS = 24, 12


@dataclass(frozen=True)
class CrossoverMap:
    """One figure: the best algorithm over message size and number of ranks.

    name        name of the file without suffix
    best        algorithm by [ranks, size]; "" where nothing was simulated
    """

    name: str
    collective: Collective
    title: str
    ranks: tuple[int, ...]
    sizes: tuple[int, ...]
    best: NDArray[np.str_]


def crossover_maps(result: StudyResult) -> Iterator[CrossoverMap]:
    """Yield a map for each collective and each combination of the axes that are not its rows."""
    rows = "nodes" if len(result.axes["nodes"]) > 1 else "ppn"
    groups: dict[tuple[object, ...], list[StudyPoint]] = {}
    for point in result.points:
        fixed = tuple((axis, value) for axis, value in point.axis_values.items() if axis != rows)
        groups.setdefault((point.collective, *fixed), []).append(point)
    varying = [axis for axis, values in result.axes.items() if len(values) > 1 and axis != rows]
    for points in groups.values():
        at = points[0].axis_values
        told = [f"{axis.replace('_', ' ')} {AXIS_FORMATTERS[axis](at[axis])}" for axis in varying]
        name = "-".join(["crossover", points[0].collective, *told])
        title = ", ".join([f"{points[0].collective} on {result.topology}", *told])
        yield _map(_file_name(name), title, points)


def _file_name(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in text)


def _map(name: str, title: str, points: Sequence[StudyPoint]) -> CrossoverMap:
    best = {(_ranks(p), p.nbytes): p.best.algorithm for p in points if p.nbytes > 0}
    ranks = tuple(sorted({count for count, _ in best}))
    sizes = tuple(sorted({nbytes for _, nbytes in best}))
    cells = np.array([[best.get((count, nbytes), "") for nbytes in sizes] for count in ranks])
    return CrossoverMap(name, points[0].collective, title, ranks, sizes, cells)


def _ranks(point: StudyPoint) -> int:
    return int(point.axis_values["nodes"]) * int(point.axis_values["ppn"])


def fill_styles(points: Iterable[StudyPoint]) -> dict[str, FillStyle]:
    """Return colour and hatch of each algorithm; the most frequent get plain colours.

    All figures of a collective use the same ones.
    """
    number = Counter(point.best.algorithm for point in points)
    return {
        name: (COLOURS[i % len(COLOURS)], HATCHES[i // len(COLOURS) % len(HATCHES)])
        for i, (name, _) in enumerate(number.most_common())
    }


def draw_map(figure: Figure, drawn: CrossoverMap, look: Mapping[str, FillStyle]) -> None:
    """Draw a map into an empty figure, with one cell for each size and number of ranks."""
    axes = figure.add_subplot()
    rows, columns = drawn.best.shape
    x, y = np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5
    there = [name for name in look if (drawn.best == name).any()]
    for name in there:
        colour, hatch = look[name]
        mine = np.ma.masked_where(drawn.best != name, np.ones(drawn.best.shape))
        axes.pcolor(
            x,
            y,
            mine,
            cmap=ListedColormap([colour]),
            hatch=hatch,
            linewidth=0,
            edgecolor="white" if hatch else colour,
        )
    axes.add_collection(LineCollection(_boundaries(drawn.best), colors=TEXT_COLOUR, linewidths=1.1))
    for name in there:
        _write_inside(axes, drawn.best == name, name)
    _label(axes, drawn)
    handles = [
        Patch(facecolor=look[name][0], hatch=look[name][1], edgecolor="white", label=name)
        for name in there
    ]
    axes.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        frameon=False,
        title="fastest algorithm",
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


def _write_inside(axes: Axes, inside: BoolArray, name: str) -> None:
    """Write the name where its region is widest, on several lines if needed, if there is room."""
    rows, columns = inside.shape
    wide = np.array([_run_lengths(row) for row in inside])
    row = int(wide.max(axis=1).argmax())
    longest = np.flatnonzero(wide[row] == wide[row].max())
    run = longest[: int(wide[row].max())]
    full = np.array([bool(cells[run].all()) for cells in inside])
    high = np.flatnonzero(full & (_run_lengths(full) == _run_lengths(full)[row]))
    letters = len(run) / columns / LETTER_WIDTH
    text = name if len(name) <= letters else _folded(name, int(letters))
    lines = text.split("\n")
    if max(map(len, lines)) <= letters and len(lines) <= len(high) / rows / LINE_HEIGHT:
        axes.text(
            float(run.mean()),
            float(high.mean()),
            text,
            ha="center",
            va="center",
            fontsize=8,
            color="black",
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )


def _folded(name: str, letters: int) -> str:
    """Cut a name after `_`, with at most `letters` letters on a line where the parts allow it."""
    lines = [""]
    for part in re.findall(r"[^_]*_?", name):
        if lines[-1] and len(lines[-1]) + len(part) > letters:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _run_lengths(cells: BoolArray) -> IntArray:
    """Return for each cell the length of the run of true cells that it belongs to, 0 if false."""
    lengths = np.zeros(len(cells), dtype=np.int64)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], cells.astype(np.int8), [0]])))
    for begin, end in edges.reshape(-1, 2):
        lengths[begin:end] = end - begin
    return lengths


def _label(axes: Axes, drawn: CrossoverMap) -> None:
    axes.set_title(drawn.title)
    axes.set_xlim(-0.5, len(drawn.sizes) - 0.5)
    axes.set_ylim(-0.5, len(drawn.ranks) - 0.5)
    x, y = (
        _labelled_positions(drawn.sizes, MAX_LABELLED_COLUMNS),
        _labelled_positions(drawn.ranks, MAX_LABELLED_ROWS),
    )
    axes.set_xticks(x, [format_size(drawn.sizes[at]) for at in x])
    axes.set_yticks(y, [str(drawn.ranks[at]) for at in y])
    axes.grid(visible=False)
    axes.set_xlabel("message size, those simulated")
    axes.set_ylabel("ranks")


def _labelled_positions(values: Sequence[int], most: int) -> range:
    """Return the indices of the values that get a label: evenly spaced, at most `most`."""
    return range(0, len(values), -(-len(values) // most))
