"""Plots of how well a calibration's lines describe the measurements, one for each path."""

from __future__ import annotations

import math
import re
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from tuner.base.arrays import BoolArray, FloatArray
from tuner.base.units import format_size, format_time
from tuner.calibrate import CalibrationFit
from tuner.calibrate.latency_curve import LatencyCurve
from tuner.core.calibration import Calibration, PathCost
from tuner.report.study_plots import save_figure

POINT_COLOUR, LINE_COLOUR, OUTLIER_COLOUR, BREAK_COLOUR = "#4477aa", "#222222", "#cc6677", "#999933"
REFINED_COLOUR = "#aa3377"
MIN_RESIDUAL_RANGE = 0.05  # smallest range of relative residuals in the lower strip


def save_fit_plots(
    fit: CalibrationFit, folder: Path, refined: Calibration | None = None
) -> list[Path]:
    """Plot times, lines and breaks of every path with ping-pongs, and their residuals below.

    fit         fitted calibration
    folder      directory for the files
    refined     calibration after refinement, whose lines are drawn beside those of the fit

    Return the files written.
    """
    files: list[Path] = []
    for (path, memory), curve in fit.latency_curves.items():
        name = re.sub(r"[^a-z0-9.]+", "-", f"fit-{path}-{memory}".lower()).strip("-")
        cost = fit.calibration.paths[path, memory]
        title = f"{curve.name}: {fit.calibration.library} on {fit.calibration.cluster}"
        after = refined.paths[path, memory] if refined else None
        draw = partial(_draw, title=title, curve=curve, cost=cost, after=after)
        files += save_figure(folder / name, 7.5, 5.2, draw)
    return files


def _draw(
    figure: Figure, title: str, curve: LatencyCurve, cost: PathCost, after: PathCost | None
) -> None:
    upper, lower = figure.subplots(
        2, 1, sharex=True, gridspec_kw={"height_ratios": [3, 1], "hspace": 0.06}
    )
    far = np.isin(curve.sizes, curve.outlier_sizes())
    shown = np.maximum(curve.sizes, 1)  # an empty message is drawn at the left edge
    _draw_times(upper, curve, shown, far)
    _draw_lines(upper, curve, shown, cost, after)
    for axes in (upper, lower):
        for segment in cost.segments[1:]:
            axes.axvline(
                segment.start_bytes, color=BREAK_COLOUR, linewidth=1, linestyle="--", zorder=1
            )
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
    upper.set(xscale="log", yscale="log", ylabel="one way")
    upper.set_title(title, loc="left")
    upper.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    upper.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_time(value)))
    upper.yaxis.set_minor_formatter(NullFormatter())
    upper.legend(frameon=False, loc="upper left")
    _draw_residuals(lower, shown, curve.relative_residuals(), far)
    ticks = 2.0 ** np.arange(0, np.log2(shown[-1]) + 1, 4)
    lower.set_xticks(ticks, [format_size(tick) for tick in ticks])
    lower.minorticks_off()


def _draw_times(axes: Axes, curve: LatencyCurve, shown: FloatArray, far: BoolArray) -> None:
    """Draw measured times with their intervals at the sizes `shown`, and which are outliers."""
    times = curve.times[0]
    low, high = np.quantile(curve.times[1:], [0.025, 0.975], axis=0)
    axes.errorbar(
        shown,
        times,
        [np.maximum(times - low, 0), np.maximum(high - times, 0)],
        fmt="o",
        color=POINT_COLOUR,
        markersize=4,
        linewidth=1,
        label="measured, 95 %",
        zorder=3,
    )
    if far.any():
        axes.plot(
            shown[far],
            times[far],
            "o",
            color=OUTLIER_COLOUR,
            markersize=6,
            label="outlier",
            zorder=4,
        )


def _draw_residuals(lower: Axes, shown: FloatArray, off: FloatArray, far: BoolArray) -> None:
    """Draw relative residuals `off` at the sizes `shown`; those of outliers stay in the frame."""
    lower.axhline(0, color=LINE_COLOUR, linewidth=1)
    lower.vlines(
        shown, 0, off * 100, color=np.where(far, OUTLIER_COLOUR, POINT_COLOUR), linewidth=2
    )
    inside = np.abs(off[~far]).max(initial=MIN_RESIDUAL_RANGE) * 130
    lower.set(ylim=(-inside, inside), ylabel="residual, %", xlabel="message")
    for size, percent in zip(shown, off * 100, strict=True):
        if abs(percent) > inside:
            lower.text(
                size,
                math.copysign(inside, percent),
                f" {percent:+.0f}",
                color=OUTLIER_COLOUR,
                fontsize=8,
                va="top" if percent > 0 else "bottom",
            )


def _draw_lines(
    axes: Axes, curve: LatencyCurve, shown: FloatArray, cost: PathCost, after: PathCost | None
) -> None:
    """Draw the lines fitted to the ping-pongs, and the refined ones.

    Measured times may include latencies of links that the calibration leaves to the topology.
    A refined line is therefore the fitted one, shifted by the change of the path's cost.
    """
    for number, line in enumerate(curve.lines):
        at = np.geomspace(shown[line.first], shown[line.last - 1], 60)
        times = line.alpha + line.beta * at
        axes.plot(
            at,
            times,
            color=LINE_COLOUR,
            linewidth=1.2,
            zorder=2,
            label="lines" if number == 0 else None,
        )
        if after is not None:
            change = np.array([after.seconds(size) - cost.seconds(size) for size in at])
            axes.plot(
                at,
                times + change,
                color=REFINED_COLOUR,
                linewidth=1.2,
                linestyle="-.",
                zorder=2,
                label="refined, as written" if number == 0 else None,
            )
