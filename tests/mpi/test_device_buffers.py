"""Device buffers on real ranks, with everything but the device itself."""

import pytest

from tests.support.programs import printed
from tuner.launch import Launcher


def test_collectives_on_staged_buffers_are_the_librarys(launcher: Launcher) -> None:
    said = printed(launcher, 3, "collectives_program.py", "pretended")
    assert said.endswith("calls, staged: all equal\n")


@pytest.mark.extended
def test_collectives_on_staged_buffers_under_mpich(mpich_launcher: Launcher) -> None:
    said = printed(mpich_launcher, 2, "collectives_program.py", "pretended")
    assert said.endswith("calls, staged: all equal\n")


@pytest.mark.extended
def test_schedules_run_on_device_memory_that_mpi_takes(launcher: Launcher) -> None:
    said = printed(launcher, 3, "collectives_program.py", "aware")
    assert said.endswith("calls, direct: all equal\n")


@pytest.mark.extended
def test_schedules_run_on_device_memory_under_mpich(mpich_launcher: Launcher) -> None:
    said = printed(mpich_launcher, 2, "collectives_program.py", "aware")
    assert said.endswith("calls, direct: all equal\n")


@pytest.mark.representative("2")
@pytest.mark.parametrize("ranks", [2, 5])
def test_staged_algorithms_go_through_the_host(launcher: Launcher, ranks: int) -> None:
    assert printed(launcher, ranks, "staged_program.py", "").endswith("all through the host\n")


def test_ranks_agree_on_nccl(launcher: Launcher) -> None:
    """Ranks that share a GPU, or have none, all say the same; where they can, it works."""
    said = printed(launcher, 2, "nccl_program.py", "shared")
    assert said.startswith("cannot: rank")
