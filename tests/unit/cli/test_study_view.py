"""What the terminal shows of a study: rows that say something, changes along every axis."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tuner.cli.terminal import output
from tuner.cli.views import study_answers, study_view
from tuner.core.collective import Collective
from tuner.prediction.call_candidates import Candidate
from tuner.whatif.study_result import Crossover
from tuner.whatif.study_runner import run_study
from tuner.whatif.study_spec import FileResolver, study_from_record

FLAT = {"name": "flat", "nodes": 16, "latency": "2us", "bandwidth": "12.5GB/s"}
SPEC: dict[str, Any] = {
    "name": "small",
    "topology": FLAT,
    "collectives": ["bcast"],
    "vary": {"nodes": [4, 16]},
    "sizes": [8, "1MiB"],
    "algorithms": ["binomial", "linear"],
}


def shown(capsys: pytest.CaptureFixture[str], **changed: Any) -> str:
    asked = study_from_record({**SPEC, **changed}, FileResolver(Path("/nonexistent")))
    found = run_study(asked)
    study_answers.print_answers(found, study_view.print_study(found))
    return capsys.readouterr().out


def test_an_axis_that_changes_nothing_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """One rank a node lies alike however ranks are placed."""
    vary = {"nodes": [4, 16], "placement": ["consecutive", "cyclic"]}
    text = shown(capsys, vary=vary)
    assert "placement changes nothing here" in text
    assert "cyclic" not in text
    assert "nodes changes nothing" not in text


def test_rows_that_differ_in_one_value_are_one() -> None:
    rows = [["2", "1", "x"], ["2", "2", "x"], ["4", "1", "y"], ["4", "2", "z"]]
    axes = [["2", "4"], ["1", "2"]]
    found = [["2", "1, 2", "x"], ["4", "1", "y"], ["4", "2", "z"]]
    assert study_view.merge_rows(rows, axes) == (found, [])
    assert study_view.merge_rows(rows[:2], [["2"], ["1", "2"]])[0] == [["x"]]


def test_no_change_is_a_sentence_and_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, algorithms=["linear"])
    assert "\nthe algorithm is the same everywhere\n" in text
    assert "between" not in text


def test_a_step_says_how_much_faster_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    vary = {"nodes": [4], "bandwidth": ["10GB/s", "20GB/s"]}
    text = shown(capsys, vary=vary, sizes=["1GiB"], collectives=["bcast"])
    assert "what a step along an axis gains" in text
    (step,) = [line for line in text.splitlines() if line.startswith("bandwidth  10GB/s")]
    assert step.split() == ["bandwidth", "10GB/s", "to", "20GB/s", "bcast", "2.00", "NICs"]


def test_a_range_of_sizes_says_where_the_runner_up_is_close(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = shown(capsys, vary={"nodes": [16]}, sizes=["1MiB", "2MiB"])
    assert re.search(r"linear, \+\d+\.\d% at [12]MiB", text)


def test_changes_are_shown_along_every_axis() -> None:
    def along(axis: str, number: int) -> list[list[Crossover]]:
        ends = Candidate("a", {}), Candidate("b", {})
        return [[Crossover(axis, Collective.BCAST, {}, i, i + 1, *ends)] for i in range(number)]

    found = study_view.thin_evenly(along("nodes", 50) + along("nbytes", 3) + along("taper", 1), 20)
    axes = [group[0].axis for group in found]
    assert (axes.count("nodes"), axes.count("nbytes"), axes.count("taper")) == (16, 3, 1)
    assert axes == sorted(axes, key=["nodes", "nbytes", "taper"].index)


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)


def plain(capsys: pytest.CaptureFixture[str]) -> str:
    """Without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)


@pytest.mark.parametrize("width", [50, 60])
def test_a_narrow_terminal_drops_what_it_can_and_cuts_no_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    on_a_terminal(monkeypatch, width)
    title = "a title that is longer than the table"
    row = ("2us", "two_level_recursive_doubling", "x" * 20, "allreduce")
    output.print_table(
        title, ("time", "best", "runner-up", "call"), [row], droppable=("runner-up",)
    )
    lines = plain(capsys).splitlines()
    assert title in lines[0]
    assert max(map(len, lines[1:])) <= width
    assert "x" * 20 not in "".join(lines)
    output.print_table("", ("call", "best"), [("y" * (width - 29), row[1])])
    lines = plain(capsys).splitlines()
    assert lines == [f"call {'y' * (width - 29)}", f"  best  {row[1]}", ""]


LONG_ROW = ("allreduce", "two_level_recursive_doubling", "of a rather long sentence " * 8, "x" * 40)
LONG_TITLES = ("call", "best", "remark", "runner-up")


@pytest.mark.parametrize(("columns", "width"), [(None, 120), ("90", 90), ("0", 120), ("wide", 120)])
def test_a_table_in_a_file_is_as_wide_as_can_be_read(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: str | None,
    width: int,
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    output.print_table("", LONG_TITLES[:3], [LONG_ROW[:3]], wrappable=("remark",))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) == width
    assert " ".join(" ".join(lines[2:]).split()) == " ".join(" ".join(LONG_ROW[:3]).split())


@pytest.mark.parametrize("columns", ["40", "100", "200"])
def test_a_table_in_a_file_has_all_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    """It is one table still, not a block of lines for each row."""
    monkeypatch.setenv("COLUMNS", columns)
    row = (*LONG_ROW[:2], "x" * 30, LONG_ROW[3])
    output.print_table("", LONG_TITLES, [row], droppable=("runner-up",))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == list(LONG_TITLES)
    assert lines[2].split() == list(row)
