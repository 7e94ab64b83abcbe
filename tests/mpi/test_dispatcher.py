"""Through the dispatcher every call gives what the library gives."""

import pytest

from tests.bench.dispatch_results import product
from tuner.launch import Launcher

# Every so many calls of each number of ranks; all of them: python -m tests.bench.dispatch_results
SPREADS = [(2, 499), (3, 997), (4, 1999), (5, 1999), (8, 2503)]


@pytest.mark.representative("3-997")
@pytest.mark.parametrize(("p", "every"), SPREADS)
def test_open_mpi(launcher: Launcher, p: int, every: int) -> None:
    assert product(launcher, p, every).endswith("all as the plain communicator's")


@pytest.mark.representative("3-2999")
@pytest.mark.parametrize(("p", "every"), [*SPREADS, (3, 2999)])
def test_mpich(mpich_launcher: Launcher, p: int, every: int) -> None:
    assert product(mpich_launcher, p, every).endswith("all as the plain communicator's")
