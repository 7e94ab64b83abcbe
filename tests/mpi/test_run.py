"""`python -m tuner.run`: a program that knows nothing of tables follows one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service import serving
from tests.support.ladders import table_of
from tests.support.services import HOST
from tests.support.waiting import patience
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, table_record, write_table
from tuner.launch import CompletedRun, Launcher

PROGRAM = Path(__file__).with_name("unmodified_program.py")
ROOT = PROGRAM.parents[2]
LIBRARIES = [("launcher", 4), ("mpich_launcher", 2)]
RULES = [(0, AlgorithmChoice("ring", {}, "schedule"))]

pytestmark = pytest.mark.usefixtures("own_cache")


class Tuned:
    """Runs programs under `tuner.run`, and has a table for them."""

    def __init__(self, launcher: Launcher, ranks: int, place: Path) -> None:
        self.launcher, self.ranks, self.file = launcher, ranks, place / "table.json"
        ladders = {(Collective.ALLREDUCE, ranks, "commutative"): RULES}
        self.table = table_of(ladders, (8000,), launcher.version())
        write_table(self.table, self.file)

    def run(self, *words: str, **variables: str) -> CompletedRun:
        return self.launcher.run(
            self.ranks,
            ["-m", "tuner.run", *words],
            environment=variables,
            timeout=patience(),
            check=False,
        )

    def run_alone(self, ending: str) -> subprocess.CompletedProcess[str]:
        """Run the program without a launcher."""
        words = ["-m", "tuner.run", "--table", str(self.file), str(PROGRAM), ending]
        return subprocess.run(
            [self.launcher.python, *words],
            capture_output=True,
            text=True,
            timeout=patience(),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=self.file.parent,
        )


@pytest.fixture(params=LIBRARIES, ids=["openmpi", "mpich"])
def tuned(request: pytest.FixtureRequest, tmp_path: Path) -> Tuned:
    fixture, ranks = request.param
    return Tuned(request.getfixturevalue(fixture), ranks, tmp_path)


@pytest.mark.representative("openmpi")
def test_a_file_is_run_as_it_would_be_without(tuned: Tuned) -> None:
    run = tuned.run("--table", str(tuned.file), str(PROGRAM), "end", "--table", "x")
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == f"__main__ end --table x TunedIntracomm {PROGRAM.parent}\n"


def test_mpi_starts_with_the_thread_level_of_the_option(tuned: Tuned, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os\nfrom mpi4py import MPI\n"
        "print(MPI.Query_thread() == MPI.THREAD_FUNNELED, os.environ['MPI4PY_RC_THREAD_LEVEL'])\n"
    )
    words = ["--thread-level", "funneled", "--table", str(tuned.file), str(program)]
    run = tuned.run(*words, MPI4PY_RC_THREAD_LEVEL="multiple")
    said = run.stdout  # in which the words of several ranks may be mixed
    assert (said.count("True"), said.count("multiple"), run.stderr) == (
        tuned.ranks,
        tuned.ranks,
        "",
    )


@pytest.mark.extended
def test_a_module_is_found_where_python_finds_it(tuned: Tuned) -> None:
    run = tuned.run("-m", PROGRAM.stem, "end", PYTHONPATH=str(PROGRAM.parent))
    assert run.returncode == 0
    assert run.stderr.splitlines() == [
        "tuner: the library's own collectives are used: no table is named, set TUNER_TABLE or"
        " TUNER_SERVICE"
    ]
    assert run.stdout.startswith("__main__ end TunedIntracomm ")


@pytest.mark.representative("mpich")
def test_an_exception_of_one_rank_ends_all(tuned: Tuned) -> None:
    run = tuned.run("--table", str(tuned.file), str(PROGRAM), "raise")
    assert run.returncode != 0
    assert "ValueError: of the program" in run.stderr
    assert "last words" in run.stdout


@pytest.mark.extended
def test_a_rank_that_cannot_even_begin_is_one_line(tuned: Tuned, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("""
from typing import Any
from mpi4py import MPI
from tuner.runtime.script import run
odd: Any = 5
run(["-m", "unmodified_program", "end"], service=odd if MPI.COMM_WORLD.rank == 1 else None)
""")
    environment = {"PYTHONPATH": str(PROGRAM.parent)}
    run = tuned.launcher.run(
        tuned.ranks, [str(program)], environment=environment, timeout=patience()
    )
    assert run.stderr.splitlines() == [
        "tuner: the library's own collectives are used: rank 1: AttributeError: 'int' object has no"
        " attribute 'rstrip'"
    ]
    assert run.stdout.startswith("__main__ end TunedIntracomm ")


ENDINGS = pytest.mark.parametrize(("ending", "status"), [("0", 0), ("3", 3), ("finalize", 0)])


@pytest.mark.representative("openmpi-3-3", "mpich-0-0")
@ENDINGS
def test_the_exit_status_is_the_programs(tuned: Tuned, ending: str, status: int) -> None:
    """One rank on its own, without a launcher: what that makes of a status is its own affair."""
    run = tuned.run_alone(ending)
    assert run.returncode == status
    assert run.stdout.startswith("__main__")
    assert "Traceback" not in run.stderr


@pytest.mark.representative("openmpi-SIGINT", "mpich-SIGTERM")
@pytest.mark.parametrize("ending", ["SIGINT", "SIGTERM"])
def test_a_signal_is_the_exit_status(tuned: Tuned, ending: str) -> None:
    number = signal.Signals[ending]
    assert tuned.run_alone(ending).returncode in (128 + number, -number)  # alike to a shell


@pytest.mark.representative("openmpi-3-3", "mpich-finalize-0")
@ENDINGS
def test_the_launcher_fails_as_the_program_does(tuned: Tuned, ending: str, status: int) -> None:
    """Open MPI's launcher may die of a rank that ends with a status, and say -11."""
    run = tuned.run("--table", str(tuned.file), str(PROGRAM), ending)
    assert (run.returncode == 0) == (status == 0)
    assert "Traceback" not in run.stderr


@pytest.mark.representative("mpich")
def test_the_last_words_are_the_programs(tuned: Tuned) -> None:
    run = tuned.run(str(PROGRAM), "give up")
    assert run.returncode != 0
    assert "the program gives up\n" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.representative("openmpi")
def test_feedback_reaches_the_service(tuned: Tuned, service: serving.Program) -> None:
    version = serving.publish(service.client, table_record(tuned.table))
    url = str(service.client.base_url).rstrip("/")
    for _ in range(2):
        run = tuned.run("--service", url, "--feedback", str(PROGRAM), "end")
        assert (run.returncode, run.stderr) == (0, "")
    told = serving.good(service.client.get(f"/v1/tables/{version}/feedback"))
    assert (told["reports"], told["items"]) == (2, 2)


@pytest.mark.extended
def test_feedback_that_nobody_takes_costs_one_line(
    tuned: Tuned, service: serving.Program, tmp_path: Path
) -> None:
    serving.publish(service.client, table_record(tuned.table))
    url = str(service.client.base_url).rstrip("/")
    program = tmp_path / "program.py"
    program.write_text(f"""
import os
import numpy as np
from mpi4py import MPI
MPI.COMM_WORLD.Allreduce(np.ones(1000), np.zeros(1000))
if MPI.COMM_WORLD.rank == 0:
    os.kill({service.process.pid}, 9)
""")
    run = tuned.run("--service", url, "--feedback", str(program))
    assert run.returncode == 0
    assert run.stderr.startswith(f"tuner: feedback is lost: nothing answers at http://{HOST}:")
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "expected a program"),
        (["--table", "t.json"], "expected a program"),
        (["-m"], "expected a program"),
        (["nowhere.py"], "nowhere.py does not exist"),
        (["."], ".: expected a __main__.py in it"),
        (["-m", "nowhere.at.all"], "module nowhere.at.all was not found"),
        (["--dance", "x.py"], "unrecognized arguments: --dance"),
        (["--table", "a", "--service", "b", "x.py"], "not allowed with argument --table"),
        (["--table"], "expected one argument"),
    ],
)
def test_wrong_arguments_are_one_sentence(words: list[str], sentence: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tuner.run", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=PROGRAM.parent,
    )
    assert (run.returncode, run.stdout) == (2, "")
    assert sentence in run.stderr
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.extended
def test_verbose_says_at_the_end_how_many_calls_followed_which_rule(tuned: Tuned) -> None:
    run = tuned.run("--table", str(tuned.file), "--verbose", str(PROGRAM), "end")
    assert run.returncode == 0
    assert run.stderr.splitlines() == [
        f"tuner: 100 calls of rank 0: 100 followed the table (100 allreduce {RULES[0][1]}),"
        " 0 left to the library"
    ]


@pytest.mark.representative("openmpi-raise", "mpich-end")
@pytest.mark.parametrize("ending", ["end", "3", "raise", "finalize"])
def test_the_same_line_ends_every_program(tuned: Tuned, ending: str) -> None:
    """One rank on its own: others may be ended before they say anything."""
    words = ["-m", "tuner.run", "--table", str(tuned.file), "--verbose", str(PROGRAM), ending]
    run = subprocess.run(
        [tuned.launcher.python, *words],
        capture_output=True,
        text=True,
        timeout=patience(),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tuned.file.parent,
    )
    line = (
        "tuner: 100 calls of rank 0: 0 followed the table, 100 left to the library (100 allreduce)"
    )
    assert run.stderr.splitlines().count(line) == 1


def test_kept_methods_and_further_objects_work_before_and_after_tuning(tuned: Tuned) -> None:
    program = Path(__file__).with_name("deferred_program.py")
    run = tuned.run("--table", str(tuned.file), str(program), PYTHONPATH=str(ROOT))
    assert (run.returncode, run.stdout.split()) == (0, ["untuned", "TunedIntracomm"]), run.stderr
