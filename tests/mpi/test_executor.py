"""The executor under the real MPI gives what interpreter and verifier say."""

from pathlib import Path

import pytest

from tests.support.waiting import patience
from tuner.launch import Launcher

PROGRAM = Path(__file__).with_name("executor_program.py")
ROOT = PROGRAM.parents[2]


@pytest.mark.representative("sizes0")
@pytest.mark.parametrize("sizes", [("2", "3"), ("4", "5"), ("8",)])
def test_every_algorithm_is_exact(launcher: Launcher, sizes: tuple[str, ...]) -> None:
    ranks = int(sizes[-1])
    run = launcher.run(
        ranks, [str(PROGRAM), *sizes], environment={"PYTHONPATH": str(ROOT)}, timeout=patience(24)
    )
    assert run.returncode == 0, run.stderr
    assert "all exact" in run.stdout
