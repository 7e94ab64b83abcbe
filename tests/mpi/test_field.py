"""The field check on real launches: it measures, and it finds a bad tuning slower."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.field.calls import Call, choose_calls
from tests.field.check import Setting, launch_pair
from tests.field.launches import (
    BINARIES,
    NO_TUNING,
    PATTERNS,
    ROOT,
    Program,
    compile_program,
    core_distance,
    cores,
    launch,
)
from tests.field.results import ALL, Result, analyse
from tests.field.tables import Library, Rule, Use, read_libraries
from tests.support.waiting import patience

SECONDS = 0.002
PAIRS = 5
CALLS = (
    "bcast:12",
    "bcast:1000004",
    "allreduce:30012",
    "reduce:20",
    "allgather:4008",
    "gather:808",
    "scatter:200008",
    "barrier:0",
)


def call(word: str, algorithm: str = "default") -> Call:
    collective, size = word.split(":")
    return Call(collective, 2, int(size), algorithm, "rule")


@pytest.fixture(scope="module", params=["openmpi", "mpich"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    if not (BINARIES[request.param] / "mpicc").exists():
        pytest.skip(f"{BINARIES[request.param]} is not there: run 'make venv'")
    return compile_program(request.param, tmp_path_factory.mktemp("field"))


def test_all_collectives_are_timed_and_right(program: Program) -> None:
    launched = launch(program, NO_TUNING, 2, [call(word) for word in CALLS], SECONDS)
    assert launched.wrong == {}
    assert len(launched.seconds) == len(CALLS) * len(PATTERNS)
    assert launched.message_ns > 0
    assert all(1e-8 < seconds < 10 for seconds in launched.seconds.values())


@pytest.mark.alone
def test_the_distance_of_cores_is_measured(program: Program) -> None:
    distances = core_distance(program)
    assert len(distances) == (1 if cores() > 1 else 0)
    assert all(10 < distance < 1e6 for distance in distances)


@pytest.mark.representative("openmpi")
def test_three_ranks_get_right_results(program: Program) -> None:
    words = (
        "allgather:12012",
        "scatter:1200",
        "gather:36",
        "allreduce:4004",
        "reduce:4",
        "bcast:8",
    )
    calls = [Call(w.split(":")[0], 3, int(w.split(":")[1]), "default", "rule") for w in words]
    assert launch(program, NO_TUNING, 3, calls, 0.0005).wrong == {}


@pytest.mark.representative("mpich-allreduce:3", "mpich-gather:12", "mpich-bcast")
@pytest.mark.parametrize("word", ["allreduce:3", "gather:12", "alltoall:8", "bcast", "bcast:x"])
def test_calls_that_cannot_be_run_are_refused(program: Program, word: str) -> None:
    words = program.command(NO_TUNING, 3, ["0.001", word])
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=patience())
    if word == "gather:12":
        assert done.returncode == 0
    else:
        assert done.returncode == 2
        assert f"collective_times: cannot run {word} on 3 ranks" in done.stderr


SLOW_FROM = 500_000
SLOW_BELOW = 2_000_000


def slow_tuning(library: str, folder: Path) -> Use:
    """A preloaded library that makes large allreduces slow, in place of a bad tuning."""
    target = folder / "slow.so"
    source = ROOT / "tests" / "support" / "slow_allreduce.c"
    compiler = BINARIES[library] / "mpicc"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", target, source], check=True)
    sizes = {"SLOW_FROM": str(SLOW_FROM), "SLOW_BELOW": str(SLOW_BELOW), "SLOW_MS": "8"}
    return Use((), {"LD_PRELOAD": str(target), **sizes})


def compared(program: Program, use: Use) -> Result:
    rule = Rule("allreduce", 2, SLOW_FROM, SLOW_BELOW, "bad", (1 << 20,))
    library = Library(program.library, program.library, (rule,), (), use, "digest")
    calls = [call(word, "bad") for word in ("allreduce:1000004", "allreduce:700012")]
    calls += [call("reduce:1000004")]
    setting = Setting(library, program, 2, tuple(calls))
    pairs = [launch_pair(setting, number, SECONDS) for number in range(PAIRS)]
    return analyse([library], {library.name: calls}, pairs)


@pytest.mark.alone
@pytest.mark.extended
def test_a_bad_tuning_is_found_slower(program: Program, tmp_path: Path) -> None:
    result = compared(program, slow_tuning(program.library, tmp_path))
    bad = [row for row in result.rows if row.call.changed]
    assert all(row.certainly("slower") for row in bad)
    assert all(row.estimates[ALL].ratio < 0.7 for row in bad)
    assert result.changed[program.library][ALL].high < 1
    assert result.failed


@pytest.mark.alone
@pytest.mark.extended
def test_without_a_tuning_both_arms_take_alike(program: Program) -> None:
    # Verdicts of equal arms are false in some runs of a hundred, ratios never by so much.
    result = compared(program, NO_TUNING)
    assert all(0.3 < row.estimates["barrier/same"].ratio < 3 for row in result.rows)


@pytest.fixture
def bad_directory(tmp_path: Path) -> Path:
    """A directory as `make tune` leaves it, with a tuning of MPICH that is slow."""
    if not (BINARIES["mpich"] / "mpicc").exists():
        pytest.skip(f"{BINARIES['mpich']} is not there: run 'make venv'")
    (tmp_path / "mpich").mkdir()
    rule = {
        "key": {
            "collective": "allreduce",
            "nodes": 1,
            "ppn": 2,
            "memory": "host",
            "operators": "any",
        },
        "start_bytes": SLOW_FROM,
        "stop_bytes": SLOW_BELOW,
        "choice": {"algorithm": "ring", "params": {}, "runner": "library"},
        "evidence": {"nbytes": [1 << 20]},
    }
    table = {"library": "mpich 5.0", "rules": [rule]}
    (tmp_path / "mpich" / "table.json").write_text(json.dumps(table))
    use = {"command": ["mpiexec"], "environment": dict(slow_tuning("mpich", tmp_path).environment)}
    report = {"libraries": {"mpich": {"heldout": [], "use": use}}}
    (tmp_path / "report.json").write_text(json.dumps(report))
    return tmp_path


def started(directory: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.field.check", str(directory), "--seconds", "0.001"]
    return subprocess.Popen(
        [*command, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def progress(lines: Iterator[str]) -> str:
    return next(line for line in lines if line.startswith("launch "))


@pytest.mark.alone
@pytest.mark.extended
def test_the_command_fails_on_a_slow_tuning_and_resumes(bad_directory: Path) -> None:
    with started(bad_directory, "--launches", "40") as process:
        assert process.stderr is not None
        assert progress(process.stderr).startswith("launch 1 and 2 of 80: mpich, 2 ranks")
        assert progress(process.stderr).startswith("launch 3 and 4")
        process.send_signal(signal.SIGINT)
        assert "the same command goes on from here" in process.stderr.read()
    assert process.returncode == 130
    result = bad_directory / "result.json"
    with started(bad_directory, "--launches", "5", "--json", str(result)) as process:
        text, errors = process.communicate(timeout=patience())
    assert "of 8:" in errors
    assert process.returncode == 1
    assert "slower: 0 of" not in text
    rows = json.loads(result.read_text())["rows"]
    assert len(rows) == len(choose_calls(read_libraries(bad_directory)[0]))
    slow = [row for row in rows if row["algorithm"] == "ring"]
    assert slow
    assert all(row["patterns"][ALL]["ci95"][1] < 1 for row in slow)
