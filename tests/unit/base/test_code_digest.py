"""Answers are kept exactly as long as the code that made them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tuner
from tuner.base.code_digest import code_digest

STAGE = """
import sys
from pathlib import Path
from tuner.workflows.checkpoint import StageCheckpoint

out = Path(sys.argv[1])
print(StageCheckpoint(out).run("fit", [], [out / "made"], (out / "made").touch))
"""


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the package, to be changed."""
    ignored = shutil.ignore_patterns("__pycache__", "pages")
    shutil.copytree(Path(tuner.__file__).parent, tmp_path / "copy" / "tuner", ignore=ignored)
    return tmp_path / "copy" / "tuner"


def printed(copied: Path, program: str, *words: str) -> str:
    """Return what a program prints with the copied package."""
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(copied.parent), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
        cwd=copied.parent,
    ).stdout.strip()


def change(path: Path) -> None:
    path.touch()
    path.write_text(f"{path.read_text()}\n# changed\n")


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["sim/maxmin.py", "machines/gpus.yaml", "select/new.py"])
def test_a_stage_runs_again_after_a_change_of_the_code(
    copied: Path, tmp_path: Path, changed: str
) -> None:
    assert printed(copied, STAGE, str(tmp_path)) == "True"
    assert printed(copied, STAGE, str(tmp_path)) == "False"
    change(copied / changed)
    assert printed(copied, STAGE, str(tmp_path)) == "True"
    assert printed(copied, STAGE, str(tmp_path)) == "False"


def digest(folder: Path) -> str:
    code_digest.cache_clear()
    return code_digest(folder)


def test_content_and_names_of_sources_count_and_times_do_not(tmp_path: Path) -> None:
    path = tmp_path / "inside" / "one.py"
    path.parent.mkdir()
    path.write_text("x = 1\n")
    first = digest(tmp_path)
    os.utime(path, (0, 0))
    (tmp_path / "notes.txt").write_text("no source")
    assert digest(tmp_path) == first
    path.write_text("x = 2\n")
    second = digest(tmp_path)
    path.rename(tmp_path / "two.py")
    assert len({first, second, digest(tmp_path)}) == 3
