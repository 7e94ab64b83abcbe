"""Threads that call collectives at once, on different tuned communicators."""

import pytest

from tests.support.launches import lines_of
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
