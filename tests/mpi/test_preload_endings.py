"""Programs end under the preloaded dispatcher, however they end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.mpi4py_suite import SHARED_CORES
from tests.support.mpich_suite import preload_tables
from tests.support.preload import compiled, preload_environment
from tests.support.waiting import patience
from tuner.launch import Launcher
from tuner.launch.failures import CompletedRun
from tuner.preload.report import read_counts

RANKS = 3
GOOD_ENDINGS = ("none", "returned", "session")
BAD_ENDINGS = ("kill", "crash", "abort", "exit", "fatal")


@pytest.fixture(scope="module", params=["launcher", "mpich_launcher"])
def own(request: pytest.FixtureRequest) -> Launcher:
    found: Launcher = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def program(own: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(own, "preload_endings.c", tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="module", params=["schedule", "forced"])
def following(
    own: Launcher, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, str]:
    table = preload_tables(own.version(), RANKS)[request.param]
    folder = tmp_path_factory.mktemp("table")
    return preload_environment(own, table, folder, TUNER_TUNE_AFTER_US="0")


def run(own: Launcher, program: Path, environment: Mapping[str, str], ending: str) -> CompletedRun:
    arguments = [ending, str(RANKS - 1), "40", "7"]
    return own.run(
        RANKS,
        arguments,
        program=program,
        environment={**SHARED_CORES, **environment},
        check=False,
        timeout=patience(30),
    )


@pytest.mark.representative(
    "launcher-schedule-none", "mpich_launcher-forced-returned", "launcher-forced-session"
)
@pytest.mark.parametrize("ending", GOOD_ENDINGS)
def test_a_program_that_goes_on_has_its_results(
    own: Launcher, program: Path, following: Mapping[str, str], ending: str, tmp_path: Path
) -> None:
    report = tmp_path / "report"
    done = run(own, program, {**following, "TUNER_REPORT": str(report)}, ending)
    assert (done.returncode, done.stdout.strip()) == (0, "No Errors"), done.stderr
    if ending == "session":
        assert "tuner:" not in done.stderr
        assert not report.exists()
    else:
        assert sum(read_counts(report).values()) > 0


@pytest.mark.representative(
    "launcher-schedule-abort", "mpich_launcher-forced-kill", "launcher-schedule-fatal"
)
@pytest.mark.parametrize("ending", BAD_ENDINGS)
def test_a_program_that_breaks_ends(
    own: Launcher, program: Path, following: Mapping[str, str], ending: str
) -> None:
    """The status depends on which rank's end the launcher hears of first, also without us."""
    done = run(own, program, following, ending)
    assert done.returncode != 0
    assert "Errors" not in done.stdout
    assert "tuner:" not in done.stderr
