"""Crossover maps of a study: which algorithm is best over message size and number of ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import NDArray

from tuner.collective import Collective
from tuner.report.figures import COLOURS, INK, powers
from tuner.sim.study import StudyPoint, StudyResult
from tuner.sim.study.axes import FORMATS
from tuner.units import format_size

HATCHES = ("", "///", "...", "xxx")  # beyond the colours the next ones are hatched
Look = tuple[str, str]  # colour, hatch
ROOM = 0.0125  # of the width of the figure, that one letter takes
MOST_ROWS_LABELLED = 12


@dataclass(frozen=True)
class CrossoverMap:
    """One figure: the best algorithm, shape (ranks, sizes), "" where nothing was simulated."""

    name: str  # of the file
    collective: Collective
    title: str
    ranks: tuple[int, ...]
    sizes: tuple[int, ...]
    best: NDArray[np.str_]


def crossover_maps(result: StudyResult) -> Iterator[CrossoverMap]:
    """One for each collective and each combination of the axes that are not rows of it."""
    rows = "nodes" if len(result.axes["nodes"]) > 1 else "ppn"
    groups: dict[tuple[object, ...], list[StudyPoint]] = {}
    for point in result.points:
        fixed = tuple((axis, value) for axis, value in point.at.items() if axis != rows)
        groups.setdefault((point.collective, *fixed), []).append(point)
    varying = [axis for axis, values in result.axes.items() if len(values) > 1 and axis != rows]
    for points in groups.values():
        at = points[0].at
        told = [f"{axis.replace('_', ' ')} {FORMATS[axis](at[axis])}" for axis in varying]
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
    return int(point.at["nodes"]) * int(point.at["ppn"])


def looks(points: Iterable[StudyPoint]) -> dict[str, Look]:
    """The same for an algorithm in all figures of a collective; the commonest get plain colours."""
    number = Counter(point.best.algorithm for point in points)
    return {
        name: (COLOURS[i % len(COLOURS)], HATCHES[i // len(COLOURS) % len(HATCHES)])
        for i, (name, _) in enumerate(number.most_common())
    }


def draw_map(figure: Figure, drawn: CrossoverMap, look: Mapping[str, Look]) -> None:
    """Fill an empty figure."""
    axes = figure.add_subplot()
    x, y = (_edges(values) for values in (drawn.sizes, drawn.ranks))
    there = [name for name in look if (drawn.best == name).any()]
    for name in there:
        colour, hatch = look[name]
        mine = np.ma.masked_where(drawn.best != name, np.ones(drawn.best.shape))
        axes.pcolor(x, y, mine, cmap=ListedColormap([colour]), hatch=hatch, linewidth=0,
                    edgecolor="white" if hatch else colour)  # fmt: skip
    axes.add_collection(LineCollection(_boundaries(drawn.best, x, y), colors=INK, linewidths=1.1))
    for name in there:
        _write_inside(axes, drawn, name)
    _label(axes, drawn, x, y)
    handles = [Patch(facecolor=look[name][0], hatch=look[name][1], edgecolor="white", label=name)
               for name in there]  # fmt: skip
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False,
                title="fastest algorithm", alignment="left")  # fmt: skip


def _edges(values: Sequence[int]) -> NDArray[np.float64]:
    """Half way, on a logarithmic scale, between neighbours; as far out at the ends."""
    log = np.log(np.array(values, dtype=float))
    middle = (log[1:] + log[:-1]) / 2 if len(log) > 1 else log - 0.5
    first, last = 2 * log[0] - middle[0], 2 * log[-1] - middle[-1]
    edges: NDArray[np.float64] = np.exp(np.unique([first, *middle, last]))
    return edges


def _boundaries(
    best: NDArray[np.str_], x: NDArray[np.float64], y: NDArray[np.float64]
) -> list[list[tuple[float, float]]]:
    """Lines between neighbouring cells of different algorithms."""
    lines = [[(x[j + 1], y[i]), (x[j + 1], y[i + 1])]
             for i, j in np.argwhere(best[:, 1:] != best[:, :-1])]  # fmt: skip
    lines += [[(x[j], y[i + 1]), (x[j + 1], y[i + 1])]
              for i, j in np.argwhere(best[1:] != best[:-1])]  # fmt: skip
    return lines


def _write_inside(axes: Axes, drawn: CrossoverMap, name: str) -> None:
    """The name where its region is widest, if there is room."""
    inside = drawn.best == name
    wide = np.array([_run_lengths(row) for row in inside])
    row = int(wide.max(axis=1).argmax())
    longest = np.flatnonzero(wide[row] == wide[row].max())
    run = longest[: int(wide[row].max())]
    if len(run) / inside.shape[1] >= ROOM * len(name):
        middle = np.sqrt(float(drawn.sizes[run[0]]) * drawn.sizes[run[-1]])
        axes.text(
            middle, drawn.ranks[row], name, ha="center", va="center", fontsize=8, color="black",
            path_effects=[withStroke(linewidth=2.5, foreground="white")], clip_on=True,
        )  # fmt: skip


def _run_lengths(cells: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Of each cell how long the run of true ones is that it belongs to."""
    lengths = np.zeros(len(cells), dtype=np.int64)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], cells.astype(np.int8), [0]])))
    for begin, end in edges.reshape(-1, 2):
        lengths[begin:end] = end - begin
    return lengths


def _label(axes: Axes, drawn: CrossoverMap, x: NDArray[np.float64], y: NDArray[np.float64]) -> None:
    axes.set_title(drawn.title)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(y[0], y[-1])
    axes.xaxis.set_major_locator(FixedLocator(powers(drawn.sizes[0], drawn.sizes[-1])))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_size(value)))
    axes.yaxis.set_major_locator(FixedLocator(_told(drawn.ranks)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.grid(visible=False)
    axes.set_xlabel("message size")
    axes.set_ylabel("ranks")


def _told(ranks: Sequence[int]) -> list[int]:
    """All of them where they are few, else such as are at least an eighth of the height apart."""
    if len(ranks) <= MOST_ROWS_LABELLED:
        return list(ranks)
    least = (np.log(ranks[-1]) - np.log(ranks[0])) / MOST_ROWS_LABELLED
    told = [ranks[0]]
    for _, count in pairwise(ranks):
        if np.log(count) - np.log(told[-1]) >= least:
            told.append(count)
    return told
