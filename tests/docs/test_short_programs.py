"""The short programs of the documentation run, and print what their page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT
from tests.support.waiting import patience
from tuner.launch import CompletedRun, Launcher

TEXT = (DOCS / "how-to" / "short-programs.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE))
FIRST = next(iter(SECTIONS))
MPI_PROGRAM = "Follow a table in an MPI program"
PROGRAM = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMPILING = re.compile(r"^compiling the simulation: .*\n", re.MULTILINE)
FILE = re.compile(r"ave as `(\S+)`[^`]*?^```(?:yaml)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def run(title: str, folder: Path) -> tuple[str, str]:
    """Run the program of a section beside its files; return what it prints, and what it should."""
    program, expected = prepare(title, folder)
    done = subprocess.run(
        [sys.executable, program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=patience(),
    )
    return printed(done), expected


def printed(done: subprocess.CompletedProcess[str] | CompletedRun) -> str:
    """Return what a program printed but for what a first simulation says, which is said once."""
    return done.stdout + COMPILING.sub("", done.stderr)


def prepare(title: str, folder: Path) -> tuple[str, str]:
    """Write the program of a section and its files; return its path and what it should print."""
    for name, content in FILE.findall(SECTIONS[title]):
        (folder / name).write_text(content)
    ((program, expected),) = PROGRAM.findall(SECTIONS[title])
    path = folder / "program.py"
    path.write_text(program)
    return str(path), expected


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the table that the first program writes."""
    said, expected = run(FIRST, tmp_path)
    assert said == expected
    return tmp_path


def test_the_page_has_programs() -> None:
    assert MPI_PROGRAM in SECTIONS
    assert len(SECTIONS) >= 6
    assert all(len(PROGRAM.findall(section)) == 1 for section in SECTIONS.values())


@pytest.mark.slow
@pytest.mark.parametrize("title", [name for name in SECTIONS if name not in (FIRST, MPI_PROGRAM)])
def test_a_program_prints_what_its_page_says(title: str, folder: Path) -> None:
    said, expected = run(title, folder)
    assert said == expected


def test_the_mpi_program_prints_what_its_page_says(
    folder: Path, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, expected = prepare(MPI_PROGRAM, folder)
    monkeypatch.chdir(folder)
    done = launcher.run(2, [program], timeout=patience())
    assert printed(done) == expected
