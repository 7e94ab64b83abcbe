"""The plots of the report, as SVG text."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from tuner.base.units import format_size, format_time
from tuner.core.table import DEFAULT, Rule
from tuner.report.curves import Curve

# Paul Tol's "muted" scheme, distinguishable with every common kind of colour blindness
# (personal.sron.nl/~pault, 2021); the markers distinguish the curves without any colour.
COLOURS = (
    "#332288",
    "#CC6677",
    "#117733",
    "#88CCEE",
    "#882255",
    "#999933",
    "#44AA99",
    "#AA4499",
    "#DDCC77",
)
MARKERS = "osD^vPX<>"
TEXT_COLOUR, GRID_COLOUR, GAIN_COLOUR, LOSS_COLOUR = "#222222", "#dddddd", "#117733", "#882255"
FIGURE_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": TEXT_COLOUR,
    "axes.grid": True,
    "grid.color": GRID_COLOUR,
    "grid.linewidth": 0.6,
    "svg.hashsalt": "tuner",
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
}


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def curves_svg(
    measured: Mapping[str, Curve], predicted: Mapping[str, Curve], ladder: Sequence[Rule]
) -> str:
    """Plot time over size per algorithm, measured beside predicted, above the table's rules."""
    with mpl.rc_context(FIGURE_STYLE):
        figure = Figure(figsize=(10.4, 4.6))
        grid = figure.add_gridspec(2, 2, height_ratios=(14, 1), hspace=0.08, wspace=0.06)
        left = figure.add_subplot(grid[0, 0])
        right = figure.add_subplot(grid[0, 1], sharex=left, sharey=left)
        look = _line_styles({*measured, *predicted, *(rule.choice.algorithm for rule in ladder)})
        for axes, title, curves in ((left, "measured", measured), (right, "predicted", predicted)):
            axes.set_title(title)
            _draw_curves(axes, curves, look)
        _label_axes(left, measured)
        right.tick_params(labelleft=False)
        for column, axes in enumerate((left, right)):
            axes.tick_params(labelbottom=False)
            for rule in ladder[1:]:
                axes.axvline(rule.start_bytes, color=TEXT_COLOUR, linewidth=0.8, linestyle=":")
            strip = figure.add_subplot(grid[1, column], sharex=left)
            _draw_rules(strip, ladder, look, left.get_xlim())
            strip.tick_params(labelleft=column == 0)
        handles = [Line2D([], [], label=name, **style) for name, style in look.items()]
        figure.legend(
            handles=handles, loc="upper left", bbox_to_anchor=(0.905, 0.89), frameon=False
        )
        return _svg(figure)


def _line_styles(names: set[str]) -> dict[str, dict[str, Any]]:
    looks: dict[str, dict[str, Any]] = {}
    if DEFAULT in names:
        looks[DEFAULT] = {"color": "black", "linewidth": 2.6, "linestyle": (0, (4, 1.5))}
    for number, name in enumerate(sorted(names - {DEFAULT})):
        looks[name] = {
            "color": COLOURS[number % len(COLOURS)],
            "marker": MARKERS[number % len(MARKERS)],
            "markersize": 4,
            "linewidth": 1.2,
        }
    return looks


def _draw_curves(
    axes: Axes, curves: Mapping[str, Curve], look: Mapping[str, dict[str, Any]]
) -> None:
    for name, curve in curves.items():
        visible = [(nbytes, seconds) for nbytes, seconds in curve if nbytes > 0 and seconds > 0]
        axes.plot(
            [nbytes for nbytes, _ in visible],
            [seconds for _, seconds in visible],
            zorder=4 if name == DEFAULT else 3,
            **look[name],
        )
    if not curves:
        axes.text(0.5, 0.5, "not simulated", transform=axes.transAxes, ha="center", color="#666666")


def _label_axes(axes: Axes, curves: Mapping[str, Curve]) -> None:
    sizes = [nbytes for curve in curves.values() for nbytes, _ in curve if nbytes > 0]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlim(min(sizes) / 1.5, max(sizes) * 1.5)
    axes.xaxis.set_major_locator(FixedLocator(powers_of_two(min(sizes), max(sizes))))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_size(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_time(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("typical time of one call (max over ranks)")


def powers_of_two(smallest: int, largest: int) -> list[int]:
    """Return at most eight powers of two between two sizes, evenly spaced."""
    first, last = math.ceil(math.log2(smallest)), math.floor(math.log2(largest))
    stride = max(1, math.ceil((last - first + 1) / 8))
    return [2**exponent for exponent in range(first, last + 1, stride)]


def _draw_rules(
    axes: Axes,
    ladder: Sequence[Rule],
    look: Mapping[str, dict[str, Any]],
    limits: tuple[float, float],
) -> None:
    """Draw which algorithm the table takes at which size, as a coloured strip."""
    for rule in ladder:
        lo, hi = max(rule.start_bytes, limits[0]), min(rule.stop_bytes, limits[1])
        if lo < hi:
            colour = "#bbbbbb" if rule.choice.is_default else look[rule.choice.algorithm]["color"]
            axes.axvspan(lo, hi, color=colour, linewidth=0)
    axes.set_yticks([0.5], ["table"])
    axes.set_ylim(0, 1)
    axes.tick_params(left=False)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlabel("message size; the table leaves grey sizes to the default")


def heldout_svg(heldout: Sequence[Mapping[str, Any]]) -> str:
    """Plot the ratio of default to tuned time at the held-out sizes, with 95 % intervals."""
    rows = sorted(heldout, key=lambda r: (r["collective"], r["p"], r["nbytes"]))
    with mpl.rc_context(FIGURE_STYLE):
        figure = Figure(figsize=(9, 0.8 + 0.2 * len(rows)))
        axes = figure.add_subplot()
        for height, record in enumerate(reversed(rows)):
            low, high = record["ci95"]
            colour = GAIN_COLOUR if low > 1 else LOSS_COLOUR if high < 1 else "#777777"
            marker = ">" if low > 1 else "<" if high < 1 else "o"
            axes.plot([low, high], [height, height], color=colour, linewidth=1.6)
            axes.plot(record["ratio"], height, color=colour, marker=marker, markersize=5)
        axes.axvline(1, color=TEXT_COLOUR, linewidth=1.4)
        axes.set_yticks(range(len(rows)), [_heldout_label(r) for r in reversed(rows)])
        axes.set_ylim(-0.8, len(rows) - 0.2)
        axes.grid(visible=False, axis="y")
        axes.set_xscale("log")
        _label_ratios(axes, [bound for r in rows for bound in (*r["ci95"], r["ratio"])])
        axes.set_xlabel("time of the default / time with the table     (right of 1: faster)")
        return _svg(figure)


def _heldout_label(record: Mapping[str, Any]) -> str:
    return (
        f"{record['collective']}  p={record['p']}  {format_size(record['nbytes'])}"
        f"  {record['algorithm']}"
    )


def _label_ratios(axes: Axes, values: Sequence[float]) -> None:
    low, high = min(0.9, *values) / 1.03, max(1.12, *values) * 1.03
    axes.set_xlim(low, high)
    ticks = (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.5, 2, 3, 4, 5, 7, 10, 20, 50, 100)
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
