"""`tuner table accept` and `compare`, of tables for ranks that lie in several ways."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.ladders import table_of
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.path_classes import CYCLIC
from tuner.core.table import AlgorithmChoice, TuningTable, read_table, write_table
from tuner.launch import Launcher
from tuner.probe.probed_machine import local_cluster
from tuner.validation.timing import LaunchOptions

RUNGS = [(0, AlgorithmChoice()), (4096, AlgorithmChoice("linear"))]


@pytest.fixture
def path(launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table whose rules for two ranks differ between one node and two, and cyclic ones."""
    monkeypatch.setattr("tuner.workflows.acceptance.CALL_BUDGET_S", 0.0002)
    here = table_of({(Collective.BCAST, 2): RUNGS}, (64, 8192), launcher.version()).rules
    apart = [
        replace(rule, key=replace(rule.key, nodes=2, ppn=1), choice=AlgorithmChoice())
        for rule in here
    ]
    dealt = [replace(rule, key=replace(rule.key, nodes=2, placement=CYCLIC)) for rule in here]
    file = tmp_path / "table.json"
    write_table(TuningTable(local_cluster(), launcher.version(), (*here, *apart, *dealt)), file)
    return file


def test_rules_of_which_a_file_can_hold_some_are_chosen_by_their_ranks_per_node(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["table", "compare", str(path)]) == 1
    assert "export those of one number of ranks per node (--ppn)" in capsys.readouterr().err


@pytest.mark.extended
def test_what_cannot_be_tried_is_left_out_and_said(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = path.with_name("accepted.json")
    assert main(["table", "accept", str(path), "--ppn", "2", "--out", str(out)]) == 0
    assert "2 rules left out: none for cyclic ranks," in capsys.readouterr().err
    assert [key.shape for key in read_table(out).keys] == ["1x2"]
    assert read_table(out).provenance["acceptance"]["files"][0]["tried"] > 2


def test_what_is_left_undecided_for_want_of_time_is_said(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rounds decide about no call, and further ones do not begin."""
    monkeypatch.setattr("tuner.validation.acceptance.SCREENING_ROUNDS", 2)
    out = path.with_name("accepted.json")
    asked = ["table", "accept", str(path), "--ppn", "2", "--budget", "0s", "--out", str(out)]
    assert main(asked) == 0
    (record,) = read_table(out).provenance["acceptance"]["files"]
    assert len(record["undecided"]) == record["tried"]
    said = " ".join(capsys.readouterr().out.split())
    assert f"caution: time was up before {record['tried']} calls could be decided" in said
    assert "with a larger --budget other rules may stay" in said


def test_within_a_budget_nothing_is_left_undecided(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = path.with_name("accepted.json")
    asked = ["table", "accept", str(path), "--ppn", "2", "--budget", "24h", "--out", str(out)]
    assert main(asked) == 0
    found = read_table(out).provenance
    (record,) = found["acceptance"]["files"]
    assert record["tried"] > 2
    assert record["undecided"] == found["comparison"]["undecided"] == []
    assert "time was up" not in capsys.readouterr().out


@pytest.mark.alone
@pytest.mark.extended
def test_comparing_tells_of_every_call(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["table", "compare", str(path), "--ppn", "2", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert {(call["nodes"], call["ppn"]) for call in told["calls"]} == {(1, 2)}
    assert {call["algorithm"] for call in told["calls"]} == {"default", "linear"}


@pytest.mark.alone
def test_slower_calls_are_told_by_the_status(
    launcher: Launcher,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Compare with a side on which every sum takes a millisecond longer."""
    assert launcher.compiler is not None
    slow, source = tmp_path / "slow.so", Path(__file__).parents[1] / "support" / "slow_allreduce.c"
    subprocess.run([launcher.compiler, "-shared", "-fPIC", "-o", slow, source], check=True)
    environment = {"LD_PRELOAD": str(slow), "SLOW_BELOW": "65536", "SLOW_MS": "1"}
    monkeypatch.setattr(
        "tuner.workflows.acceptance.prepare_side", lambda *_: LaunchOptions(environment=environment)
    )
    monkeypatch.setattr("tuner.workflows.acceptance.CALL_BUDGET_S", 0.0002)
    monkeypatch.setattr("tuner.validation.heldout.MAX_HELDOUT_ROUNDS", 4)  # the difference is large
    rules = table_of({(Collective.ALLREDUCE, 2): RUNGS}, (64, 8192), launcher.version()).rules
    table = TuningTable(local_cluster(), launcher.version(), rules)
    write_table(table, tmp_path / "table.json")
    assert main(["table", "compare", str(tmp_path / "table.json"), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert all(
        one["slower"]
        for call in told["calls"]
        if call["nbytes"] < 65536
        for one in call["conditions"].values()
    )
    assert any("slower" in caution for caution in told["cautions"])
