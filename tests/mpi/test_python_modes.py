"""Working directories with a tuner.py of the user's own, and Python without docstrings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.ladders import table_of
from tests.support.waiting import patience
from tuner.base.own_modules import own_module_command, own_module_environment
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, write_table
from tuner.launch import Launcher, inspect_interpreter
from tuner.launch.rank_program import rank_arguments

RING = AlgorithmChoice("ring", {}, "schedule")
PROGRAM = """
import helper, tuner
import numpy as np
from mpi4py import MPI
for count in (1000, 2000):
    MPI.COMM_WORLD.Allreduce(np.ones(count), np.zeros(count))
if MPI.COMM_WORLD.rank == 0:
    print(helper.NAME, tuner.__file__)
"""
WORKER_SCRIPT = """
import os, threading
from tuner.api.workers import WorkerPool
from tuner.base.own_modules import ignore_working_directory

def copy_environment():
    while not done.is_set():
        copies.add(frozenset({**os.environ}.items()))

if __name__ == "__main__":
    ignore_working_directory()
    copies, done = set(), threading.Event()
    other = threading.Thread(target=copy_environment)
    other.start()
    workers = WorkerPool()
    workers.prepare()
    print(workers.run(abs, -5))
    workers.close()
    done.set()
    other.join()
    print(len(copies))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a program and its own modules."""
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "helper.py").write_text("NAME = 'helper'\n")
    (tmp_path / "tuner.py").write_text("print('the tuner of the user')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNER_TEST_FOLDER", str(tmp_path))  # so that no earlier answer is reused
    return tmp_path


def output(command: Sequence[str | Path], environment: dict[str, str]) -> str:
    """Return what a command prints on both streams; it must succeed."""
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=patience(), env=environment, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout + run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("program", [("program.py",), ("-m", "program")], ids=["file", "module"])
@pytest.mark.parametrize(
    "start",
    [(sys.executable, "-P", "-m", "tuner.run"), (Path(sys.executable).with_name("tuner-run"),)],
    ids=["python", "script"],
)
def test_a_program_has_its_own_tuner(
    folder: Path, start: Sequence[str | Path], program: Sequence[str]
) -> None:
    said = output([*start, "--verbose", *program], own_module_environment())
    assert f"the tuner of the user\nhelper {folder / 'tuner.py'}\n" in said
    assert "2 calls of rank 0" in said


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with one program as a file, a directory, a zip file and by links."""
    (tmp_path / "real").mkdir()
    (tmp_path / "links").mkdir()
    (tmp_path / "app").mkdir()
    program = "import json, sys\nprint(json.dumps([sys.path[0], sys.argv, __name__]))\n"
    for file in ("real/program.py", "app/__main__.py"):
        (tmp_path / file).write_text(program)
    with ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr("__main__.py", program)
    (tmp_path / "links" / "program.py").symlink_to("../real/program.py")
    (tmp_path / "linked").symlink_to("real")
    (tmp_path / "linked.zip").symlink_to("app.zip")
    monkeypatch.chdir(tmp_path)
    return tmp_path


PLACES = ["links/program.py", "linked/program.py", "app", "./app/", "app.zip", "linked.zip"]


@pytest.mark.slow
@pytest.mark.parametrize("place", [*PLACES, "{}/app", "{}/links/program.py"])
def test_programs_are_found_where_python_finds_them(programs: Path, place: str) -> None:
    words, environment = [place.format(programs), "an argument"], own_module_environment()
    alone = output([sys.executable, *words], environment)
    program = Path(sys.executable).with_name("tuner-run")
    assert output([program, *words], environment) == alone


@pytest.mark.slow
def test_isolated_programs_are_found_where_python_finds_them(programs: Path) -> None:
    for place in ("app", "links/program.py"):
        alone = output([sys.executable, "-I", place], dict(os.environ))
        assert output([sys.executable, "-I", "-m", "tuner.run", place], dict(os.environ)) == alone


def test_a_failure_beside_a_tuner_of_the_user_leaves_the_program_untuned(
    launcher: Launcher, folder: Path
) -> None:
    """The user has an http.py, too, which a module of this package would import."""
    (folder / "http.py").write_text("print('the http of the user')\n")
    words = ["-P", "-m", "tuner.run", "--table", "table.json", "program.py"]
    run = launcher.run(2, words, timeout=patience(), check=False)
    assert run.returncode == 0, run.stderr
    assert f"helper {folder / 'tuner.py'}\n" in run.stdout
    warnings = run.stderr.splitlines()
    assert len(warnings) == 1
    assert warnings[0].startswith("tuner: the library's own collectives are used: ")
    assert "http" in warnings[0]


@pytest.mark.usefixtures("folder")
def test_ranks_of_probes_are_ours(launcher: Launcher) -> None:
    run = launcher.run(2, rank_arguments("tuner.rank_programs.trial"), timeout=patience())
    assert json.loads(run.stdout)["size"] == 2
    assert inspect_interpreter(launcher.python).identity == launcher.installation.identity


@pytest.mark.usefixtures("folder")
def test_programs_that_commands_start_are_ours() -> None:
    assert output(own_module_command("tuner", "--version"), own_module_environment()).startswith(
        "tuner "
    )


@pytest.mark.slow
def test_workers_of_a_service_are_ours(folder: Path) -> None:
    script = folder / "scripts" / "script.py"  # as a console script: its folder is no other's
    script.parent.mkdir()
    script.write_text(WORKER_SCRIPT)
    said = output([sys.executable, script], own_module_environment())
    assert said.split() == ["5", "1"]  # other threads see one environment only


def test_a_call_follows_the_table_without_docstrings(launcher: Launcher, tmp_path: Path) -> None:
    program, file = tmp_path / "program.py", tmp_path / "table.json"
    program.write_text(PROGRAM.replace("import helper, tuner", "").partition("if MPI")[0])
    ladders = {(Collective.ALLREDUCE, 2, "commutative"): [(0, RING)]}
    write_table(table_of(ladders, (8000,), launcher.version()), file)
    words = ["-OO", "-m", "tuner.run", "--verbose", "--table", str(file), str(program)]
    run = launcher.run(2, words, timeout=patience())
    assert f"2 followed the table (2 allreduce {RING})" in run.stderr


def test_algorithms_are_described_without_docstrings() -> None:
    words = ["-m", "tuner", "algorithms", "--json"]
    described = [
        output([sys.executable, *mode, *words], dict(os.environ)) for mode in ([], ["-OO"])
    ]
    assert described[0] == described[1]
