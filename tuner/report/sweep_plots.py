"""Plots of a sweep of training: time and cost of an epoch over each axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from tuner.report.figures import COLOURS
from tuner.report.palette import MARKERS
from tuner.report.study_plots import save_figure
from tuner.training.scaling import counted_unit
from tuner.training.sweep import SweepPoint, SweepResult, describe_point, format_epoch
from tuner.training.sweep_spec import FORMATTERS
from tuner.whatif.axes import AxisValue

MAX_CURVES = 6
PANEL_WIDTH_IN = 4.2
PANEL_HEIGHT_IN = 3.4


@dataclass(frozen=True)
class SweepPlot:
    """Data of one plot: an axis, and a curve for each combination of the others.

    curves      points by the label of their curve, in the order of the axis
    """

    axis: str
    values: tuple[AxisValue, ...]
    curves: dict[str, list[SweepPoint]]


def save_sweep_plots(result: SweepResult, folder: Path) -> list[Path]:
    """Write a plot for every axis with several values, and return the files."""
    files: list[Path] = []
    panels = 2 if result.cheapest else 1
    for plot in sweep_plots(result):
        draw = partial(draw_sweep, result=result, plot=plot)
        name = folder / f"sweep-{plot.axis}"
        files += save_figure(name, PANEL_WIDTH_IN * panels, PANEL_HEIGHT_IN, draw)
    return files


def sweep_plots(result: SweepResult) -> Iterator[SweepPlot]:
    """Yield a plot for every axis with several values.

    Of more than MAX_CURVES curves those with the best and the worst rate are shown, and some evenly
    between them.
    """
    several = [axis for axis, values in result.sweep.axes.items() if len(values) > 1]
    for axis in several:
        others = [name for name in several if name != axis]
        curves: dict[str, list[SweepPoint]] = {}
        for point in result.points:
            label = describe_point(point.axis_values, others)
            curves.setdefault(label, []).append(point)
        curves = _merged(curves)
        ordered = sorted(curves, key=lambda label: -curves[label][-1].rate)
        shown = _thinned(ordered, MAX_CURVES)
        yield SweepPlot(axis, result.sweep.axes[axis], {label: curves[label] for label in shown})


def _merged(curves: dict[str, list[SweepPoint]]) -> dict[str, list[SweepPoint]]:
    """Return the curves without those that lie on an earlier one, which its label counts."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for label, points in curves.items():
        heights = (f"{point.rate:.3g} {point.cost or 0.0:.3g}" for point in points)
        alike.setdefault(tuple(heights), []).append(label)
    return {
        f"{own[0]}, and {len(own) - 1} alike" if len(own) > 1 else own[0]: curves[own[0]]
        for own in alike.values()
    }


def _thinned(labels: Sequence[str], most: int) -> list[str]:
    if len(labels) <= most:
        return list(labels)
    return [labels[round(at * (len(labels) - 1) / (most - 1))] for at in range(most)]


def draw_sweep(figure: Figure, result: SweepResult, plot: SweepPlot) -> None:
    """Draw time, or the rate without an epoch, and cost into an empty figure."""
    unit, per_sample = counted_unit(result.sweep.workload)
    panels = figure.subplots(1, 2 if result.cheapest else 1, squeeze=False)[0]
    if result.sweep.epoch:
        _draw_panel(panels[0], plot, lambda point: point.epoch)
        panels[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_epoch(value)))
        panels[0].set_title("time of an epoch")
    else:
        _draw_panel(panels[0], plot, lambda point: point.rate * per_sample)
        panels[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        panels[0].set_title(f"{unit} per second")
    if result.cheapest:
        _draw_panel(panels[1], plot, lambda point: point.cost or 0.0)
        panels[1].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.3g}"))
        panels[1].set_title("cost of an epoch")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.suptitle(result.sweep.workload.name, x=0.01, ha="left")
    figure.tight_layout()
    if any(labels):
        figure.legend(
            handles, labels, loc="upper left", bbox_to_anchor=(1.0, 0.92), frameon=False, fontsize=8
        )


def _draw_panel(panel: Axes, plot: SweepPlot, height: Callable[[SweepPoint], float]) -> None:
    numbers = not any(isinstance(value, str) for value in plot.values)
    x = [float(value) if numbers else at for at, value in enumerate(plot.values)]
    for number, (label, points) in enumerate(plot.curves.items()):
        panel.plot(
            x,
            [height(point) for point in points],
            color=COLOURS[number],
            marker=MARKERS[number],
            markersize=4,
            label=label,
            linestyle="-" if numbers else "none",
        )
    if numbers:
        panel.set_xscale("log")
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.yaxis.set_minor_formatter(NullFormatter())
    labels = [FORMATTERS[plot.axis](value).partition(" (")[0] for value in plot.values]
    panel.set_xticks(x, labels)
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.tick_params(axis="x", which="minor", bottom=False)
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.set_xlabel(plot.axis.replace("_", " "))
    panel.margins(x=0.12, y=0.15)
