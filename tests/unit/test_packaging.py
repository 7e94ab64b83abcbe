"""The archives: what the wheel and the source archive contain."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.conftest import ROOT
from tests.support.waiting import patience


def build(source: Path, target: str, folder: Path) -> Path:
    """Build `wheel` or `sdist` of a source tree, and return the archive."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=patience())
    (archive,) = folder.iterdir()
    return archive


def contents(wheel: Path) -> dict[str, bytes]:
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.slow
def test_a_source_archive_builds_the_wheel_of_the_checkout(tmp_path: Path) -> None:
    with tarfile.open(build(ROOT, "sdist", tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.glob("tuner-*")
    here = contents(build(ROOT, "wheel", tmp_path / "here"))
    assert contents(build(source, "wheel", tmp_path / "there")) == here
    assert {"tuner/_data/db/env.py", "tuner/validation/openmpi_trace.c"} <= here.keys()
    assert not [name for name in here if not name.startswith("tuner")]


@pytest.mark.slow
def test_a_source_archive_has_every_file_of_the_repository(tmp_path: Path) -> None:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    present = {name for name in files.splitlines() if (ROOT / name).exists()}
    with tarfile.open(build(ROOT, "sdist", tmp_path)) as archive:
        packed = {member.name.partition("/")[2] for member in archive.getmembers()}
    assert packed - present == {"PKG-INFO"}
    assert present <= packed
