"""Plots of predicted training: what is drawn is what was predicted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from tests.support.workloads import RECORD, workload
from tuner.report.sweep_plots import MAX_CURVES, draw_sweep, save_sweep_plots, sweep_plots
from tuner.report.training_plots import (
    draw_scaling,
    draw_shares,
    draw_timeline,
    save_training_plots,
)
from tuner.training.iteration import predict_iteration
from tuner.training.scaling import predict_scaling
from tuner.training.sweep import run_sweep
from tuner.training.timeline_record import busiest_streams
from tuner.training.workload import Workload

pytestmark = pytest.mark.slow

PUBLISHED = [{"ranks": 16, "efficiency": "50%", "source": "a poster"}]


@pytest.fixture(scope="module")
def asked() -> Workload:
    return workload(published=PUBLISHED)


def test_scaling_shows_predicted_and_published_points(asked: Workload) -> None:
    points = predict_scaling(asked)
    figure = Figure()
    draw_scaling(figure, asked, points)
    rates, efficiencies = figure.axes
    drawn: dict[Any, Any] = {line.get_label(): line for line in rates.get_lines()}
    assert list(drawn["predicted"].get_xdata()) == [1, 4, 8]
    assert list(drawn["predicted"].get_ydata()) == [one.found.rate for one in points]
    assert list(drawn["published"].get_xdata()) == [16]
    assert drawn["published"].get_ydata()[0] == pytest.approx(8 * points[0].found.alone)
    assert list(efficiencies.get_lines()[-1].get_ydata()) == [50.0]  # type: ignore[arg-type]


def test_bars_are_as_high_as_the_iterations(asked: Workload) -> None:
    points = predict_scaling(asked)
    figure = Figure()
    draw_shares(figure, asked, points)
    (axes,) = figure.axes
    tops = [0.0] * len(points)
    for bar in axes.patches:
        at = round(bar.get_x() + bar.get_width() / 2)  # type: ignore[attr-defined]
        tops[at] = max(tops[at], bar.get_y() + bar.get_height())  # type: ignore[attr-defined]
    assert tops == pytest.approx([one.found.seconds for one in points])


def test_of_alike_streams_the_busiest_is_drawn() -> None:
    servers = {"name": "parameter-server", "servers": 3}
    asked = workload(framework=servers)
    found = predict_iteration(asked, 8)
    streams = busiest_streams(found)
    assert next(iter(streams)) == "compute"
    labels = list(streams.values())
    kinds = [stream.rstrip(" 0123456789") for stream in streams]
    assert kinds == [
        "compute",
        "network to servers",
        "to server",
        "server",
        "barrier",
        "from server",
        "network from servers",
        "receive",
    ]
    assert sum("(busiest of 3)" in label for label in labels) == 3
    figure = Figure()
    draw_timeline(figure, asked, found)
    ticks = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert ticks == labels


def test_files_are_written_as_svg_and_png(asked: Workload, tmp_path: Path) -> None:
    files = save_training_plots(asked, predict_scaling(asked), tmp_path)
    names = {"scaling", "shares", "timeline"}
    assert {file.stem for file in files} == names
    assert len(files) == 6
    text = (tmp_path / "timeline.svg").read_text()
    assert "an iteration on 8 ranks, rank 0" in text
    (single,) = (workload(ranks=4),)
    alone = save_training_plots(single, predict_scaling(single), tmp_path)
    assert {file.stem for file in alone} == names - {"scaling"}


@pytest.mark.extended
def test_sweeps_are_drawn_over_every_axis(tmp_path: Path) -> None:
    record = {
        **RECORD,
        "vary": {
            "bandwidth": ["1GB/s", "2GB/s", "3GB/s"],
            "latency": ["1us", "50us", "200us", "1ms"],
        },
        "epoch": 1000,
        "cost": {"node": 10_000},
    }
    result = run_sweep(record, tmp_path, processes=1)
    plots = {plot.axis: plot for plot in sweep_plots(result)}
    assert set(plots) == {"ranks", "bandwidth", "latency"}
    assert len(plots["ranks"].curves) == MAX_CURVES
    assert all(len(points) == 3 for points in plots["bandwidth"].curves.values())
    figure = Figure()
    draw_sweep(figure, result, plots["latency"])
    times, costs = figure.axes
    for axes, name in ((times, "epoch"), (costs, "cost")):
        for line, points in zip(axes.get_lines(), plots["latency"].curves.values(), strict=True):
            heights: Any = line.get_ydata()
            assert list(heights) == [getattr(point, name) for point in points]
    assert len(save_sweep_plots(result, tmp_path)) == 6


def test_curves_that_lie_on_one_another_are_one(tmp_path: Path) -> None:
    record = {**RECORD, "rate": 1, "vary": {"latency": ["1us", "2us", "3us"]}}
    result = run_sweep(record, tmp_path, processes=1)
    (plot,) = (plot for plot in sweep_plots(result) if plot.axis == "ranks")
    assert list(plot.curves) == ["latency 1us, and 2 alike"]
