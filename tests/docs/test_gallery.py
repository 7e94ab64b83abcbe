"""The files of the gallery run as their first lines say."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT
from tests.service.serving import publish, served
from tests.support.ladders import table_of
from tests.support.waiting import patience
from tuner.api.settings import Settings
from tuner.base.errors import ProbeError
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmChoice, write_table
from tuner.launch import Launcher

GALLERY = DOCS / "examples" / "gallery"
TORCH_PYTHON = Path(os.environ.get("TUNER_TORCH_PYTHON", ROOT / ".venv-torch" / "bin" / "python"))
RING = AlgorithmChoice("ring", runner=SCHEDULE)


@pytest.fixture
def table(tmp_path: Path, launcher: Launcher) -> Path:
    """The table of an allreduce on two ranks: a ring from 1 KiB on."""
    path = tmp_path / "table.json"
    ladder = [(0, AlgorithmChoice()), (1024, RING)]
    write_table(table_of({(Collective.ALLREDUCE, 2): ladder}, (), launcher.version()), path)
    return path


def test_every_file_is_short() -> None:
    for path in GALLERY.iterdir():
        if path.suffix != ".ipynb":
            assert len(path.read_text().splitlines()) <= 20, path


def test_the_mpi4py_program_follows_the_table(table: Path, launcher: Launcher) -> None:
    words = ["-m", "tuner.run", "--verbose", "--table", str(table), str(GALLERY / "sums.py")]
    done = launcher.run(2, words, timeout=patience(), environment={"PYTHONPATH": str(ROOT)})
    assert done.stdout == "8 bytes: 3\n65536 bytes: 3\n"
    assert "1 followed the table (1 allreduce ring via schedule)" in done.stderr


def test_the_c_program_follows_the_table(table: Path, launcher: Launcher, tmp_path: Path) -> None:
    program = tmp_path / "sums"
    assert launcher.compiler is not None
    subprocess.run([launcher.compiler, GALLERY / "sums.c", "-o", program], check=True)
    started = [str(Path(launcher.compiler).with_name("mpirun")), "-n", "2", "--oversubscribe"]
    words = ["run", "--table", str(table), "--", *started, str(program)]
    done = subprocess.run(
        [sys.executable, "-m", "tuner.cli.main", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMPI_ALLOW_RUN_AS_ROOT": "1",
             "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
        capture_output=True, text=True, timeout=patience(),
    )  # fmt: skip
    assert "8192 elements: 3" in done.stdout, done.stderr
    assert "calls of each rank that followed the table: 1" in done.stderr


def test_the_training_follows_the_table(table: Path, tmp_path: Path) -> None:
    try:
        launcher = Launcher.find("openmpi", TORCH_PYTHON)
    except ProbeError as reason:
        pytest.skip(str(reason))
    environment = {"PYTHONPATH": str(ROOT), "TUNER_TABLE": str(table)}
    done = launcher.run(2, [str(GALLERY / "train.py")], timeout=patience(), environment=environment)
    assert "allreduce ring" in done.stderr


@pytest.mark.slow
def test_the_study_names_the_fastest_algorithms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(GALLERY / "study.yaml", tmp_path)
    assert main(["study", str(tmp_path / "study.yaml"), "--json", "--jobs", "1"]) == 0
    assert len(json.loads(capsys.readouterr().out)["points"]) == 18


def test_the_service_answers_the_program(table: Path, tmp_path: Path) -> None:
    settings = Settings(database=f"sqlite:///{tmp_path}/tuner.sqlite")
    with served(settings) as client:
        publish(client, json.loads(table.read_text()))
        words = [sys.executable, str(GALLERY / "service.py"), str(client.base_url).rstrip("/")]
        done = subprocess.run(words, capture_output=True, text=True, timeout=patience())
    assert done.stdout == "ring\n", done.stderr


@pytest.mark.slow
def test_the_cells_of_the_notebook_run() -> None:
    cells = json.loads((GALLERY / "machine.ipynb").read_text())["cells"]
    code = ["".join(one["source"]) for one in cells if one["cell_type"] == "code"]
    names: dict[str, object] = {}
    for text in code[:-1]:
        exec(text, names)
    *body, last = ast.parse(code[-1]).body
    assert isinstance(last, ast.Expr)
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    found = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    assert found in ("ring", "recursive_doubling", "rabenseifner")
