"""Plots as files, as SVG to be enlarged or as PNG to be shown anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from tuner.base.atomic_io import write_atomically
from tuner.base.errors import InputError
from tuner.machines.model_accuracy import SIMULATION
from tuner.prediction.call_candidates import estimate_transfers
from tuner.prediction.call_predictor import CallPredictor
from tuner.report.axis_plots import axis_plots, draw_axis_plot, plot_size
from tuner.report.drawing import render_image
from tuner.report.figures import FIGURE_STYLE
from tuner.report.study_gantt import draw_gantt, require_drawable
from tuner.report.study_map import crossover_maps, draw_map, fill_styles, map_size
from tuner.report.time_breakdown import TimeBreakdown, draw_breakdown, figure_width
from tuner.sim.critical_paths import Explanation
from tuner.whatif.axes import AXIS_FORMATTERS
from tuner.whatif.checked_study import Study
from tuner.whatif.study_result import StudyPoint, StudyResult
from tuner.whatif.study_tasks import TaskEvaluator

MAX_FIGURES = 64
MAX_BARS = 10  # bars of a figure
MAX_TRACED_TRANSFERS = 20_000  # transfers of one bar; simulating them takes seconds
GANTT_ROW_HEIGHT_IN = 0.22
MIN_GANTT_HEIGHT_IN = 2.5
MAX_GANTT_HEIGHT_IN = 18.0
FractionCallback = Callable[[float, str], None]


def save_figure(
    path: Path, width: float, height: float, draw: Callable[[Figure], None]
) -> list[Path]:
    """Draw a figure and write it in the format of the suffix of `path`, or both without one.

    width       inches
    height      inches

    Return the files written.
    """
    with mpl.rc_context({**FIGURE_STYLE, "hatch.linewidth": 0.7}):
        figure = Figure(figsize=(width, height))
        draw(figure)
        if path.suffix in (".svg", ".png"):
            return [_write_image(figure, path, path.suffix[1:])]
        both = ("svg", "png")
        return [_write_image(figure, path.with_name(f"{path.name}.{kind}"), kind) for kind in both]


def _write_image(figure: Figure, path: Path, kind: str) -> Path:
    write_atomically(path, render_image(figure, kind))
    return path


def save_gantt(path: Path, title: str, run: Explanation) -> list[Path]:
    """Write a Gantt chart of one run, and return the files.

    Raises InputError for more ranks or transfers than a picture can show.
    """
    ranks = int(run.timeline.rank.max(initial=0)) + 1
    require_drawable(ranks, len(run.transfers))
    height = min(MAX_GANTT_HEIGHT_IN, max(MIN_GANTT_HEIGHT_IN, GANTT_ROW_HEIGHT_IN * ranks + 1.2))
    draw = partial(draw_gantt, title=title, bars=run.transfers, visits=run.timeline, path=run.path)
    return save_figure(path, 10, height, draw)


@dataclass(frozen=True)
class SavedPlots:
    """The files that were written, and notes on those that do not show everything."""

    files: tuple[Path, ...]
    notes: tuple[str, ...]


def save_study_plots(
    study: Study, result: StudyResult, folder: Path, progress: FractionCallback
) -> SavedPlots:
    """Write crossover maps, time over each axis, and where the time of the best algorithms goes.

    Raises InputError for more than `MAX_FIGURES` maps.
    """
    maps = list(crossover_maps(result))
    points = {c: [p for p in result.points if p.collective is c] for c in study.collectives}
    look = {collective: fill_styles(own) for collective, own in points.items()}
    if len(maps) > MAX_FIGURES:
        raise InputError(
            f"{len(maps)} plots are more than {MAX_FIGURES}: vary fewer axes besides the nodes"
        )
    files: list[Path] = []
    notes: list[str] = []
    for plot in list(axis_plots(result))[:MAX_FIGURES]:
        files += save_figure(
            folder / plot.name, *plot_size(plot), partial(draw_axis_plot, plot=plot)
        )
    number = len(maps) + len(study.collectives)
    for done, drawn in enumerate(maps):
        progress(done / number, drawn.name)
        draw = partial(draw_map, drawn=drawn, look=look[drawn.collective])
        files += save_figure(folder / drawn.name, *map_size(drawn), draw)
    for done, collective in enumerate(study.collectives, start=len(maps)):
        progress(done / number, f"where the time goes, {collective}")
        chosen = _traced_points(points[collective])
        if chosen:
            files += _save_breakdown(study, chosen, folder)
            notes.append(
                f"time-{collective} shows one machine of {len(study.grid)}:"
                f" {_describe_point(chosen[0])}"
            )
    return SavedPlots(tuple(files), tuple(notes))


def _traced_points(points: Sequence[StudyPoint]) -> list[StudyPoint]:
    """Return the points of the last machine whose runs are short enough to be traced.

    At most `MAX_BARS` sizes are kept, the largest among them. Return nothing where no run is short
    enough.
    """
    by_place: dict[tuple[object, ...], list[StudyPoint]] = {}
    for point in points:
        if _traceable(point):
            by_place.setdefault(tuple(point.axis_values.values()), []).append(point)
    if not by_place:
        return []
    most = max(map(len, by_place.values()))
    chosen = [own for own in by_place.values() if 2 * len(own) >= most][-1]
    stride = -(-len(chosen) // MAX_BARS)
    return chosen[::-1][::stride][::-1]  # including the largest size


def _save_breakdown(study: Study, chosen: Sequence[StudyPoint], folder: Path) -> list[Path]:
    collective = chosen[0].collective
    where = (
        _describe_point(chosen[0]).replace(" ", "\u00a0").replace(",\u00a0", ", ")
    )  # no line break within an axis
    title = f"where the time goes: {collective} on {study.title}, {where}"
    evaluator = TaskEvaluator(study)
    bills = [
        _time_breakdown(evaluator.predictor(study.coordinates.index(point.axis_values)), point)
        for point in chosen
    ]
    draw = partial(draw_breakdown, title=title, bills=bills)
    return save_figure(folder / f"time-{collective}", figure_width(len(bills)), 4.2, draw)


def _describe_point(point: StudyPoint) -> str:
    """Return the values of all axes, also of those with one value."""
    return ", ".join(
        f"{axis.replace('_', ' ')} {AXIS_FORMATTERS[axis](value)}"
        for axis, value in point.axis_values.items()
    )


def _traceable(point: StudyPoint) -> bool:
    if point.best.predicted_by != SIMULATION:
        return False
    p = int(point.axis_values["nodes"]) * int(point.axis_values["ppn"])
    return estimate_transfers(point.collective, point.best, p, point.nbytes) <= MAX_TRACED_TRANSFERS


def _time_breakdown(predictor: CallPredictor, point: StudyPoint) -> TimeBreakdown:
    made = predictor.schedule(point.collective, point.best.choice, point.nbytes)
    run = predictor.explain(made, point.nbytes)
    return TimeBreakdown(point.best.algorithm, point.nbytes, run.components)
