"""Plots as files: each as SVG, which can be enlarged, and as PNG, which can be shown anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from tuner.base.atomic_io import write_atomically
from tuner.base.errors import InputError
from tuner.report.drawing import image
from tuner.report.figures import STYLE
from tuner.report.study_gantt import draw_gantt, require_drawable
from tuner.report.study_map import crossover_maps, draw_map, looks
from tuner.report.time_breakdown import Bill, bills_width, draw_bills
from tuner.sim.critical_paths import Explained, explain
from tuner.whatif import Study, StudyPoint, StudyResult, placed, varied
from tuner.whatif.axes import FORMATS
from tuner.whatif.study_candidates import build, transfers

MOST_FIGURES = 64
MOST_BILLS = 10  # bars of a figure
MOST_TRACED = 20_000  # transfers of one bar: seconds
GANTT_ROW, GANTT_LEAST, GANTT_MOST = 0.22, 2.5, 18.0  # inches
Progress = Callable[[float, str], None]


def save(path: Path, width: float, height: float, draw: Callable[[Figure], None]) -> list[Path]:
    """Draw once, write what the suffix of `path` says, both kinds without one; inches."""
    with mpl.rc_context({**STYLE, "hatch.linewidth": 0.7}):
        figure = Figure(figsize=(width, height))
        draw(figure)
        if path.suffix in (".svg", ".png"):
            return [_written(figure, path, path.suffix[1:])]
        both = ("svg", "png")
        return [_written(figure, path.with_name(f"{path.name}.{kind}"), kind) for kind in both]


def _written(figure: Figure, path: Path, kind: str) -> Path:
    write_atomically(path, image(figure, kind))
    return path


def save_gantt(path: Path, title: str, run: Explained) -> list[Path]:
    """Raises InputError for so much that nothing could be seen."""
    ranks = int(run.visits.rank.max(initial=0)) + 1
    require_drawable(ranks, len(run.bars))
    height = min(GANTT_MOST, max(GANTT_LEAST, GANTT_ROW * ranks + 1.2))
    draw = partial(draw_gantt, title=title, bars=run.bars, visits=run.visits, path=run.path)
    return save(path, 10, height, draw)


@dataclass(frozen=True)
class Drawn:
    """Files that were written, and sentences on what those show that do not show everything."""

    files: tuple[Path, ...]
    notes: tuple[str, ...]


def save_study(study: Study, result: StudyResult, folder: Path, progress: Progress) -> Drawn:
    """Crossover maps of all collectives, and where the time of the best algorithms goes.

    Raises InputError for more than MOST_FIGURES of them.
    """
    maps = list(crossover_maps(result))
    points = {c: [p for p in result.points if p.collective is c] for c in study.collectives}
    look = {collective: looks(own) for collective, own in points.items()}
    if len(maps) > MOST_FIGURES:
        raise InputError(
            f"{len(maps)} plots are more than {MOST_FIGURES}: vary fewer axes besides the nodes"
        )
    files: list[Path] = []
    notes: list[str] = []
    number = len(maps) + len(study.collectives)
    for done, drawn in enumerate(maps):
        progress(done / number, drawn.name)
        draw = partial(draw_map, drawn=drawn, look=look[drawn.collective])
        files += save(folder / drawn.name, 8, 4.6, draw)
    for done, collective in enumerate(study.collectives, start=len(maps)):
        progress(done / number, f"where the time goes, {collective}")
        chosen = _billed(points[collective])
        if chosen:
            files += _save_bills(study, chosen, folder)
            notes.append(
                f"time-{collective} shows one machine of {len(study.places)}: {_where(chosen[0])}"
            )
    return Drawn(tuple(files), tuple(notes))


def _billed(points: Sequence[StudyPoint]) -> list[StudyPoint]:
    """On the last machine whose runs are short enough to be traced; none where no run is."""
    by_place: dict[tuple[object, ...], list[StudyPoint]] = {}
    for point in points:
        if _traceable(point):
            by_place.setdefault(tuple(point.at.values()), []).append(point)
    if not by_place:
        return []
    most = max(map(len, by_place.values()))
    chosen = [own for own in by_place.values() if 2 * len(own) >= most][-1]
    stride = -(-len(chosen) // MOST_BILLS)
    return chosen[::-1][::stride][::-1]  # with the largest size


def _save_bills(study: Study, chosen: Sequence[StudyPoint], folder: Path) -> list[Path]:
    collective = chosen[0].collective
    where = _where(chosen[0]).replace(" ", "\u00a0").replace(",\u00a0", ", ")  # an axis is one word
    title = f"where the time goes: {collective} on {study.topology.name}, {where}"
    bills = [_bill(study, point) for point in chosen]
    draw = partial(draw_bills, title=title, bills=bills)
    return save(folder / f"time-{collective}", bills_width(len(bills)), 4.2, draw)


def _where(point: StudyPoint) -> str:
    """Every axis, also those of one value."""
    return ", ".join(
        f"{axis.replace('_', ' ')} {FORMATS[axis](value)}" for axis, value in point.at.items()
    )


def _traceable(point: StudyPoint) -> bool:
    p = int(point.at["nodes"]) * int(point.at["ppn"])
    return transfers(point.collective, point.best, p, point.nbytes) <= MOST_TRACED


def _bill(study: Study, point: StudyPoint) -> Bill:
    machine = varied(study.machine, point.at)
    ranks = placed(machine, point.at)
    made = build(point.collective, point.best, ranks.p, point.nbytes)
    memory = str(point.at["memory"])
    run = explain(made, ranks, machine.calibration, point.nbytes, memory=memory)
    return Bill(point.best.algorithm, point.nbytes, run.parts)
