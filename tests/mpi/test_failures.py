"""Whatever fails in `tune`, the program gets the results that it would get without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.waiting import patience
from tuner.launch import Launcher

PROGRAM = Path(__file__).with_name("failures_program.py")
ROOT = PROGRAM.parents[2]
LIBRARIES = [("launcher", 3), ("mpich_launcher", 2)]
LEAST = 40  # kinds of failure


@pytest.mark.representative("openmpi")
@pytest.mark.parametrize(("fixture", "ranks"), LIBRARIES, ids=["openmpi", "mpich"])
def test_failures_never_reach_a_program(
    request: pytest.FixtureRequest, fixture: str, ranks: int
) -> None:
    launcher: Launcher = request.getfixturevalue(fixture)
    run = launcher.run(
        ranks, [str(PROGRAM)], timeout=patience(30), environment={"PYTHONPATH": str(ROOT)}
    )
    lines = run.stdout.splitlines()
    assert [line for line in lines if not line.endswith(": fine")] == []
    assert len(lines) >= 2 * LEAST  # each on one rank alone, and on all


@pytest.mark.representative("tuner.core.table-openmpi")
@pytest.mark.parametrize(("fixture", "ranks"), LIBRARIES, ids=["openmpi", "mpich"])
@pytest.mark.parametrize("module", ["numpy", "tuner.runtime.dispatcher", "tuner.core.table"])
def test_a_module_that_cannot_be_imported_ends_no_program(
    request: pytest.FixtureRequest, fixture: str, ranks: int, module: str, tmp_path: Path
) -> None:
    """Under `tuner.run`; the last rank alone lacks the module."""
    program = tmp_path / "program.py"
    program.write_text("""
from mpi4py import MPI

MPI.COMM_WORLD.Dup().Free()
ranks, word = MPI.COMM_WORLD.allreduce(1), MPI.COMM_WORLD.bcast("right")
if MPI.COMM_WORLD.rank == 0:
    print(ranks, word)
""")
    hidden = tmp_path / "hidden.py"
    hidden.write_text(f"""
import sys
from mpi4py import MPI

if MPI.COMM_WORLD.rank == MPI.COMM_WORLD.size - 1:
    sys.modules[{module!r}] = None
from tuner.run import main
main(["--table", "nothing.json", {str(program)!r}])
""")
    launcher: Launcher = request.getfixturevalue(fixture)
    run = launcher.run(ranks, [str(hidden)], timeout=patience())
    assert run.stdout == f"{ranks} right\n"
    said = [line for line in run.stderr.splitlines() if line.startswith("tuner: ")]
    assert len(said) == 1
    assert module in said[0]
