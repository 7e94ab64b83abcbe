"""Plots of time over an axis of a study, absolute and relative, with a curve for each algorithm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedFormatter,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullFormatter,
    NullLocator,
)

from tuner.base.units import format_size, format_time
from tuner.core.collective import Collective
from tuner.report.figures import FIGURE_STYLE, TEXT_COLOUR
from tuner.report.palette import colour_of, marker_of
from tuner.whatif.axes import AXIS_FORMATTERS, AxisValue
from tuner.whatif.study_result import StudyPoint, StudyResult
from tuner.whatif.study_summary import limit_name

MAX_CURVES = 6
MAX_PANELS = 3  # sizes
MAX_SHOWN_RATIO = 4.0  # times as long as the slowest of the best
PANEL_WIDTH_IN = 3.6
PANEL_HEIGHT_IN = 3.4
RATIO_HEIGHT_IN = 2.4
RATIO_RANGE = 0.25, 2.5  # beyond it a curve leaves the relative panel
RATIO_TICKS = (0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0, 2.5)
NCCL_LABEL = "NCCL by itself"


@dataclass(frozen=True)
class AxisPlot:
    """What one plot shows: a collective along one axis, at some sizes.

    points      points by size, in the order of the axis
    fixed       the values of the other axes with several values
    """

    axis: str
    collective: Collective
    topology: str
    points: dict[int, list[StudyPoint]]
    fixed: str

    @property
    def name(self) -> str:
        return f"axis-{self.axis}-{self.collective}"


def axis_plots(result: StudyResult) -> Iterator[AxisPlot]:
    """Yield a plot for every axis of numbers with several values, for each collective.

    The other axes have their last values.
    """
    for axis, values in result.axes.items():
        if len(values) < 2 or isinstance(values[0], str):
            continue
        others = {name: own[-1] for name, own in result.axes.items() if name != axis}
        for collective in dict.fromkeys(point.collective for point in result.points):
            points: dict[int, list[StudyPoint]] = {}
            for point in result.points:
                if point.collective is collective and _is_at(point, others):
                    points.setdefault(point.nbytes, []).append(point)
            yield AxisPlot(axis, collective, result.topology, points, _fixed(result, others))


def _is_at(point: StudyPoint, others: dict[str, AxisValue]) -> bool:
    return all(point.axis_values[name] == value for name, value in others.items())


def _fixed(result: StudyResult, others: dict[str, AxisValue]) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {AXIS_FORMATTERS[name](value)}"
        for name, value in others.items()
        if len(result.axes[name]) > 1
    )


def plot_size(plot: AxisPlot) -> tuple[float, float]:
    """Return width and height of a plot in inches."""
    return PANEL_WIDTH_IN * len(_shown_sizes(plot)), PANEL_HEIGHT_IN + RATIO_HEIGHT_IN


def _shown_sizes(plot: AxisPlot) -> list[int]:
    """Return the smallest size, the largest, and one between them."""
    sizes = sorted(plot.points)
    if len(sizes) <= MAX_PANELS:
        return sizes
    return [sizes[0], sizes[len(sizes) // 2], sizes[-1]]


def draw_axis_plot(figure: Figure, plot: AxisPlot) -> None:
    """Draw time over the values of the axis into an empty figure, a column for each size.

    Below the times are those relative to what runs without a table where that is known, else to the
    fastest.
    """
    with mpl.rc_context(FIGURE_STYLE):
        sizes = _shown_sizes(plot)
        panels, below = figure.subplots(
            2, len(sizes), squeeze=False, height_ratios=(PANEL_HEIGHT_IN, RATIO_HEIGHT_IN)
        )
        names = _shown_algorithms(plot, sizes)
        for panel, ratios, nbytes in zip(panels, below, sizes, strict=True):
            _draw_times(panel, plot, nbytes, names)
            _draw_ratios(ratios, plot, nbytes, names)
        handles = {
            label: handle
            for panel in panels
            for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
        }
        where = f", {plot.fixed}" if plot.fixed else ""
        figure.suptitle(f"{plot.collective} on {plot.topology}{where}", x=0.01, ha="left", y=1.02)
        figure.legend(
            handles.values(), handles, loc="upper left", bbox_to_anchor=(1.0, 0.95), frameon=False
        )
        figure.tight_layout()


def _shown_algorithms(plot: AxisPlot, sizes: Sequence[int]) -> list[str]:
    """Return the algorithms that are among the fastest most often, at most MAX_CURVES."""
    places = Counter[str]()
    for nbytes in sizes:
        for point in plot.points[nbytes]:
            fastest = dict.fromkeys(one.algorithm for one in point.candidates)
            for place, name in enumerate(list(fastest)[:MAX_CURVES]):
                places[name] += 1000 if place == 0 else MAX_CURVES - place
    return [name for name, _ in places.most_common(MAX_CURVES)]


def _draw_times(panel: Axes, plot: AxisPlot, nbytes: int, names: Sequence[str]) -> None:
    points = plot.points[nbytes]
    x = _axis_numbers(plot, points)
    for label, seconds, look in _curves(points, names):
        panel.plot(x, seconds, label=label, **look)
    best = [point.best.seconds for point in points]
    panel.set_ylim(min(best) * 0.7, max(best) * MAX_SHOWN_RATIO)
    _name_limits(panel, points, x)
    _format_axes(panel, plot, points)
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_time(value)))
    panel.set_title(format_size(nbytes))


def _draw_ratios(panel: Axes, plot: AxisPlot, nbytes: int, names: Sequence[str]) -> None:
    points = plot.points[nbytes]
    x = _axis_numbers(plot, points)
    own = [point.nccl_seconds for point in points]
    fastest = [point.best.seconds for point in points]
    is_known = all(seconds is not None for seconds in own)
    base = [time or best for time, best in zip(own, fastest, strict=True)] if is_known else fastest
    for _, seconds, look in _curves(points, names):
        panel.plot(x, [time / one for time, one in zip(seconds, base, strict=True)], **look)
    panel.axhline(1.0, color=TEXT_COLOUR, linewidth=1.4, zorder=1.5)
    lowest = min(best / one for best, one in zip(fastest, base, strict=True))
    _format_axes(panel, plot, points)
    panel.set_ylim(max(RATIO_RANGE[0], min(0.9, lowest * 0.93)), RATIO_RANGE[1])
    panel.yaxis.set_major_locator(FixedLocator(RATIO_TICKS))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}\u00d7"))
    panel.set_title(f"relative to {NCCL_LABEL if is_known else 'the fastest'}", fontsize=8)


def _axis_numbers(plot: AxisPlot, points: Sequence[StudyPoint]) -> list[float]:
    return [float(point.axis_values[plot.axis]) for point in points]


def _curves(
    points: Sequence[StudyPoint], names: Sequence[str]
) -> Iterator[tuple[str, list[float], dict[str, Any]]]:
    """Yield label, times and look of each curve."""
    for name in names:
        look = {"color": colour_of(name), "marker": marker_of(name), "markersize": 4}
        yield name, [_best_seconds(point, name) for point in points], look
    own = [point.nccl_seconds for point in points]
    if any(seconds is not None for seconds in own):
        look = {"color": TEXT_COLOUR, "linestyle": "--", "linewidth": 1.0}
        yield NCCL_LABEL, [float("nan") if one is None else one for one in own], look


def _best_seconds(point: StudyPoint, name: str) -> float:
    times = (one.seconds for one in point.candidates if one.algorithm == name)
    return min(times, default=float("nan"))


def _name_limits(panel: Axes, points: Sequence[StudyPoint], x: Sequence[float]) -> None:
    """Write below the fastest time of each value what limits it, where that changes."""
    before = ""
    for point, at in zip(points, x, strict=True):
        name = limit_name(point) if point.sensitivities else ""
        if name and name != before:
            panel.annotate(
                name if at == x[-1] else f"{name} \u2192",
                (at, point.best.seconds),
                xytext=(0, -14),
                textcoords="offset points",
                fontsize=8,
                color=TEXT_COLOUR,
                ha="right" if at == x[-1] else "left",
            )
        before = name


def _format_axes(panel: Axes, plot: AxisPlot, points: Sequence[StudyPoint]) -> None:
    labels = [AXIS_FORMATTERS[plot.axis](point.axis_values[plot.axis]) for point in points]
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.xaxis.set_major_locator(FixedLocator(_axis_numbers(plot, points)))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FixedFormatter([label.partition(" (")[0] for label in labels]))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.set_xlabel(plot.axis.replace("_", " "))
    panel.margins(x=0.12)
