"""The whole loop on real ranks, small: what it leaves behind, and that it can be interrupted."""

import json
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.field.tables import read_libraries
from tests.support.waiting import patience, until
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.measurement import Measurement, read_measurements, read_partial
from tuner.core.table import read_table
from tuner.db import load_heldout, load_table, load_validations, open_database, transaction
from tuner.launch import Launcher
from tuner.probe.probe_spec import spec_of_this_computer
from tuner.validation.validate_openmpi import activation
from tuner.workflows.active_tuning import StoppingRule, run_active_tuning

SMALL = ["--ranks", "2", "--libraries", "openmpi", "--budget", "60s", "--sizes", "64,64KiB"]


def command(out: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "tuner.cli.main", "quickstart", "--out", str(out), *words]


@dataclass(frozen=True)
class Interrupted:
    """A quickstart that was stopped by SIGINT: its status, what it said, and what it kept."""

    out: Path
    status: int
    said: str
    series: tuple[Measurement, ...]
    ended: bool


@pytest.fixture(scope="module")
def interrupted(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
    """Stopped while it probes."""
    out = tmp_path_factory.mktemp("quickstart") / "out"
    file = out / "openmpi/measurements.ndjson"
    running = subprocess.Popen(command(out, *SMALL), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until(lambda: file.exists() and file.read_text().count("\n") > 10)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=patience(30.0))
    _, series, ended = read_partial(file)
    return Interrupted(out, running.returncode, said.decode(), tuple(series), ended)


@pytest.fixture(scope="module")
def finished(interrupted: Interrupted) -> Path:
    """The interrupted run, resumed to its end: all that a quickstart makes is looked at here."""
    words = command(interrupted.out, *SMALL)
    ran = subprocess.run(words, capture_output=True, text=True, timeout=patience(120.0))
    assert ran.returncode == 0, ran.stderr
    assert "rules were seen at work in the real library" in ran.stdout
    report = interrupted.out / "report.html"
    assert ran.stdout.splitlines()[-1] == f"the report, for a browser: {report}"
    assert "left" in ran.stderr  # how long it will take
    return interrupted.out


def test_an_interrupted_run_says_how_to_resume(interrupted: Interrupted) -> None:
    assert interrupted.status == 130
    assert "resumes; what is finished is kept" in interrupted.said
    assert "Traceback" not in interrupted.said


@pytest.mark.extended
def test_an_interrupted_run_resumes(interrupted: Interrupted, finished: Path) -> None:
    before, after = interrupted.series, read_measurements(finished / "openmpi/measurements.ndjson")
    kept = [series for series in before if series in after.series]
    assert before
    assert len(kept) >= len(before) - 2  # a point that was cut off is measured anew


def test_everything_is_there(finished: Path) -> None:
    names = {str(path.relative_to(finished)) for path in finished.rglob("*") if path.is_file()}
    assert {
        "report.json",
        "report.html",
        "tuner.sqlite",
        "openmpi/measurements.ndjson",
        "openmpi/calibration.json",
        "openmpi/simulated.json",
        "openmpi/table.json",
        "openmpi/openmpi.rules",
        "openmpi/validation.json",
        "openmpi/heldout.json",
    } <= names
    assert not [name for name in names if "/." in f"/{name}"]  # nothing half-written


def test_report_has_what_programs_read(finished: Path) -> None:
    record = json.loads((finished / "report.json").read_text())
    assert record["rules_total"] >= record["rules_confirmed"] >= 0.95 * record["rules_total"] > 0
    probed = {
        s.nbytes
        for s in read_measurements(finished / "openmpi/measurements.ndjson").series
        if s.kind == "collective"
    }
    rules = read_table(finished / "openmpi/table.json").rules
    assert bool(record["heldout"]) == any(not rule.choice.is_default for rule in rules)
    for held in record["heldout"]:
        assert held["nbytes"] not in probed
        assert held["ci95"][0] <= held["ratio"] <= held["ci95"][1]
        assert held["default_s"] > 0
        assert held["tuned_s"] > 0


def test_report_says_how_a_program_is_started(finished: Path) -> None:
    (library,) = read_libraries(finished)
    rules = str(finished / "openmpi/openmpi.rules")
    assert library.use.command[-2:] == ("coll_tuned_dynamic_rules_filename", rules)


def test_database_holds_what_the_files_hold(finished: Path) -> None:
    engine = open_database(f"sqlite:///{finished / 'tuner.sqlite'}")
    with transaction(engine) as session:
        table = load_table(session, 1)
        assert table.rules == read_table(finished / "openmpi/table.json").rules
        validated = json.loads((finished / "openmpi/validation.json").read_text())
        assert len(load_validations(session, 1)) == len(validated) > 0
        heldout = json.loads((finished / "openmpi/heldout.json").read_text())
        assert len(load_heldout(session, 1)) == len(heldout)
    engine.dispose()


@pytest.mark.extended
def test_again_repeats_nothing_and_stores_no_second_version(finished: Path) -> None:
    measured = (finished / "openmpi/measurements.ndjson").read_bytes()
    ran = subprocess.run(command(finished, *SMALL), capture_output=True, text=True, check=True)
    assert ran.stderr.count("nothing changed since it was done") == 4
    assert (finished / "openmpi/measurements.ndjson").read_bytes() == measured
    engine = open_database(f"sqlite:///{finished / 'tuner.sqlite'}")
    with transaction(engine) as session:
        assert load_table(session, 1).rules
        with pytest.raises(Exception, match="no tuning table, version 2"):
            load_table(session, 2)
    engine.dispose()


def test_a_second_one_names_the_first_and_changes_nothing(
    launcher: Launcher, tmp_path: Path
) -> None:
    out, words = tmp_path / "out", ["--ranks", "2", "--libraries", launcher.library]
    first = subprocess.Popen(command(out, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until((out / "openmpi/measurements.ndjson").exists)
    second = subprocess.run(
        command(out, *words, "--restart"), capture_output=True, text=True, timeout=patience()
    )
    assert (second.returncode, second.stdout) == (1, "")
    assert second.stderr.startswith(f"tuner: `tuner quickstart` is at work in {out} already")
    assert f"(process {first.pid} on {socket.gethostname()})" in second.stderr
    assert len(second.stderr.splitlines()) == 1
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=patience())
    assert (first.returncode, "resumes" in said.decode()) == (130, True)


def test_too_small_a_budget_is_refused_before_ranks_start(
    launcher: Launcher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["--ranks", "2", "--libraries", launcher.library, "--budget", "1us"]
    assert main(["quickstart", "--out", str(out), *words]) == 1
    said = capsys.readouterr().err
    assert "1us do not suffice to measure anything: starting 2 ranks and making a table" in said
    assert not (out / "openmpi/measurements.ndjson").exists()


def test_each_number_of_ranks_is_started_by_itself(launcher: Launcher, tmp_path: Path) -> None:
    """Tuning this computer begins with its messages, then come calls of 2, 3 and 4 ranks."""
    out = tmp_path / "measurements.ndjson"
    enough = StoppingRule(200.0, target_regret=1e9)  # after the first calls
    found = run_active_tuning(
        out, spec_of_this_computer(launcher.library, 4, sizes=(64, 65536)), launcher, enough
    )
    ranks = dict[int, set[int]]()
    for one in found.measurements.series:
        ranks.setdefault(one.launch, set()).add(one.p)
    messages = [one for one in found.measurements.series if one.kind == "pingpong"]
    assert {(one.launch, one.p) for one in messages} <= {(0, 2), (1, 4)}
    batches = [own for launch, own in ranks.items() if launch > 1]
    assert batches
    assert {len(own) for own in batches} == {1}
    assert {(key.nodes, key.p) for key in found.table.keys} == {(1, 2), (1, 3), (1, 4)}
    assert {one.point for one in found.observations}


def said_once(capsys: pytest.CaptureFixture[str]) -> str:
    lines = capsys.readouterr().err.strip().split("\n")
    assert len(lines) == 1
    return lines[0]


def test_exported_file_checks_against_its_table(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, rules = finished / "openmpi/table.json", tmp_path / "own.rules"
    assert main(["table", "export", str(table), "--format", "openmpi", "--out", str(rules)]) == 0
    assert rules.read_text() == (finished / "openmpi/openmpi.rules").read_text()
    capsys.readouterr()
    assert main(["table", "check", str(rules), "--table", str(table), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["differences"] == []
    rules.write_text("1\n7 # bcast\n1\n0 # ranks\n1\n0 1 0 0 # linear\n")
    assert main(["table", "check", str(rules), "--table", str(table)]) == 1
    assert "the table says" in capsys.readouterr().out
    rules.write_text("{}")  # as MPICH's begin, or those of Open MPI 6
    assert main(["table", "check", str(rules), "--table", str(table)]) == 1
    assert 'own.rules: JSON rules: needed are "rule_file_version": 3' in capsys.readouterr().err


def test_its_own_file_keeps_the_order_of_operands(finished: Path, launcher: Launcher) -> None:
    """A product of 2x2 matrices, at every size that the run probed, on all numbers of ranks."""
    table = read_table(finished / "openmpi/table.json")
    ladders = [rule for rule in table.rules if rule.key.collective is Collective.ALLREDUCE]
    cases = sorted({(r.key.p, n // 16) for r in ladders for n in r.evidence.nbytes if n >= 16})
    assert cases
    run = launcher.run(
        max(p for p, _ in cases),
        [str(Path(__file__).with_name("operand_order_program.py")), json.dumps(cases)],
        settings=activation(finished / "openmpi/openmpi.rules"),
        timeout=patience(),
    )
    answers = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == len(cases)
    assert all(answer["right"] for answer in answers)


def test_show_and_select_agree(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = str(finished / "openmpi/table.json")
    assert main(["table", "show", table]) == 0
    assert "allreduce" in capsys.readouterr().out
    words = ["select", table, "--collective", "bcast", "--ranks", "2", "--size", "64KiB"]
    assert main([*words, "--json"]) == 0
    rule = json.loads(capsys.readouterr().out)
    assert rule["start_bytes"] <= 65536
    assert rule["choice"] is not None
    assert main([*words[:-3], "7", "--size", "64KiB"]) == 1
    assert "7 ranks" in said_once(capsys)


def altered(finished: Path, tmp_path: Path, **changes: Any) -> Path:
    record = json.loads((finished / "openmpi/table.json").read_text())
    record["cluster"] |= changes
    path = tmp_path / "altered.json"
    path.write_text(json.dumps(record))
    return path


def test_a_table_of_another_cluster_is_not_proved_here(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = altered(finished, tmp_path, name="elsewhere", cores=96)
    assert main(["table", "validate", str(other), "--json"]) == 1
    assert "the table is for elsewhere (1 x 96 cores" in capsys.readouterr().err


def test_a_truncated_measurements_file_is_refused(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = tmp_path / "cut.ndjson"
    cut.write_bytes((finished / "openmpi/measurements.ndjson").read_bytes()[:-40])
    out = tmp_path / "calibration.json"
    assert main(["calibrate", str(cut), "--out", str(out)]) == 1
    assert "incomplete" in said_once(capsys)
    assert not out.exists()


def test_calibration_and_measurements_must_belong_together(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calibration = json.loads((finished / "openmpi/calibration.json").read_text())
    calibration["cluster"] = "elsewhere"
    foreign, out = tmp_path / "foreign.json", tmp_path / "table.json"
    foreign.write_text(json.dumps(calibration))
    measurements = str(finished / "openmpi/measurements.ndjson")
    words = ["--measurements", measurements, "--calibration", str(foreign), "--out", str(out)]
    assert main(["tune", *words, "--json"]) == 1
    assert "elsewhere" in capsys.readouterr().err
    assert not out.exists()


def test_a_full_disk_leaves_nothing_half_written(finished: Path, tmp_path: Path) -> None:
    limited = (
        "import resource, sys\nresource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "from tuner.cli.main import main\nsys.exit(main())\n"
    )  # no file may grow beyond 10 bytes; -B: nor is cached bytecode cut
    out = tmp_path / "out" / "own.rules"
    words = ["table", "export", str(finished / "openmpi/table.json"), "--format", "openmpi"]
    ran = subprocess.run(
        [sys.executable, "-B", "-c", limited, *words, "--out", str(out)],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    assert "cannot be written" in ran.stderr
    assert len(ran.stderr.strip().split("\n")) == 1
    assert list(out.parent.iterdir()) == []


def test_fresh_deletes_only_its_own_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious").touch()
    assert main(["quickstart", "--restart", "--out", str(tmp_path)]) == 1
    assert "was not made by" in said_once(capsys)
    assert (tmp_path / "precious").exists()
