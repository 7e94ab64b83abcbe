"""Programs that are spawned end as they do without us, and so do those that spawned them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.mpi4py_suite import SHARED_CORES
from tests.support.mpich_suite import preload_tables
from tests.support.preload import preload_environment
from tests.support.waiting import patience
from tuner.launch import Launcher

PARENT = f"""
import sys
from mpi4py import MPI
for _ in range(3):
    MPI.COMM_WORLD.Barrier()
    child = MPI.COMM_SELF.Spawn({sys.executable!r}, sys.argv[1:], 1)
    child.Barrier()
    child.Disconnect()
MPI.COMM_WORLD.Barrier()
print("done")
"""
CHILD = """
import sys
from mpi4py import MPI
if sys.argv[1] != "preloaded":
    from tuner.runtime.control_variables import ControlVariables
    ControlVariables()
parent = MPI.Comm.Get_parent()
if parent:
    parent.Barrier()
    parent.Disconnect()
if sys.argv[1] == "finalizes":
    MPI.Finalize()
"""


@pytest.mark.parametrize("way", ["variables", "finalizes", "preloaded"])
def test_ranks_outlive_what_they_spawn(launcher: Launcher, tmp_path: Path, way: str) -> None:
    parent, child = tmp_path / "parent.py", tmp_path / "child.py"
    parent.write_text(PARENT)
    child.write_text(CHILD)
    table = preload_tables(launcher.version(), 2)["schedule"]
    preload = preload_environment(launcher, table, tmp_path) if way == "preloaded" else {}
    run = launcher.run(
        2,
        [str(parent), str(child), way],
        environment={**SHARED_CORES, **preload},
        timeout=patience(),
    )
    assert run.stdout.split() == ["done", "done"]


def test_a_program_that_finalizes_mpi_itself_ends_silently(
    launcher: Launcher, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(CHILD)
    run = launcher.run(2, [str(program), "finalizes"], environment=SHARED_CORES, timeout=patience())
    assert (run.stdout, run.stderr) == ("", "")
