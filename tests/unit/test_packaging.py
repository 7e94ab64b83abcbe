"""The archives: what the wheel and the source archive contain."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.conftest import ROOT
from tests.support.studio_command import read_page_and_files, started_studio
from tests.support.waiting import patience
from tuner.studio.assets import PAGES_DIR


def build(source: Path, target: str, folder: Path) -> Path:
    """Build `wheel` or `sdist` of a source tree, and return the archive."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=patience())
    (archive,) = folder.iterdir()
    return archive


def files_of_repository() -> set[str]:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {name for name in files.splitlines() if (ROOT / name).exists()}


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
    pages = {path.relative_to(ROOT).as_posix() for path in PAGES_DIR.rglob("*.*")}
    assert pages <= here.keys()


def clone(folder: Path) -> Path:
    """Return a clone of the checkout with all of its files committed."""
    for name in files_of_repository():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def wheel(folder: Path) -> Path:
    """The contents of the wheel."""
    with ZipFile(build(ROOT, "wheel", folder / "dist")) as archive:
        archive.extractall(folder / "packages")
    return folder / "packages"


def source(folder: Path) -> Path:
    """Return the folder of an unpacked source archive."""
    with tarfile.open(build(ROOT, "sdist", folder / "sdist")) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.glob("tuner-*")
    with ZipFile(build(unpacked, "wheel", folder / "dist")) as archive:
        archive.extractall(folder / "packages")
    return folder / "packages"


@pytest.mark.slow
@pytest.mark.representative("clone", "wheel")
@pytest.mark.parametrize("installed", [clone, wheel, source])
def test_the_studio_opens_where_there_is_no_nodejs(
    tmp_path: Path, installed: Callable[[Path], Path]
) -> None:
    """No other program is found while it is built, except git, or runs."""
    package = tmp_path / "package"
    package.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(installed(package)), "PATH": str(tmp_path)}
    (tmp_path / "work").mkdir()
    command = [sys.executable, "-m", "tuner"]
    with started_studio(command, tmp_path / "work", environment) as (address, _):
        assert len(read_page_and_files(address)) > 10


@pytest.mark.slow
def test_a_source_archive_has_every_file_of_the_repository(tmp_path: Path) -> None:
    present = files_of_repository()
    with tarfile.open(build(ROOT, "sdist", tmp_path)) as archive:
        packed = {member.name.partition("/")[2] for member in archive.getmembers()}
    assert packed - present == {"PKG-INFO"}
    assert present <= packed
