"""Plots of predicted training: scaling, the timeline of an iteration, where the time goes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import (
    FixedFormatter,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from tuner.base.units import format_time, plural
from tuner.report.figures import COLOURS, TEXT_COLOUR
from tuner.report.palette import MARKERS
from tuner.report.study_plots import save_figure
from tuner.training.iteration import PredictedIteration
from tuner.training.recorded import COMPUTE
from tuner.training.scaling import ExplainedIteration, counted_unit
from tuner.training.timeline import (
    BACKWARD,
    CALL,
    COMPUTATION,
    COPY,
    FORWARD,
    PHASES,
    UPDATE,
    WAIT,
    Operation,
)
from tuner.training.timeline_record import busiest_streams
from tuner.training.workload import Training

PHASE_STYLES = {
    FORWARD: (COLOURS[3], ""),
    COMPUTATION: (COLOURS[0], ""),
    BACKWARD: (COLOURS[0], ""),
    UPDATE: (COLOURS[5], ""),
    COPY: (COLOURS[8], ""),
    CALL: (COLOURS[1], "///"),
    WAIT: ("#bbbbbb", "..."),
}
PHASE_LABELS = {CALL: "collective calls and messages", WAIT: "waiting"}
MIN_LABELLED_SHARE = 0.045  # of the bar's height or the time axis, to have a label
MIN_NAMED_SHARE = 1e-3  # of the longest iteration, to be in the legend
STREAM_HEIGHT_IN = 0.6
BAR_WIDTH_IN = 0.75
BAR_HEIGHT = 0.76  # of a row of the timeline
MIN_EDGED_SHARE = 0.012  # of the time axis, from which a bar has a white edge
SECONDS_FORMATTER = FuncFormatter(lambda value, _: format_time(value) if value else "0")


def save_training_plots(
    workload: Training, points: Sequence[ExplainedIteration], folder: Path
) -> list[Path]:
    """Write scaling over ranks, the timeline on most ranks, and where the time goes."""
    files = save_figure(
        folder / "shares",
        max(4.8, 2.2 + BAR_WIDTH_IN * len(points)),
        4.0,
        partial(draw_shares, workload=workload, points=points),
    )
    last = points[-1].found
    height = 1.5 + STREAM_HEIGHT_IN * len(busiest_streams(last))
    draw = partial(draw_timeline, workload=workload, found=last)
    files += save_figure(folder / "timeline", 10, height, draw)
    if len(points) > 1 or workload.published:
        draw = partial(draw_scaling, workload=workload, points=points)
        files += save_figure(folder / "scaling", 9, 3.8, draw)
    return files


def draw_scaling(figure: Figure, workload: Training, points: Sequence[ExplainedIteration]) -> None:
    """Draw the rate and the efficiency over the number of ranks into an empty figure."""
    left, right = figure.subplots(1, 2)
    unit, per_sample = counted_unit(workload)
    ranks = [one.found.ranks for one in points]
    alone = points[-1].found.alone
    style = {"color": COLOURS[0], "marker": MARKERS[0], "markersize": 5}
    shown = sorted({*ranks, *(one.ranks for one in workload.published)})
    ideal = [number * alone * per_sample for number in shown]
    left.plot(shown, ideal, color=TEXT_COLOUR, linestyle="--", linewidth=1.0, label="ideal")
    left.plot(ranks, [one.found.rate * per_sample for one in points], label="predicted", **style)
    right.plot(ranks, [100 * one.found.efficiency for one in points], **style)
    right.axhline(100, color=TEXT_COLOUR, linestyle="--", linewidth=1.0)
    if workload.published:
        known = [(one.ranks, one.efficiency(alone)) for one in workload.published]
        look = {"color": COLOURS[1], "marker": MARKERS[1], "markersize": 7, "linestyle": "none"}
        rates = [number * share * alone * per_sample for number, share in known]
        left.plot([number for number, _ in known], rates, label="published", **look)
        right.plot([number for number, _ in known], [100 * share for _, share in known], **look)
    for axes in (left, right):
        _format_ranks(axes, shown)
    left.set_yscale("log")
    left.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    left.yaxis.set_minor_formatter(NullFormatter())
    left.set_title(f"{unit} per second")
    shares = [100 * one.found.efficiency for one in points]
    shares += [100 * one.efficiency(alone) for one in workload.published]
    right.set_ylim(max(0.0, 10 * (min(shares) // 10) - 10), max(102.0, max(shares) + 2.0))
    right.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    right.set_title("scaling efficiency, %")
    left.legend(frameon=False, loc="upper left")
    figure.suptitle(workload.name, x=0.01, ha="left")
    figure.tight_layout()


def _format_ranks(axes: Axes, ranks: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(list(map(float, ranks))))
    axes.xaxis.set_major_formatter(FixedFormatter([str(number) for number in ranks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("ranks")
    axes.margins(x=0.08)


def draw_shares(figure: Figure, workload: Training, points: Sequence[ExplainedIteration]) -> None:
    """Draw a bar for each number of ranks, stacked of the seconds of each phase."""
    axes = figure.add_subplot()
    longest = max(one.found.seconds for one in points)
    for at, one in enumerate(points):
        bottom = 0.0
        for phase in PHASES:
            seconds = one.shares[phase]
            colour, hatch = PHASE_STYLES[phase]
            axes.bar(
                at,
                seconds,
                0.78,
                bottom,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                linewidth=0.8,
            )
            if seconds > MIN_LABELLED_SHARE * longest:
                _write_inside(axes, at, bottom + seconds / 2, format_time(seconds), phase)
            bottom += seconds
        label = f"{format_time(bottom)}\n{one.found.efficiency:.1%}"
        axes.text(at, bottom, label, ha="center", va="bottom", fontsize=8)
    axes.set_ylim(0, 1.14 * longest)
    axes.set_xticks(range(len(points)), [str(one.found.ranks) for one in points])
    axes.set_xlabel("ranks")
    axes.yaxis.set_major_formatter(SECONDS_FORMATTER)
    axes.set_title(
        f"{workload.name}: where the time goes\nabove each bar: time of an iteration, efficiency"
    )
    axes.grid(visible=False, axis="x")
    axes.set_axisbelow(True)
    least = MIN_NAMED_SHARE * longest
    used = [phase for phase in PHASES if any(one.shares[phase] > least for one in points)]
    axes.legend(
        handles=_patches(used[::-1]), loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False
    )


def _write_inside(axes: Axes, x: float, y: float, text: str, phase: str) -> None:
    dark = phase == BACKWARD
    axes.text(
        x,
        y,
        text,
        ha="center",
        va="center",
        fontsize=7.5,
        color="white" if dark else TEXT_COLOUR,
        bbox=None if dark or not PHASE_STYLES[phase][1] else _BACKGROUND,
    )


_BACKGROUND: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85}


def _patches(phases: Sequence[str]) -> list[Patch]:
    return [
        Patch(
            facecolor=PHASE_STYLES[phase][0],
            hatch=PHASE_STYLES[phase][1],
            edgecolor="white",
            label=PHASE_LABELS.get(phase, phase),
        )
        for phase in phases
    ]


def draw_timeline(figure: Figure, workload: Training, found: PredictedIteration) -> None:
    """Draw the operations of an iteration on rank 0, a row for each stream."""
    axes = figure.add_subplot()
    streams = busiest_streams(found)
    shown = [one for one in found.timeline if one.stream in streams and one.end[0] > one.start[0]]
    begin = min(float(one.start[0]) for one in shown)
    length = max(float(one.end[0]) for one in shown) - begin
    for row, stream in enumerate(streams):
        for phase in PHASES:
            own = [one for one in shown if (one.stream, one.phase) == (stream, phase)]
            _draw_spans(axes, row, PHASE_STYLES[phase][0], own, begin, length)
    _name_passes(axes, shown, begin, length)
    axes.set_yticks(range(len(streams)), list(streams.values()))
    axes.set_ylim(len(streams) - 0.4, -0.6)
    axes.set_xlim(0, length * 1.01)
    axes.xaxis.set_major_formatter(SECONDS_FORMATTER)
    axes.grid(visible=False, axis="y")
    axes.set_axisbelow(True)
    axes.set_title(f"{workload.name}: an iteration on {plural(found.ranks, 'rank')}, rank 0")
    axes.set_xlabel("time")
    used = [phase for phase in PHASES if any(one.phase == phase for one in shown)]
    handles = _patches(used)
    for handle in handles:
        handle.set_hatch("")
    axes.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.02), frameon=False, fontsize=8
    )


def _draw_spans(
    axes: Axes, row: int, colour: str, own: Sequence[Operation], begin: float, length: float
) -> None:
    """Draw operations as bars, the wide ones with white edges, the narrow ones wide enough."""
    spans = [(float(one.start[0]) - begin, float(one.end[0] - one.start[0])) for one in own]
    narrow = MIN_EDGED_SHARE * length
    for edged in (True, False):
        part = [span for span in spans if (span[1] >= narrow) == edged]
        axes.broken_barh(
            part,
            (row - BAR_HEIGHT / 2, BAR_HEIGHT),
            facecolors=colour,
            edgecolors="white" if edged else colour,
            linewidth=0.3,
        )


def _name_passes(axes: Axes, shown: Sequence[Operation], begin: float, length: float) -> None:
    """Write the name of each pass into the row of the computation, with its seconds."""
    for phase in (FORWARD, BACKWARD):
        own = [one for one in shown if one.stream == COMPUTE and one.phase == phase]
        if not own:
            continue
        first, last = float(own[0].start[0]) - begin, float(own[-1].end[0]) - begin
        if last - first > 4 * MIN_LABELLED_SHARE * length:
            text = f"{phase} {format_time(sum(float(one.end[0] - one.start[0]) for one in own))}"
            at = ((first + last) / 2, 0)
            axes.text(*at, text, ha="center", va="center", fontsize=8, bbox=_BACKGROUND)
