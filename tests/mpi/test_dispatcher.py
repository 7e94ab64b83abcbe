"""Through the dispatcher every call gives what the library gives."""

import pytest

from tests.bench.product import product
from tuner.runtime.launch import Launcher

SPREAD = 997  # one combination for each algorithm; all of them: python -m tests.bench.product


@pytest.mark.parametrize("p", [2, 3, 4, 5, 8])
def test_open_mpi(launcher: Launcher, p: int) -> None:
    assert product(launcher, p, SPREAD).endswith("all as the plain communicator's")


@pytest.mark.parametrize("p", [2, 3, 4, 5, 8])
def test_mpich(mpich_launcher: Launcher, p: int) -> None:
    assert product(mpich_launcher, p, SPREAD).endswith("all as the plain communicator's")
