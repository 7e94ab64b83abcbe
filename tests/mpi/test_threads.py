"""Threads that call collectives at once, on different tuned communicators."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.launches import lines_of
from tests.support.waiting import patience
from tuner.launch import Launcher


@pytest.mark.extended
@pytest.mark.parametrize("ranks", [2, 3])
def test_threads_do_not_force_one_anothers_algorithms(launcher: Launcher, ranks: int) -> None:
    (said,) = lines_of(launcher, ranks, "openmpi", "threads_program.py")
    if said.startswith("level"):
        pytest.skip(f"this Open MPI allows one thread at a time: {said}")
    assert said == "fine"


@pytest.mark.representative("3")
@pytest.mark.parametrize("ranks", [3, 16])
def test_every_thread_is_alone_in_the_end(launcher: Launcher, ranks: int) -> None:
    """However many ranks have to agree which it is."""
    (said,) = lines_of(launcher, ranks, "openmpi", "collective_lock_program.py")
    if said.startswith("level"):
        pytest.skip(f"this Open MPI allows one thread at a time: {said}")
    assert said == "fine"


def found_by(launcher: Launcher, threads: int, *levels: str) -> dict[str, Any]:
    """Return what the ranks found, one for each thread level."""
    program = str(Path(__file__).with_name("thread_levels_program.py"))
    run = launcher.run(len(levels), [program, str(threads), *levels], timeout=patience())
    found: dict[str, Any] = json.loads(run.stdout)
    assert found["wrong"] == [0] * len(levels)
    return found


def assert_not_forced(found: dict[str, Any]) -> None:
    """Check that all ranks leave every call to the library, and that the log says so once."""
    assert found["forced"] == [0, 0]
    (line,) = found["log"]
    assert "2 rules are left to the library" in line
    assert "MPI_THREAD_MULTIPLE" in line
    assert "--thread-level serialized" in line


def test_variables_of_the_process_are_not_forced_where_threads_call_at_once(
    mpich_launcher: Launcher,
) -> None:
    assert_not_forced(found_by(mpich_launcher, 4, "multiple", "multiple"))


def test_one_rank_that_may_have_threads_decides_for_all(launcher: Launcher) -> None:
    """MPICH itself fails where ranks differ so; Open MPI reads the radix at each call."""
    assert_not_forced(found_by(launcher, 1, "serialized", "multiple"))


@pytest.mark.parametrize("library", ["launcher", "mpich_launcher"])
def test_variables_are_forced_where_one_thread_at_a_time_calls(
    request: pytest.FixtureRequest, library: str
) -> None:
    found = found_by(request.getfixturevalue(library), 1, "serialized", "serialized")
    assert min(found["forced"]) > 0
    assert found["log"] == []
