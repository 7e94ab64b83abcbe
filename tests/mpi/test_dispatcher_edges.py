"""Where a tuned communicator might be told from the plain one."""

from pathlib import Path

import pytest

from tests.support.launches import lines_of
from tuner.launch import Launcher

PROGRAM = Path(__file__).with_name("boundary_calls_program.py")
ROOT = PROGRAM.parents[2]
CHECKS = [
    line.removeprefix("def ").partition("(")[0]
    for line in PROGRAM.read_text().splitlines()
    if line.startswith("def check_")
]


def findings(launcher: Launcher, ranks: int, library: str) -> dict[str, str]:
    """What each check says."""
    lines = lines_of(launcher, ranks, library, PROGRAM.name)
    return dict(line.split(": ", 1) for line in lines if line.startswith("check_"))


@pytest.fixture(scope="module")
def said(launcher: Launcher) -> dict[str, str]:
    return findings(launcher, 3, "openmpi")


@pytest.fixture(scope="module")
def mpich_said(mpich_launcher: Launcher) -> dict[str, str]:
    return findings(mpich_launcher, 2, "mpich")


@pytest.mark.parametrize("check", CHECKS)
def test_like_the_plain_communicator(said: dict[str, str], check: str) -> None:
    assert said[check] == "fine"


@pytest.mark.extended
@pytest.mark.parametrize("check", CHECKS)
def test_like_the_plain_communicator_under_mpich(mpich_said: dict[str, str], check: str) -> None:
    assert mpich_said[check] == "fine"


def test_refusals_are_mpi4pys(launcher: Launcher) -> None:
    assert lines_of(launcher, 2, "openmpi", "mpi_errors_program.py") == ["502 calls"]


def test_refusals_are_mpi4pys_under_mpich(mpich_launcher: Launcher) -> None:
    assert lines_of(mpich_launcher, 2, "mpich", "mpi_errors_program.py") == ["502 calls"]


def test_ranks_describe_their_parts_each_in_its_own_way(launcher: Launcher) -> None:
    assert lines_of(launcher, 3, "openmpi", "mixed_memory_program.py", "1", "20") == ["160 calls"]


def test_ranks_describe_their_parts_so_under_mpich(mpich_launcher: Launcher) -> None:
    assert lines_of(mpich_launcher, 2, "mpich", "mixed_memory_program.py", "1", "20") == [
        "160 calls"
    ]
