"""Plots of studies and of single runs: whole images, with everything they are about in them."""

from __future__ import annotations

import json
import math
import re
import struct
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tuner.algorithms import REQUIREMENTS, algorithm_names
from tuner.base.errors import InputError
from tuner.base.units import format_time
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.report import study_gantt, study_plots
from tuner.report.axis_plots import axis_plots
from tuner.report.figures import COLOURS, FIGURE_STYLE
from tuner.report.palette import FillStyle, colour_of
from tuner.report.study_map import CrossoverMap, crossover_maps, draw_map, fill_styles, map_size
from tuner.report.time_breakdown import TimeBreakdown, draw_breakdown
from tuner.sim.critical_paths import TIME_COMPONENTS
from tuner.whatif.checked_study import Study
from tuner.whatif.study_result import StudyPoint, StudyResult, TimedCandidate
from tuner.whatif.study_runner import run_study
from tuner.whatif.study_spec import FileResolver, study_from_record

pytestmark = pytest.mark.slow

FLAT = {
    "name": "flat",
    "nodes": 16,
    "latency": "2us",
    "bandwidth": "12.5GB/s",
    "cores": 8,
    "local": {"latency": "300ns", "bandwidth": "10GB/s"},
}
SPEC: dict[str, Any] = {
    "name": "small",
    "topology": FLAT,
    "collectives": ["bcast", "allreduce"],
    "vary": {"nodes": [2, 4, 7], "bandwidth": ["1GB/s", "25GB/s"]},
    "sizes": ["64B", "4KiB", "256KiB", "4MiB"],
    "algorithms": ["binomial", "scatter_allgather", "ring", "recursive_doubling"],
}


@pytest.fixture(scope="module")
def asked() -> Study:
    return study_from_record(SPEC, FileResolver(Path("/nonexistent")))


@pytest.fixture(scope="module")
def result(asked: Study) -> StudyResult:
    return run_study(asked)


@dataclass(frozen=True)
class Drawn:
    """The study's plots in a folder, and the progress that was told meanwhile."""

    folder: Path
    plots: study_plots.SavedPlots
    told: list[float]


@pytest.fixture(scope="module")
def drawn(asked: Study, result: StudyResult, tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    folder, told = tmp_path_factory.mktemp("plots"), list[float]()
    plots = study_plots.save_study_plots(asked, result, folder, lambda done, _: told.append(done))
    return Drawn(folder, plots, told)


def png_size(path: Path) -> tuple[int, int]:
    """Pixels, from the header."""
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def texts(path: Path) -> str:
    """An SVG's comments, in which matplotlib says what each drawn text is; the file is whole."""
    content = path.read_text()
    ET.fromstring(content)
    return "\n".join(re.findall(r"<!-- (.*?) -->", content, re.S))


def test_a_study_is_drawn(asked: Study, drawn: Drawn) -> None:
    files = drawn.plots.files
    names = [
        f"crossover-{c}-bandwidth-{rate}" for c in asked.collectives for rate in ("1GB-s", "25GB-s")
    ]
    names += ["time-bcast", "time-allreduce"]
    names += [f"axis-{axis}-{c}" for axis in ("nodes", "bandwidth") for c in asked.collectives]
    assert {p.name for p in files} == {f"{n}.{kind}" for n in names for kind in ("svg", "png")}
    assert sorted(drawn.folder.iterdir()) == sorted(files)
    assert drawn.told == sorted(drawn.told)
    machine = "nodes 7, ppn 1, bandwidth 25GB/s, memory host"
    assert drawn.plots.notes[0] == f"time-bcast shows one machine of 6: {machine}"
    for name in names:
        width, height = png_size(drawn.folder / f"{name}.png")
        assert 500 < width < 2500
        assert 400 < height < 1500


def test_a_crossover_map_says_what_is_best_where(result: StudyResult, drawn: Drawn) -> None:
    maps = {one.name: one for one in crossover_maps(result)}
    one = maps["crossover-allreduce-bandwidth-25GB-s"]
    assert (one.ranks, one.sizes) == ((2, 4, 7), (64, 4096, 1 << 18, 1 << 22))
    for point in result.points:
        if point.collective is Collective.ALLREDUCE and point.axis_values["bandwidth"] == 25e9:
            row = one.ranks.index(int(point.axis_values["nodes"]))
            column = one.sizes.index(point.nbytes)
            assert one.best[row, column] == point.best.algorithm
            assert one.seconds[row, column] == point.best.seconds
    shown = texts(drawn.folder / f"{one.name}.svg").replace("\N{NO-BREAK SPACE}", " ")
    for name in np.unique(one.best):
        assert str(name) in shown
    for text in ("64B", "256KiB", "message size", "ranks", "fastest algorithm", one.title):
        assert text in shown


def test_time_over_an_axis_names_algorithms_and_limits(result: StudyResult, drawn: Drawn) -> None:
    shown = texts(drawn.folder / "axis-bandwidth-bcast.svg").replace("\N{NO-BREAK SPACE}", " ")
    for text in ("1GB/s", "25GB/s", "64B", "4MiB", "bcast on flat, nodes 7", "NICs", "latency"):
        assert text in shown
    plots = {plot.name: plot for plot in axis_plots(result)}
    (last,) = (plot for plot in plots.values() if plot.name == "axis-nodes-allreduce")
    assert {point.axis_values["bandwidth"] for own in last.points.values() for point in own} == {
        25e9
    }
    for own in last.points.values():
        assert [point.axis_values["nodes"] for point in own] == [2, 4, 7]


def test_many_algorithms_look_different(result: StudyResult) -> None:
    """Hatches tell those of one colour apart; the most frequent has none."""
    names = sorted(algorithm_names(Collective.BCAST, REQUIREMENTS))
    points = [
        StudyPoint({"nodes": 1}, Collective.BCAST, 8, (TimedCandidate(name, {}, 1.0),))
        for count, name in enumerate(reversed(names), start=1)
        for _ in range(count)
    ]
    found: dict[str, FillStyle] = fill_styles(points)
    assert len(set(found.values())) == len(names)
    assert {name: colour for name, (colour, _) in found.items()} == {
        name: colour_of(name) for name in names
    }
    assert next(iter(found.items()))[1][1] == ""


def test_where_the_time_goes_is_drawn(drawn: Drawn) -> None:
    shown = texts(drawn.folder / "time-bcast.svg")
    title = " ".join(shown.split())  # of several lines, and an axis is never cut
    for text in (
        "flight: ",
        "bandwidth: ",
        "bcast on flat, nodes 7,",
        "bandwidth 25GB/s",
        "memory host",
        "ppn 1",
        "4MiB",
    ):
        assert text in title
    assert "overhead: " not in shown  # there is none


def test_a_title_is_no_wider_than_its_axes() -> None:
    figure = Figure(figsize=(4.5, 4.2))
    bill = TimeBreakdown("ring", 8, dict.fromkeys(TIME_COMPONENTS, 1.0))
    with mpl.rc_context(FIGURE_STYLE):
        draw_breakdown(figure, "where the time goes: " + "a rather long name, " * 9, [bill])
    (axes,) = figure.axes
    FigureCanvasAgg(figure)
    assert axes.title.get_window_extent().width <= axes.bbox.width


def test_only_simulated_sizes_and_ranks_are_told_and_coloured() -> None:
    """However close or far apart they are, each has a cell of the same size and its label."""
    ranks, sizes = (16, 17, 64, 256), (8, 100, 1 << 26)
    best = np.array([["a", "b", "b"]] * 4)
    one = CrossoverMap("name", Collective.BCAST, "title", ranks, sizes, best, np.ones(best.shape))
    figure = Figure()
    draw_map(figure, one, {"a": ("#000000", ""), "b": ("#ffffff", "")})
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["8B", "100B", "64MiB"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["16", "17", "64", "256"]
    assert (axes.get_xlim(), axes.get_ylim()) == ((-0.5, 2.5), (-0.5, 3.5))
    many = random_map(4, 42)
    figure = Figure(figsize=map_size(many))
    draw_map(figure, many, LOOK)
    assert len(figure.axes[0].get_xticks()) == 21


NAMES = (
    "two_level_recursive_doubling",
    "bine_scatter_allgather",
    "binomial_distance_halving",
    "nccl_ring",
    "linear",
)
LOOK = dict(zip(NAMES, zip(COLOURS[:5], ("", "", "", "", "///"), strict=True), strict=True))
TextBox = tuple[str, float, float, float, float]  # text, then first and last column, row


def random_map(rows: int, columns: int, seed: int = 0) -> CrossoverMap:
    """Regions of all sizes, several of one algorithm."""
    rng = np.random.default_rng(seed)
    row, column = np.mgrid[:rows, :columns] / np.array([rows, columns]).reshape(2, 1, 1)
    places = rng.random((3 * len(NAMES), 2))
    nearest = [(row - y) ** 2 + (column - x) ** 2 for y, x in places]
    best = np.array(NAMES)[np.argmin(nearest, axis=0) % len(NAMES)]
    sizes = tuple(int(8 * 1.5**i) for i in range(columns))
    seconds = 1e-6 * np.arange(2, rows + 2)[:, np.newaxis] + np.array(sizes) * 1e-9
    ranks = tuple(range(2, rows + 2))
    return CrossoverMap("name", Collective.BCAST, "title", ranks, sizes, best, seconds)


def text_boxes(one: CrossoverMap) -> list[TextBox]:
    """The texts inside a drawn map, and the cells that they cover, in fractions of cells."""
    with mpl.rc_context(FIGURE_STYLE):
        figure = Figure(figsize=map_size(one))
        FigureCanvasAgg(figure)
        draw_map(figure, one, LOOK)
        figure.draw_without_rendering()
    (axes,) = figure.axes
    boxes = []
    for text in axes.texts:
        box = text.get_window_extent().transformed(axes.transData.inverted())
        boxes.append((text.get_text().replace("\n", ""), box.x0, box.x1, box.y0, box.y1))
    return boxes


@pytest.mark.parametrize("shape", [(2, 3), (3, 12), (12, 16), (16, 30), (38, 12)])
def test_names_and_times_are_inside_what_they_are_of(shape: tuple[int, int]) -> None:
    one = random_map(*shape)
    boxes, named = text_boxes(one), set()
    for text, left, right, low, high in boxes:
        columns = range(math.floor(left + 0.5), math.ceil(right + 0.5))
        rows = range(math.floor(low + 0.5), math.ceil(high + 0.5))
        covered = {(row, column) for row in rows for column in columns}
        if text in NAMES:
            named.add(text)
            assert {str(one.best[cell]) for cell in covered} == {text}
        else:
            (cell,) = covered
            assert text == format_time(float(one.seconds[cell]))
    assert sum(box[0] not in NAMES for box in boxes) == one.best.size
    assert len(named) > 1
    for first, second in combinations(boxes, 2):
        apart = first[2] <= second[1] or second[2] <= first[1]
        assert apart or first[4] <= second[3] or second[4] <= first[3], (first, second)


def test_each_connected_region_has_its_name() -> None:
    """Not one at the middle of both, where another algorithm is the fastest."""
    best = np.array([["linear", "nccl_ring", "linear"]] * 3)
    one = CrossoverMap("n", Collective.BCAST, "t", (2, 4, 8), (8, 16, 32), best, np.ones((3, 3)))
    found = {(name, round((left + right) / 2)) for name, left, right, *_ in text_boxes(one)}
    assert found >= {("linear", 0), ("nccl_ring", 1), ("linear", 2)}
    assert ("linear", 1) not in found


def test_many_cells_have_lines_of_equal_time() -> None:
    """And names; a row of many cells has names alone."""
    shown = {box[0] for box in text_boxes(random_map(120, 60))}
    assert shown & set(NAMES)
    assert {"20us", "1ms"} <= shown
    assert len(shown) < 40
    assert {box[0] for box in text_boxes(random_map(1, 60))} <= set(NAMES)


def test_too_many_figures_are_refused(asked: Study, result: StudyResult) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study_plots, "MAX_FIGURES", 3)
        with pytest.raises(InputError, match="4 plots are more than 3: vary fewer axes"):
            study_plots.save_study_plots(asked, result, Path("/nonexistent"), lambda *_: None)


@pytest.fixture
def machine(tmp_path: Path) -> str:
    (tmp_path / "flat.yaml").write_text(json.dumps(FLAT))
    return str(tmp_path / "flat.yaml")


def simulate(machine: str, *options: str) -> int:
    return main(["simulate", "--topology", machine, "--collective", "allreduce", *options])


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_a_run_is_drawn_as_a_gantt_chart(machine: str, tmp_path: Path, kind: str) -> None:
    out = tmp_path / f"ring.{kind}"
    options = ("--algorithm", "ring", "--ranks", "8", "--sizes", "64KiB", "--gantt", str(out))
    assert simulate(machine, *options) == 0
    if kind == "png":
        width, height = png_size(out)
        assert width > 1000
        assert height > 300
    else:
        shown = texts(out)
        for text in ("sending", "receiving", "critical path", "allreduce ring, 8 ranks", "rank"):
            assert text in shown
        assert "reducing" not in shown  # free on this machine


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--sizes", "8", "--gantt", "x.svg"), "--gantt draws one run"),
        (("--algorithm", "ring", "--sizes", "8,16", "--gantt", "x.svg"), "--gantt draws one run"),
        (
            ("--algorithm", "ring", "--sizes", "8", "--gantt", "x.pdf"),
            "picture ends in .svg or .png",
        ),
    ],
)
def test_what_cannot_be_drawn_is_said(
    machine: str, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], sentence: str
) -> None:
    assert simulate(machine, *options) == 2
    assert sentence in capsys.readouterr().err


def test_a_chart_that_would_show_nothing_is_refused(
    machine: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_gantt, "MAX_RANKS", 4)
    options = ("--algorithm", "ring", "--ranks", "8", "--sizes", "64KiB", "--gantt", "x.svg")
    assert simulate(machine, *options) == 1
    assert "a Gantt chart of 8 ranks and 112 transfers shows nothing" in capsys.readouterr().err


def test_explain_on_the_command_line(machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--algorithm", "ring,linear", "--ranks", "4", "--sizes", "64KiB", "--explain")
    assert simulate(machine, *options, "--json") == 0
    for record in json.loads(capsys.readouterr().out):
        assert tuple(record["parts"]) == TIME_COMPONENTS
        assert math.isclose(sum(record["parts"].values()), record["seconds"], rel_tol=1e-12)
    assert simulate(machine, *options) == 0
    text = capsys.readouterr().out
    assert "flight: time of flight of last bytes" in text
    assert "100%" not in text
