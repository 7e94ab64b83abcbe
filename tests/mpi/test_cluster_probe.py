"""What a probe of several hosts needs of real ranks: clocks, files, radices."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.waiting import patience
from tuner import mpi_libraries
from tuner.base.errors import ProbeError
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.launch import TEMPLATES, CompletedRun, Hosts, Launcher, LauncherTemplate
from tuner.probe.batches import ExperimentRequest
from tuner.probe.monitor import STARTING_TEXT
from tuner.probe.multi_host import probe_cluster, probe_experiments
from tuner.probe.pointtopoint import exchange_partners
from tuner.probe.probe_spec import ProbeSpec
from tuner.probe.samples_file import SampleWriter
from tuner.rank_programs.probe import NO_SOCKET_PAIR

RADIX = """
import sys
import numpy as np
from mpi4py import MPI
from tuner.runtime.algorithm_control import AlgorithmControl
forcing = AlgorithmControl("openmpi", MPI.COMM_WORLD)
settings = eval(sys.argv[1])
comm = forcing.communicator(settings)
before, after = forcing.hooks(settings)
before()
comm.Bcast(np.zeros(80000, np.uint8), 0)
after()
forcing.release()
"""

EXCHANGE = """
import sys
from mpi4py import MPI
from tuner.probe.pointtopoint import exchange
arm = exchange(MPI.COMM_WORLD, 80000, 3, sys.argv[1] == "ring")
arm.warm_up(), arm.call()
"""


def test_clocks_that_differ_are_brought_together(mpirun: Callable[..., CompletedRun]) -> None:
    run = mpirun(3, ROOT / "tests" / "mpi" / "clock_program.py")
    error, uncertainty = map(float, run.stdout.split())
    assert error <= uncertainty + 1e-6  # seconds, of rounding
    assert uncertainty < 1.0  # where the clocks are a thousand seconds apart


def test_ranks_that_share_cores_keep_no_books_meanwhile(
    mpirun: Callable[..., CompletedRun],
) -> None:
    run = mpirun(2, ROOT / "tests" / "mpi" / "bookkeeping_program.py")
    assert run.stdout.split() == ["2", "0"]


def test_long_calls_are_made_twice_before_three_are_timed(
    mpirun: Callable[..., CompletedRun],
) -> None:
    run = mpirun(2, ROOT / "tests" / "mpi" / "long_calls_program.py")
    assert json.loads(run.stdout) == [[5, 3]] * 2


@pytest.mark.extended
def test_ranks_that_are_ready_late_get_a_longer_lead(mpirun: Callable[..., CompletedRun]) -> None:
    run = mpirun(2, ROOT / "tests" / "mpi" / "late_rank_program.py")
    assert run.stdout.split() == ["True"]


@pytest.mark.extended
def test_of_a_ladder_that_takes_too_long_the_first_arms_are_left(
    mpirun: Callable[..., CompletedRun],
) -> None:
    run = mpirun(2, ROOT / "tests" / "mpi" / "latency_fit_program.py")
    assert json.loads(run.stdout) == [[0, 2, 3]] * 2


@pytest.mark.representative("2-peers0")
@pytest.mark.parametrize(("radix", "peers"), [(2, {1, 2, 4}), (4, {1, 2, 3, 4})])
def test_the_radix_of_a_knomial_tree_takes_effect(radix: int, peers: set[int]) -> None:
    """The library's own traffic monitor shows whom the root sends the message to."""
    forced = mpi_libraries.openmpi.settings(
        Collective.BCAST, AlgorithmChoice("knomial", {"radix": radix})
    )
    run = Launcher.find("openmpi").run(
        6,
        ["-c", RADIX, repr(forced)],
        settings={
            "coll_tuned_use_dynamic_rules": "1",
            "pml_monitoring_enable": "2",
            "pml_monitoring_enable_output": "1",
        },
    )
    words = [line.split() for line in run.stdout.splitlines()]
    assert {int(w[2]) for w in words if w[:2] == ["I", "0"] and int(w[3]) >= 80000} == peers


FAN = """
from mpi4py import MPI
from tuner.probe.pointtopoint import fan_out
for arm in (fan_out(MPI.COMM_WORLD, 80000, 2), fan_out(MPI.COMM_WORLD, 80000, 3, 1)):
    for act in (arm.warm_up, arm.call, arm.after):
        act()
"""


@pytest.mark.extended
def test_a_fan_of_fewer_peers_than_ranks_comes_to_its_end() -> None:
    assert Launcher.find("openmpi").run(4, ["-c", FAN], timeout=patience()).returncode == 0


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize(
    ("manner", "ranks"), [("pairs", 2), ("pairs", 4), ("pairs", 6), ("ring", 3), ("ring", 4)]
)
def test_who_sends_in_an_exchange_is_received_from(manner: str, ranks: int, row: int) -> None:
    found = [exchange_partners(rank, ranks, manner == "ring", row) for rank in range(ranks)]
    assert all(found[to][1] == rank != to for rank, (to, _) in enumerate(found))
    assert all((to == source) == (manner == "pairs") for to, source in found)


def test_partners_of_an_exchange_change_in_each_four() -> None:
    rows = [
        [exchange_partners(rank, 6, ring=False, exchange_number=row)[0] for rank in range(6)]
        for row in range(3)
    ]
    assert rows == [[1, 0, 3, 2, 5, 4], [2, 3, 0, 1, 5, 4], [1, 0, 3, 2, 5, 4]]


@pytest.mark.representative("ring-3")
@pytest.mark.parametrize(("manner", "ranks"), [("pairs", 4), ("pairs", 6), ("ring", 3)])
def test_rows_of_exchanges_come_to_their_end(manner: str, ranks: int) -> None:
    run = Launcher.find("openmpi").run(ranks, ["-c", EXCHANGE, manner], timeout=patience())
    assert run.returncode == 0


def test_a_point_that_finds_no_room_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """As on a full disk, after a part of it was written."""
    import resource
    import signal

    path = tmp_path / "m.ndjson"
    path.write_text("header\n")
    results = SampleWriter(path)
    results.append("whole\n")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20, usual[1]))
        with pytest.raises(ProbeError, match=r"m\.ndjson: cannot be written: .*is kept"):
            results.append("far too long for what is left\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert path.read_text() == "header\nwhole\n"


def test_ranks_that_outlived_their_launcher_write_no_more(tmp_path: Path) -> None:
    path = tmp_path / "m.ndjson"
    path.write_text("header\n")
    results = SampleWriter(path)
    fresh = tmp_path / "fresh"
    fresh.write_text("header of the run that resumes\n")
    fresh.replace(path)
    with pytest.raises(ProbeError, match="another run"):
        results.append("late\n")
    assert path.read_text() == "header of the run that resumes\n"


*WORDS, PROGRAM = TEMPLATES["openmpi"].words
UNBOUND = LauncherTemplate((*WORDS, "--bind-to", "none", PROGRAM))


@pytest.mark.extended
def test_a_round_does_not_look_again_for_what_a_host_lacks(tmp_path: Path) -> None:
    """Of two ranks that are bound to no socket, none are on different ones."""
    out, launcher = tmp_path / "m.ndjson", Launcher.find("openmpi", template=UNBOUND)
    request = ProbeSpec("openmpi", Hosts(("localhost",)), 2, parts=("messages",), sizes=(4096,))
    call = ExperimentRequest(Collective.BCAST, 1, 2, 4096, (AlgorithmChoice("linear"),))
    first = probe_cluster(out, request, launcher, budget=4.0)
    assert f"pingpong cross_socket 1x2: {NO_SOCKET_PAIR}" in first.provenance["excluded"]
    begun: list[str] = []
    second = probe_experiments(
        out, request, launcher, [call], budget=4.0, on_progress=lambda now: begun.append(now.text)
    )
    assert [text for text in begun if text != STARTING_TEXT] == ["collective bcast 1x2 4096 B"]
    assert {one.algorithm for one in second.series if one.launch == 1} == {"default", "linear"}
    assert second.provenance["excluded"] == first.provenance["excluded"]
