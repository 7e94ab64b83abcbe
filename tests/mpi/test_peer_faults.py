"""A call of which one rank dies, stops or is late ends under a table as it does without."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.ladders import table_of
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.peer_faults import ERROR, HANG, PEER_FAULTS, SUCCESS
from tuner.core.table import SCHEDULE, AlgorithmChoice, TuningTable, read_table, write_table
from tuner.launch import LOCAL_HOST, Launcher
from tuner.probe.probed_machine import local_cluster
from tuner.validation.faulty_launches import find_peer_faults

RANKS = 3
FORCED = {"openmpi": "chain", "mpich": "scatter_allgather"}
LIBRARIES = {"openmpi": "launcher", "mpich": "mpich_launcher"}
SHORT_S = 0.2  # a tenth of the time for which a rank is late


def table_with(launcher: Launcher, *choices: AlgorithmChoice) -> TuningTable:
    """Return a table for bcast on three ranks of this computer, one choice per kilobyte."""
    rungs = [(1000 * number, choice) for number, choice in enumerate(choices)]
    ladders = {(Collective.BCAST, RANKS, "any"): [*rungs, (1000 * len(rungs), AlgorithmChoice())]}
    made = table_of(ladders, library=launcher.version())
    return TuningTable(local_cluster(), made.library, made.rules)


@pytest.mark.parametrize("library", LIBRARIES)
def test_rules_end_as_the_library_alone_does(request: pytest.FixtureRequest, library: str) -> None:
    launcher: Launcher = request.getfixturevalue(LIBRARIES[library])
    schedule = AlgorithmChoice("binomial", {}, SCHEDULE)
    table = table_with(launcher, schedule, AlgorithmChoice(FORCED[library]))
    found = [*find_peer_faults(table, launcher, LOCAL_HOST)]
    assert len(found) == 2
    for one in found:
        assert one.outcomes == (ERROR, SUCCESS, SUCCESS), one.rule
        assert one.is_as_default


def test_ranks_that_do_not_go_on_hang(launcher: Launcher) -> None:
    table = table_with(launcher, AlgorithmChoice("chain"))
    (one,) = find_peer_faults(table, launcher, LOCAL_HOST, limit=SHORT_S)
    assert one.outcomes[1:] == (HANG, HANG)


def test_a_table_states_the_outcomes(
    launcher: Launcher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "table.json", tmp_path / "stated.json"
    write_table(table_with(launcher, AlgorithmChoice("chain")), path)
    asked = ["table", "faults", str(path), "--demand", "error", "--out", str(out)]
    assert main(asked) == 0
    assert "1 of 1 rule" in capsys.readouterr().out
    stated = read_table(out).provenance[PEER_FAULTS]
    assert [one["outcomes"]["dies"] for one in stated["rules"]] == [ERROR]
    assert main(["table", "show", str(out)]) == 0
    assert "when a rank dies: error in 1 of 1 rule" in capsys.readouterr().out
    assert main(["table", "show", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["provenance"][PEER_FAULTS] == stated


def test_what_was_tried_before_an_interruption_is_kept(
    launcher: Launcher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "table.json", tmp_path / "stated.json"
    write_table(table_with(launcher, AlgorithmChoice("chain"), AlgorithmChoice("binomial")), path)
    asked = ["table", "faults", str(path), "--out", str(out)]
    running = subprocess.Popen(
        [sys.executable, "-m", "tuner.cli.main", *asked],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    assert any("chain: rank dies: error" in line for line in running.stderr)
    running.send_signal(signal.SIGINT)
    said, errors = running.communicate()
    assert running.returncode == 128 + signal.SIGINT
    assert "1 of 1 rule" in said
    assert "the same command again resumes" in errors
    (first,) = read_table(out).provenance[PEER_FAULTS]["rules"]
    assert main(asked) == 0
    told = capsys.readouterr()
    assert "1 rule tried before; --restart tries all again" in told.err
    assert "chain: rank dies" not in told.err
    assert "binomial: rank dies: error" in told.err
    assert "2 of 2 rules" in told.out
    assert read_table(out).provenance[PEER_FAULTS]["rules"][0] == first


def test_a_file_of_another_table_is_not_continued(
    launcher: Launcher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "table.json", tmp_path / "stated.json"
    table = table_with(launcher, AlgorithmChoice("chain"))
    write_table(table, path)
    write_table(TuningTable(table.cluster, "openmpi 1.0.0", table.rules), out)
    before = out.read_bytes()
    assert main(["table", "faults", str(path), "--out", str(out)]) == 1
    assert "stated.json holds a table of openmpi 1.0.0" in " ".join(capsys.readouterr().err.split())
    assert out.read_bytes() == before
