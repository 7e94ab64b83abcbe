"""mpi4py's own tests pass under `tuner.run` and the preloaded library as they do without them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mpi4py_suite import EXACT_CLASS, Outcome, directory, run_suite, tables, written
from tests.support.preload import preload_environment
from tests.support.waiting import patience
from tuner.core.table import read_table
from tuner.launch import Launcher
from tuner.preload.report import read_counts

LIBRARIES = {"openmpi": "launcher", "mpich": "mpich_launcher"}
# A mixed table has our schedules, forced algorithms and the library's own choice in turn.
SIDES = [(2, "mixed"), (3, "schedule"), (3, "forced"), (3, "mixed"), (5, "mixed")]


@pytest.fixture(scope="module", autouse=True)
def _suite() -> None:
    try:
        directory()
    except FileNotFoundError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables that a short quickstart makes of measurements on this computer."""
    out = tmp_path_factory.mktemp("quickstart") / "out"
    words = ["quickstart", "--out", str(out), "--budget", "60s", "--sizes", "64,512,64KiB"]
    subprocess.run(
        [sys.executable, "-m", "tuner.cli.main", *words], check=True, timeout=patience(60)
    )
    return out


@pytest.fixture(scope="module")
def outcomes() -> dict[tuple[str, int], Outcome]:
    """What came out without the dispatcher, for each library and number of ranks."""
    return {}


@pytest.mark.parametrize(("ranks", "name"), [*SIDES, (3, "own")])
@pytest.mark.parametrize("library", LIBRARIES)
def test_as_without(
    request: pytest.FixtureRequest,
    outcomes: dict[tuple[str, int], Outcome],
    library: str,
    ranks: int,
    name: str,
) -> None:
    launcher: Launcher = request.getfixturevalue(LIBRARIES[library])
    if (library, ranks) not in outcomes:
        outcomes[library, ranks] = run_suite(launcher, ranks, None)
    if name == "own":
        table = read_table(request.getfixturevalue("quickstart") / library / "table.json")
    else:
        table = tables(launcher.version(), ranks)[name]
    plain = outcomes[library, ranks]
    with written(table) as path:
        tuned = run_suite(launcher, ranks, path)
    assert (tuned.ran, tuned.skipped) == (plain.ran, plain.skipped)
    assert {n: why for n, why in tuned.failed.items() if n not in plain.failed} == {
        n: why for n, why in tuned.failed.items() if n in EXACT_CLASS
    }
    assert {*tuned.failed} >= EXACT_CLASS  # what passes after all is to be taken from that list
    assert [line for line in tuned.log if "Traceback" in line] == []


@pytest.mark.parametrize(("ranks", "name"), SIDES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_as_without_the_preloaded_library(
    request: pytest.FixtureRequest,
    outcomes: dict[tuple[str, int], Outcome],
    library: str,
    ranks: int,
    name: str,
    tmp_path: Path,
) -> None:
    launcher: Launcher = request.getfixturevalue(LIBRARIES[library])
    if (library, ranks) not in outcomes:
        outcomes[library, ranks] = run_suite(launcher, ranks, None)
    plain = outcomes[library, ranks]
    table = tables(launcher.version(), ranks)[name]
    following = preload_environment(launcher, table, tmp_path, TUNER_TUNE_AFTER_US="0")
    tuned = run_suite(launcher, ranks, None, preload=following)
    assert (tuned.ran, tuned.skipped) == (plain.ran, plain.skipped)
    assert {n: why for n, why in tuned.failed.items() if n not in plain.failed} == {}
    assert sum(read_counts(tmp_path / "report").values()) > 0


def test_few_are_excused() -> None:
    assert len(EXACT_CLASS) <= 9
