"""Real launchers hand variables to their ranks, and a preload to nobody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.prepared import AWKWARD, NAMES, SHOWS, compile_words
from tests.support.waiting import patience
from tuner.launch import Launcher

RANKS = 2
LAUNCHERS = ("launcher", "mpich_launcher", "intelmpi_launcher")


@pytest.fixture(params=LAUNCHERS)
def started(request: pytest.FixtureRequest) -> Launcher:
    """Each library's launcher."""
    launcher = request.getfixturevalue(request.param)
    assert isinstance(launcher, Launcher)
    return launcher


def made_library(place: Path) -> Path:
    """Compile a library whose loading leaves a file beside it."""
    place.mkdir()
    library = place / "library.so"
    subprocess.run(compile_words(library, place), check=True)
    return library


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """The library that is preloaded."""
    return made_library(tmp_path / "ours")


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """The library of a tool that the user preloads."""
    return made_library(tmp_path / "tool")


def shown(
    variables: dict[str, str], command: list[str], environment: dict[str, str]
) -> list[dict[str, str]]:
    """Return what the ranks of a prepared command show, by rank."""
    given = [f"{name}={value}" for name, value in variables.items()]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.prepared", *given, "--", *command],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        timeout=patience(24),
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said: list[dict[str, str]] = json.loads(ran.stdout)
    return said


def of_ranks(launcher: Launcher, *options: str, names: tuple[str, ...] = NAMES) -> list[str]:
    """Return the words that start a rank in each of two contexts."""
    rank = [launcher.profile.ranks_option, "1", str(launcher.python), str(SHOWS), *names]
    return [*launcher.command(RANKS, [])[:-3], *options, *rank, ":", *rank]


def names_of_loaded(library: Path) -> list[str]:
    """Return the names of the processes that have loaded the library."""
    return [one.stem for one in library.parent.iterdir() if one != library]


def test_the_ranks_of_every_context_have_the_variables(started: Launcher, library: Path) -> None:
    values = dict(zip(NAMES, (str(library), AWKWARD, "1"), strict=True))
    said = shown(values, of_ranks(started), {})
    assert said == [values] * RANKS
    loaded = names_of_loaded(library)
    assert len(loaded) == RANKS
    assert set(loaded) == {started.python.name}, "a launcher has loaded it, too"


def test_a_preload_of_the_command_is_kept(started: Launcher, library: Path, tool: Path) -> None:
    option, name = started.profile.launcher_options.environment[0], "LD_PRELOAD"
    pair = (name, str(tool)) if option == "genv" else (f"{name}={tool}",)
    said = shown({name: str(library)}, of_ranks(started, f"-{option}", *pair, names=(name,)), {})
    assert said[0] == {name: f"{library}:{tool}"}
    assert len(names_of_loaded(library)) == RANKS
    assert names_of_loaded(tool)


def test_a_preload_of_the_environment_is_kept(started: Launcher, library: Path, tool: Path) -> None:
    name = "LD_PRELOAD"
    said = shown({name: str(library)}, of_ranks(started, names=(name,)), {name: str(tool)})
    assert [rank[name] for rank in said] == [f"{library}:{tool}"] * RANKS
    assert len(names_of_loaded(library)) == RANKS


def test_a_script_that_starts_ranks_hands_on_its_environment(
    started: Launcher, library: Path, tmp_path: Path
) -> None:
    script = tmp_path / "job.sh"
    script.write_text('#!/bin/sh\nexec "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    values = {"LD_PRELOAD": str(library), "TUNER_FLAT_TABLE": AWKWARD}
    said = shown(values, [str(script), *of_ranks(started, names=tuple(values))], {})
    assert said == [values] * RANKS
    assert names_of_loaded(library).count(started.python.name) == RANKS
