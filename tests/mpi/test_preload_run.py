"""`tuner run` and `tuner compare` with real launchers, a C program and a real table."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.service import serving
from tests.support.ladders import table_of
from tests.support.terminals import screen
from tests.support.waiting import patience
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, TuningTable, write_table
from tuner.launch import Launcher
from tuner.preload import compilation
from tuner.preload.compilation import build_library
from tuner.probe.probed_machine import local_cluster
from tuner.runtime.table_cache import cache_directory

RANKS = 2
CALLS = 10
PROGRAM = f"""
#include <mpi.h>
int main(int count, char **words)
{{
    static char buffer[8000];
    MPI_Init(&count, &words);
    for (int i = 0; i < {CALLS}; i++)
        MPI_Bcast(buffer, sizeof buffer, MPI_BYTE, 0, MPI_COMM_WORLD);
    return MPI_Finalize();
}}
"""
FORCED = {"openmpi": "chain", "mpich": "scatter_allgather"}


@pytest.fixture(params=["launcher", "mpich_launcher"])
def started(request: pytest.FixtureRequest) -> Launcher:
    """Each library's launcher that comes with a compiler."""
    launcher = request.getfixturevalue(request.param)
    assert isinstance(launcher, Launcher)
    return launcher


@pytest.fixture
def command(started: Launcher, tmp_path: Path) -> list[str]:
    """The command that starts the program."""
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(PROGRAM, encoding="utf-8")
    subprocess.run([str(started.compiler), "-o", program, source], check=True)
    return started.command(RANKS, [], program=program)


@pytest.fixture
def table(started: Launcher, tmp_path: Path) -> Path:
    """A table that forces an algorithm for the program's calls."""
    rungs = [
        (0, AlgorithmChoice()),
        (1000, AlgorithmChoice(FORCED[started.library])),
        (1_000_000, AlgorithmChoice()),
    ]
    rules = table_of({(Collective.BCAST, RANKS, "any"): rungs}, (8000,), started.version()).rules
    path = tmp_path / "table.json"
    write_table(TuningTable(local_cluster(), started.version(), rules), path)
    return path


@pytest.fixture(scope="module", autouse=True)
def _compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what is compiled for an MPI for the other tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def tuner(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    known = {name: value for name, value in os.environ.items() if name != "TUNER_TABLE"}
    return subprocess.run(
        [sys.executable, "-m", "tuner.cli.main", *words],
        stdin=subprocess.DEVNULL,
        cwd=folder,
        env={**known, "PYTHONPATH": str(ROOT), "TUNER_REPORT": str(folder / "report")},
        capture_output=True,
        text=True,
        timeout=patience(30),
        check=False,
    )


def calls_followed(folder: Path) -> int:
    """Return the number of calls of all ranks that followed a rule."""
    lines = (folder / "report").read_text(encoding="utf-8").splitlines()
    return sum(int(line.split()[1]) for line in lines)


def test_a_c_program_follows_a_table(tmp_path: Path, command: list[str], table: Path) -> None:
    ran = tuner(tmp_path, "run", "--table", str(table), "--", *command)
    assert (ran.returncode, ran.stdout) == (0, "")
    assert ran.stderr.startswith(f"tuner: calls of each rank that followed the table: {CALLS}")
    assert calls_followed(tmp_path) == RANKS * CALLS
    ran = tuner(tmp_path, "run", "--quiet", "--table", str(table), "--", *command)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_printed_command_does_the_same(tmp_path: Path, command: list[str], table: Path) -> None:
    printed = tuner(tmp_path, "run", "--print", "--table", str(table), "--", *command)
    assert (printed.returncode, printed.stderr) == (0, "")
    environment = {**os.environ, "TUNER_REPORT": str(tmp_path / "report")}
    subprocess.run(printed.stdout, shell=True, check=True, env=environment, timeout=patience(30))
    assert calls_followed(tmp_path) == RANKS * CALLS


@pytest.mark.parametrize("name", ["use_dynamic_rules", "bcast_algorithm"])
def test_settings_of_the_user_are_kept(
    tmp_path: Path,
    command: list[str],
    table: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    started: Launcher,
) -> None:
    """Some releases of Open MPI get the one for forcing algorithms unless the user sets any."""
    words = ["run", "--print", "--table", str(table), "--", *command]
    forces = bool(started.profile.start_settings(started.version()))
    assert ("use_dynamic_rules" in tuner(tmp_path, *words).stdout) is forces
    monkeypatch.setenv(f"OMPI_MCA_coll_tuned_{name}", "0")
    printed = tuner(tmp_path, *words).stdout
    assert "use_dynamic_rules" not in printed
    assert "TUNER_FLAT_TABLE" in printed


def test_a_table_for_another_library_is_one_line(
    tmp_path: Path, command: list[str], table: Path
) -> None:
    record = json.loads(table.read_text(encoding="utf-8"))
    record["library"] = "openmpi 1.0.0"
    table.write_text(json.dumps(record), encoding="utf-8")
    ran = tuner(tmp_path, "run", "--table", str(table), "--", *command)
    assert ran.returncode == 0
    assert "the table is for 'openmpi 1.0.0', but this is " in ran.stderr
    assert not (tmp_path / "report").exists()


def test_a_program_of_another_library_is_left_alone(
    tmp_path: Path, launcher: Launcher, mpich_launcher: Launcher, table: Path, started: Launcher
) -> None:
    """Loading a library for another MPI would end it."""
    other = mpich_launcher if started is launcher else launcher
    source, program = tmp_path / "program.c", tmp_path / "other"
    source.write_text(PROGRAM, encoding="utf-8")
    subprocess.run([str(other.compiler), "-o", program, source], check=True)
    command = started.command(RANKS, [], program=program)
    ran = tuner(tmp_path, "run", "--print", "--table", str(table), "--", *command)
    assert ran.stdout.split() == command
    assert f"{program} uses {other.libmpi().resolve()}, but " in ran.stderr


@pytest.mark.representative("launcher")
def test_a_cache_from_which_nothing_can_be_loaded_is_one_line(
    tmp_path: Path, command: list[str], table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loader splits LD_PRELOAD at spaces and colons, and complains on every rank."""
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "my cache"))
    ran = tuner(tmp_path, "run", "--table", str(table), "--", *command)
    assert (ran.returncode, ran.stderr.count("\n")) == (0, 1)
    assert "my cache, since LD_PRELOAD is split at spaces and colons" in ran.stderr


@pytest.mark.representative("launcher")
def test_a_process_that_builds_as_well_leaves_the_library_in_use(started: Launcher) -> None:
    assert started.compiler is not None
    built = build_library(started.compiler)
    before = built.path.stat().st_ino
    compilation._build_into(built.path.parent, started.compiler)
    assert built.path.stat().st_ino == before


@pytest.mark.representative("launcher")
def test_a_program_is_observed_without_standard_input(
    tmp_path: Path, command: list[str], table: Path
) -> None:
    words = ["run", "--report", "run.html", "--table", str(table), "--", *command]
    closed = f"exec {shlex.join([sys.executable, '-m', 'tuner.cli.main', *words])} <&-"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(closed, shell=True, check=True, cwd=tmp_path, env=environment)
    assert (tmp_path / "run.html").exists()


@pytest.mark.representative("mpich_launcher")
def test_a_report_says_what_the_run_did(
    tmp_path: Path, command: list[str], table: Path, started: Launcher
) -> None:
    words = ["--report", "run.html", "--table", str(table), "--", *command]
    ran = tuner(tmp_path, "run", *words)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    (section,) = re.findall(r'data-collective="bcast" data-ranks="2"><h3>(.*?)</h3>', page)
    assert section.startswith("bcast on 2 ranks on 1 node: ")
    rows = [re.findall(r"<td.*?>(.*?)</td>", row) for row in re.findall(r"<tr data.*?</tr>", page)]
    assert sum(int(row[2]) for row in rows) == CALLS
    assert {row[1] for row in rows} == {FORCED[started.library]}
    assert [path.name for path in cache_directory().glob("run-*")] == []


@pytest.mark.representative("launcher")
def test_a_run_without_a_report_says_so(tmp_path: Path, command: list[str], table: Path) -> None:
    words = ["run", "--report", "run.html"]
    untuned = tuner(tmp_path, *words, "--", *command)
    silent = tuner(tmp_path, *words, "--table", str(table), "--", command[0], "--version")
    for ran in (untuned, silent):
        assert ran.returncode == 0
        assert "report left out: the program " in ran.stderr
    assert not (tmp_path / "run.html").exists()


@pytest.mark.representative("launcher")
def test_times_reach_the_service(
    tmp_path: Path,
    command: list[str],
    table: Path,
    service: serving.Program,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    version = serving.publish(service.client, json.loads(table.read_text(encoding="utf-8")))
    url = str(service.client.base_url).rstrip("/")
    monkeypatch.setenv("TUNER_FEEDBACK", "1")
    for _ in range(2):
        ran = tuner(tmp_path, "run", "--quiet", "--service", url, "--", *command)
        assert (ran.returncode, ran.stderr) == (0, "")
    told = serving.good(service.client.get(f"/v1/tables/{version}/feedback"))
    assert (told["reports"], told["items"]) == (2, 2)
    service.process.kill()
    service.process.wait(patience())
    ran = tuner(tmp_path, "run", "--service", url, "--", *command)
    assert ran.returncode == 0
    assert ran.stderr.splitlines()[-1].startswith("tuner: feedback is lost: ")


@pytest.mark.representative("launcher")
def test_a_signal_ends_the_program_that_is_observed(tmp_path: Path, table: Path) -> None:
    command = [
        "sh",
        "-c",
        "trap 'echo ended; exit 7' TERM; echo begun; while :; do sleep 0.1; done",
    ]
    words = ["run", "--quiet", "--report", "run.html", "--table", str(table), "--", *command]
    with subprocess.Popen(
        [sys.executable, "-m", "tuner.cli.main", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "begun\n"
        running.terminate()
        assert running.stdout.read() == "ended\n"
    assert running.returncode == 7


def test_programs_are_compared(tmp_path: Path, command: list[str], table: Path) -> None:
    words = ["--runs", "2", "--json", "--out", "kept.json", "--table", str(table)]
    ran = tuner(tmp_path, "compare", *words, "--", *command)
    record = json.loads(ran.stdout)
    assert ran.returncode == int(record["ci95"][1] < 1), ran.stderr
    assert json.loads((tmp_path / "kept.json").read_text(encoding="utf-8")) == record
    assert len(record["pairs"]) == 2
    assert calls_followed(tmp_path) == RANKS * CALLS


@pytest.mark.representative("launcher")
def test_the_time_in_each_collective_is_compared(
    tmp_path: Path, command: list[str], table: Path
) -> None:
    words = ["--runs", "2", "--collectives", "--table", str(table)]
    ran = tuner(tmp_path, "compare", *words, "--json", "--", *command)
    record = json.loads(ran.stdout)
    assert {*record["collective_gains"]} == {"bcast"}
    assert all(min(pair["collectives"]["bcast"]) > 0 for pair in record["pairs"])
    assert [path.name for path in cache_directory().glob("run-*")] == []


def test_lines_of_the_ranks_are_as_long_as_the_terminal_is_wide(
    command: list[str], table: Path
) -> None:
    words = [sys.executable, "-m", "tuner.cli.main", "run", "--table", str(table), "--"]
    status, said = screen([*words, *command], 40, ROOT)
    assert status == 0
    first = said.splitlines().index("tuner: calls of each rank that followed")
    assert f"the table: {CALLS}" in said.splitlines()[first:]


@pytest.mark.representative("launcher")
def test_a_table_that_no_call_follows_is_named(
    tmp_path: Path, command: list[str], table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = json.loads(table.read_text(encoding="utf-8"))
    for rule in record["rules"]:
        rule["key"]["ppn"] = RANKS + 1
    table.write_text(json.dumps(record), encoding="utf-8")
    ran = tuner(tmp_path, "compare", "--runs", "2", "--table", str(table), "--", *command)
    assert "tuner: no call followed the table: both sides did the same\n" in ran.stderr


def test_equal_sides_are_not_compared(tmp_path: Path, command: list[str]) -> None:
    ran = tuner(tmp_path, "compare", "--", *command)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("tuner: both sides would be the same: no table is given")
