"""Working directories with a tuner.py of the user's own, and Python without docstrings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.ladders import table_of
from tests.support.waiting import patience
from tuner.base.own_modules import own_module_command, own_module_environment
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmConfig, write_table
from tuner.launch import Launcher, inspect_interpreter
from tuner.launch.rank_program import rank_arguments

RING = AlgorithmConfig("ring", {}, "schedule")
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
from tuner.api.workers import WorkerPool
if __name__ == "__main__":
    workers = WorkerPool()
    workers.prepare()
    print(workers.run(abs, -5))
    workers.close()
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
    assert output([sys.executable, script], own_module_environment()) == "5\n"


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
