"""Through the dispatcher every call gives what the library gives."""

from pathlib import Path

import pytest

from tuner.libraries import mpich
from tuner.runtime.launch import Launcher

PROGRAM = ["-m", "mpi4py", "-m", "tests.mpi.dispatcher_program"]
ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {name: setting for name, (setting, _) in mpich.PRECONDITIONS.items()}


def agrees(launcher: Launcher, every: int, sizes: tuple[str, ...]) -> str:
    """What the program says of communicators of these sizes."""
    environment = {"PYTHONPATH": str(ROOT), **SETTINGS}
    command = [*PROGRAM, str(every), *sizes]
    return launcher.run(int(sizes[-1]), command, environment=environment, timeout=280.0).stdout


@pytest.mark.parametrize(("every", "sizes"), [(43, ("2", "3", "4", "5")), (193, ("8",))])
def test_open_mpi(launcher: Launcher, every: int, sizes: tuple[str, ...]) -> None:
    assert "all as the plain communicator's" in agrees(launcher, every, sizes)


def test_mpich(mpich_launcher: Launcher) -> None:
    assert "all as the plain communicator's" in agrees(mpich_launcher, 43, ("2",))
