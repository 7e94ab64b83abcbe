"""A barrier follows a table and remains a barrier."""

from pathlib import Path

from tests.support.waiting import patience
from tuner.launch import Launcher

PROGRAM = Path(__file__).with_name("barrier_program.py")
ROOT = PROGRAM.parents[2]
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "MPI4PY_RC_THREAD_LEVEL": "serialized",  # else MPICH's algorithms are not forced
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",
}


def held(launcher: Launcher) -> bool:
    """Whether all algorithms hold, with no rule left to the library."""
    run = launcher.run(
        4, [str(PROGRAM), "2", "3", "4"], environment=ENVIRONMENT, timeout=patience(8)
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "left to the library" not in run.stderr
    return "barriers held" in run.stdout


def test_open_mpi(launcher: Launcher) -> None:
    assert held(launcher)


def test_mpich(mpich_launcher: Launcher) -> None:
    assert held(mpich_launcher)
