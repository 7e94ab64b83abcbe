"""A call of which one rank dies, stops or is late ends under a table as it does without."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.support.ladders import table_of
from tuner.cli.commands.fault_trials import state_outcomes
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.peer_faults import ERROR, FAILS, HANG, PEER_FAULTS, SUCCESS, PeerFaults
from tuner.core.table import SCHEDULE, AlgorithmChoice, TuningTable, read_table, write_table
from tuner.launch import LOCAL_HOST, Launcher
from tuner.probe.probed_machine import local_cluster
from tuner.validation.faulty_launches import find_peer_faults

RANKS = 3
FORCED = {"openmpi": "chain", "mpich": "scatter_allgather"}
LIBRARIES = {"openmpi": "launcher", "mpich": "mpich_launcher"}
OWN = (ERROR, SUCCESS, SUCCESS)  # outcomes of both libraries alone
FAILED = (FAILS, SUCCESS, SUCCESS)
SHORT_S = 0.2  # a tenth of the time for which a rank is late


def table_with(launcher: Launcher, *choices: AlgorithmChoice, ranks: int = RANKS) -> TuningTable:
    """Return a table for bcast on ranks of this computer, one choice per kilobyte."""
    rungs = [(1000 * number, choice) for number, choice in enumerate(choices)]
    ladders = {(Collective.BCAST, ranks, "any"): [*rungs, (1000 * len(rungs), AlgorithmChoice())]}
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
        assert one.outcomes == OWN, one.rule
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


def interrupted(words: list[str], seen: str) -> tuple[str, str]:
    """Return what a command prints and its errors, if it is interrupted after an error line."""
    running = subprocess.Popen(
        [sys.executable, "-m", "tuner.cli.main", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    assert any(seen in line for line in running.stderr)
    running.send_signal(signal.SIGINT)
    said, errors = running.communicate()
    assert running.returncode == 128 + signal.SIGINT
    return said, errors


def test_what_was_tried_before_an_interruption_is_kept(
    launcher: Launcher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "table.json", tmp_path / "stated.json"
    write_table(table_with(launcher, AlgorithmChoice("chain"), AlgorithmChoice("binomial")), path)
    asked = ["table", "faults", str(path), "--out", str(out)]
    said, errors = interrupted(asked, "chain: rank dies: error")
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


def choices_of(path: Path) -> list[str]:
    return [str(rule.choice) for rule in read_table(path).rules]


def tried_in(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the algorithms that the last command says to have tried."""
    return re.findall(r", (\w+): rank dies", " ".join(capsys.readouterr().err.split()))


def test_a_demand_is_kept_when_the_trials_go_on_and_restart_tries_all_again(
    launcher: Launcher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "table.json", tmp_path / "safe.json"
    table = table_with(launcher, AlgorithmChoice("chain"), AlgorithmChoice("binomial"))
    write_table(table, path)
    chain = PeerFaults(
        table.rules[0], 500, (HANG, SUCCESS, SUCCESS), OWN, launcher=launcher.start_command
    )
    write_table(state_outcomes(table, [chain], ERROR), out)
    assert choices_of(out) == ["default"]
    asked = ["table", "faults", str(path), "--demand", "error", "--out", str(out)]
    assert main(asked) == 1  # the library alone ends in an error
    assert tried_in(capsys) == ["binomial"]
    assert choices_of(out) == ["default", "binomial", "default"]
    assert main([*asked, "--restart"]) == 0
    assert tried_in(capsys) == ["chain", "binomial"]
    assert choices_of(out) == ["chain", "binomial", "default"]


@pytest.mark.parametrize("changes", [{"hosts": ("a",)}, {"launcher": "srun"}, {"outcomes": FAILED}])
def test_rules_are_tried_again_for_other_hosts_and_launchers_and_where_ranks_failed(
    launcher: Launcher, tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]
) -> None:
    path, out = tmp_path / "table.json", tmp_path / "stated.json"
    table = table_with(launcher, AlgorithmChoice("chain"))
    write_table(table, path)
    known = PeerFaults(table.rules[0], 500, OWN, OWN, launcher=launcher.start_command)
    write_table(state_outcomes(table, [replace(known, **changes)], None), out)
    assert main(["table", "faults", str(path), "--out", str(out)]) == 0
    assert tried_in(capsys) == ["chain"]
    (stated,) = read_table(out).provenance[PEER_FAULTS]["rules"]
    assert (stated["hosts"], stated["launcher"]) == ([], launcher.start_command)


def test_a_part_of_a_table_is_tried_and_the_whole_one_written(
    launcher: Launcher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "table.json", tmp_path / "stated.json"
    few, more = (table_with(launcher, AlgorithmChoice("chain"), ranks=n) for n in (2, 3))
    table = TuningTable(few.cluster, few.library, (*few.rules, *more.rules))
    write_table(table, path)
    for ppn in ("2", "3"):
        assert main(["table", "faults", str(path), "--ppn", ppn, "--out", str(out)]) == 0
        told = capsys.readouterr()
        assert "1 of 1 rule" in told.out
        assert "tried before" not in told.err
        assert ("1 rule not tried." in told.out) == (ppn == "2")
    assert read_table(out).rules == table.rules
    assert [one["ppn"] for one in read_table(out).provenance[PEER_FAULTS]["rules"]] == [2, 3]


def test_outcomes_are_told_where_they_cannot_be_written(
    launcher: Launcher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "table.json"
    write_table(table_with(launcher, AlgorithmChoice("chain")), path)
    assert main(["table", "faults", str(path), "--out", "/dev/full"]) == 1
    told = capsys.readouterr()
    assert "1 of 1 rule" in told.out
    assert "/dev/full: written" not in told.out
    assert "/dev/full: cannot be written" in " ".join(told.err.split())


def test_a_file_of_another_table_is_not_continued(
    launcher: Launcher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "table.json", tmp_path / "stated.json"
    table = table_with(launcher, AlgorithmChoice("chain"))
    write_table(table, path)
    write_table(table_with(launcher, AlgorithmChoice("binomial")), out)
    before = out.read_bytes()
    assert main(["table", "faults", str(path), "--out", str(out)]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "stated.json: expected a table of outcomes that this command wrote for the same" in said
    assert out.read_bytes() == before


def test_an_interruption_before_the_first_outcome_keeps_nothing(
    launcher: Launcher, tmp_path: Path
) -> None:
    path, out = tmp_path / "table.json", tmp_path / "stated.json"
    write_table(table_with(launcher, AlgorithmChoice("chain")), path)
    _, errors = interrupted(["table", "faults", str(path), "--out", str(out)], "ending ranks of")
    assert "resumes" not in errors
    assert not out.exists()
