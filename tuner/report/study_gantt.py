"""One run as a Gantt chart: ranks as rows, transfers as bars, the critical path marked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tuner.base.arrays import FloatArray, IntArray
from tuner.base.errors import InputError
from tuner.base.units import format_time
from tuner.report.figures import COLOURS
from tuner.sim.critical_paths import NO_TRANSFER, PathSegment, RankTimeline
from tuner.sim.transfer_spans import TransferSpan

SEND_COLOUR = COLOURS[0]
RECEIVE_COLOUR = COLOURS[3]
COMPUTE_COLOUR = COLOURS[8]
CRITICAL_PATH_COLOUR = "#CC3311"
LABEL_HEIGHT_IN = 0.5  # inches for the text below the axis
MAX_RANKS = 128
MAX_TRANSFERS = 20_000
# Rows have height 1 and are counted downwards: sends lie above receives.
SEND_LANE = (-0.4, -0.02)
RECEIVE_LANE = (0.02, 0.4)
COMPUTE_LANE = (-0.1, 0.1)


def require_drawable(ranks: int, transfers: int) -> None:
    """Raise InputError for more ranks or transfers than a picture can show."""
    if ranks > MAX_RANKS or transfers > MAX_TRANSFERS:
        raise InputError(
            f"a Gantt chart of {ranks} ranks and {transfers} transfers shows nothing: at most"
            f" {MAX_RANKS} ranks and {MAX_TRANSFERS} transfers; take fewer ranks or larger segments"
        )


def draw_gantt(
    figure: Figure,
    title: str,
    bars: Sequence[TransferSpan],
    visits: RankTimeline,
    path: Sequence[PathSegment],
) -> None:
    """Draw the chart into an empty figure."""
    axes = figure.add_subplot()
    ranks = int(visits.rank.max(initial=0)) + 1
    flowing = np.array([[bar.started, bar.released] for bar in bars]).reshape(-1, 2)
    src, dst = (np.array([getattr(bar, end) for bar in bars]) for end in ("src", "dst"))
    arrived = np.array([bar.arrived for bar in bars])
    _boxes(axes, src, flowing, SEND_LANE, SEND_COLOUR)
    _boxes(axes, dst, flowing, RECEIVE_LANE, RECEIVE_COLOUR)
    for begin, end in ((visits.entered, visits.copied), (visits.completed, visits.exited)):
        _boxes(axes, visits.rank, np.stack([begin, end], axis=1), COMPUTE_LANE, COMPUTE_COLOUR)
    middle = sum(RECEIVE_LANE) / 2
    tails = np.stack(
        [
            np.stack([flowing[:, 1], dst + middle], axis=1),
            np.stack([arrived, dst + middle], axis=1),
        ],
        axis=1,
    )
    axes.add_collection(LineCollection(list(tails), colors=RECEIVE_COLOUR, linewidths=1.0))
    axes.add_collection(
        LineCollection(
            _critical_path_lines(path, bars), colors=CRITICAL_PATH_COLOUR, linewidths=1.6, zorder=5
        )
    )
    _label(axes, title, ranks, max(float(visits.exited.max(initial=0.0)), arrived.max(initial=0.0)))
    worked = (visits.exited > visits.completed) | (visits.copied > visits.entered)
    _legend(figure, works=bool(worked.any()))


def _boxes(
    axes: Axes, rank: IntArray, times: FloatArray, height: tuple[float, float], colour: str
) -> None:
    there = times[:, 1] > times[:, 0]
    (begin, end), row = times[there].T, rank[there]
    low, high = row + height[0], row + height[1]
    corners = np.stack([[begin, low], [end, low], [end, high], [begin, high]]).transpose(2, 0, 1)
    axes.add_collection(
        PolyCollection(list(corners), facecolors=colour, edgecolors="white", linewidths=0.4)
    )


def _critical_path_lines(
    path: Sequence[PathSegment], bars: Sequence[TransferSpan]
) -> list[list[tuple[float, float]]]:
    """Return lines along each segment's row, and across to the row of the next one."""
    lines: list[list[tuple[float, float]]] = []
    for span in path:
        row = span.rank + _height_in_row(span, bars)
        if lines:
            lines.append([lines[-1][-1], (span.begin, row)])
        lines.append([(span.begin, row), (span.end, row)])
    return lines


def _height_in_row(span: PathSegment, bars: Sequence[TransferSpan]) -> float:
    """Return the vertical position of a segment within its row."""
    if span.transfer == NO_TRANSFER:
        return 0.0
    return sum(SEND_LANE if span.rank == bars[span.transfer].src else RECEIVE_LANE) / 2


def _label(axes: Axes, title: str, ranks: int, end: float) -> None:
    axes.set_title(title)
    axes.set_ylim(ranks - 0.4, -0.6)
    axes.set_xlim(0, end * 1.01 or 1.0)
    axes.yaxis.set_major_locator(MaxNLocator(min(ranks, 32), integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda t, _: format_time(t) if t else "0"))
    axes.grid(visible=False, axis="y")
    axes.set_axisbelow(True)
    axes.set_ylabel("rank")
    axes.set_xlabel("time")


def _legend(figure: Figure, *, works: bool) -> None:
    handles = [
        Patch(color=SEND_COLOUR, label="sending"),
        Patch(color=RECEIVE_COLOUR, label="receiving"),
        Line2D([], [], color=RECEIVE_COLOUR, label="last byte on its way (flight)"),
        *([Patch(color=COMPUTE_COLOUR, label="reducing, copying")] if works else []),
        Line2D([], [], color=CRITICAL_PATH_COLOUR, linewidth=1.6, label="critical path"),
    ]
    below = figure.subplotpars.bottom - LABEL_HEIGHT_IN / figure.get_figheight()
    figure.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, below), frameon=False, ncols=5
    )
