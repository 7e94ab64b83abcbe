"""A barrier follows a table and remains a barrier."""

from pathlib import Path

from tests.support.waiting import patience
from tuner import algorithms
from tuner.core.collective import Collective
from tuner.launch import Hosts, Launcher
from tuner.mpi_libraries.openmpi import ALGORITHMS
from tuner.probe.multi_host import probe_cluster
from tuner.probe.probe_spec import ALL_SCHEDULES, ProbeSpec

PROGRAM = Path(__file__).with_name("barrier_program.py")
ROOT = PROGRAM.parents[2]
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "MPI4PY_RC_THREAD_LEVEL": "serialized",  # else MPICH's algorithms are not forced
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",
}


def held(launcher: Launcher) -> bool:
    """Return whether all algorithms hold, with no rule left to the library."""
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


def test_a_probe_measures_schedules_and_algorithms(launcher: Launcher, tmp_path: Path) -> None:
    request = ProbeSpec(
        "openmpi",
        Hosts(("localhost",)),
        2,
        parts=("collectives",),
        sizes=(4096,),
        collectives=(Collective.BARRIER,),
        schedules=(ALL_SCHEDULES,),
    )
    found = probe_cluster(tmp_path / "m.ndjson", request, launcher, budget=patience(6))
    measured = {(one.kind, one.algorithm) for one in found.series if one.subject == "barrier"}
    ours = algorithms.algorithm_names(Collective.BARRIER, {"one_node"})
    assert measured >= {("schedule", name) for name in ours}
    assert measured >= {("collective", name) for name in ALGORITHMS[Collective.BARRIER]}
    assert {one.nbytes for one in found.series if one.subject == "barrier"} == {4}
