"""Emulated clusters come up and go down whole, and leave nothing behind, whatever happens."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulation.topologies import FLAT, RACKS, private_cluster
from tests.support.waiting import expiring, patience
from tuner.base import processes
from tuner.base.errors import InputError
from tuner.cli.main import main
from tuner.emulation import EmulatedCluster, cluster_id_for, emulated_network, launch, namespaces
from tuner.machines.topology_files import load_topology, parse_topology

TUNER = [sys.executable, "-m", "tuner.cli.main"]
SLEEPS = "import os, subprocess, time; subprocess.Popen(['sleep', '600']); print('on', flush=True);"


def traces(prefix: str) -> list[str]:
    """Return every part of an emulated cluster that is on this computer."""
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    left = [line for line in mounts if f"/{prefix}" in line] + namespaces.list_namespaces(prefix)
    left += [str(path) for path in Path("/run/tuner-emulation").glob(f"{prefix}*")]
    inside = processes.pids_with_variable(
        "TUNER_EMULATED_CLUSTER", f"/run/tuner-emulation/{prefix}"
    )
    return left + [
        str(process) for process in inside | processes.pids_with_arguments(f"{prefix}/table")
    ]


@pytest.fixture
def cluster() -> Iterator[EmulatedCluster]:
    """Not up; whatever the test makes of it is taken down."""
    cluster = private_cluster(FLAT)
    yield cluster
    cluster.down()
    assert traces(cluster.cluster_id) == []


def test_up_and_down_twice_are_up_and_down(cluster: EmulatedCluster) -> None:
    assert not cluster.status().is_partial
    assert [cluster.up(), cluster.up()] == [True, False]
    assert cluster.status().up
    assert [cluster.down(), cluster.down()] == [True, False]
    assert traces(cluster.cluster_id) == []


def test_a_cluster_of_which_something_is_missing_is_made_anew(cluster: EmulatedCluster) -> None:
    cluster.up()
    namespaces.delete([f"{cluster.cluster_id}-{cluster.network.hosts[2]}"])
    status = cluster.status()
    assert status.is_partial
    assert not status.up
    assert cluster.up()
    assert cluster.status().up


def test_another_network_under_the_same_prefix_is_refused(cluster: EmulatedCluster) -> None:
    cluster.up()
    other = EmulatedCluster(cluster.cluster_id, emulated_network(parse_topology(RACKS)[1]))
    with pytest.raises(InputError, match=f"the cluster {cluster.cluster_id} .* take it down first"):
        other.up()
    assert cluster.status().up


def test_what_cannot_be_finished_is_taken_away(
    cluster: EmulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.emulation.namespaces.ROUTE_OPTIONS", "nonsense")
    with pytest.raises(InputError, match="refuses what an emulated cluster needs"):
        cluster.up()
    assert traces(cluster.cluster_id) == []


def test_two_clusters_live_side_by_side(cluster: EmulatedCluster, flat: EmulatedCluster) -> None:
    cluster.up()
    command = ["sh", "-c", "ip route get 10.77.0.2"]
    assert launch.run(cluster, command, timeout=patience()) == 0
    cluster.down()
    assert flat.status().up


def test_down_ends_what_runs_on_the_hosts(cluster: EmulatedCluster) -> None:
    cluster.up()
    words = launch.host_command(cluster, cluster.network.hosts[1])
    with subprocess.Popen([*words, "setsid", "sleep", "600"]) as running:
        cluster.down()
        assert running.wait(patience()) != 0


def test_the_exit_status_is_that_of_the_command(flat: EmulatedCluster) -> None:
    assert launch.run(flat, ["sh", "-c", "exit 7"], timeout=patience()) == 7
    assert launch.run(flat, ["sh", "-c", "kill -9 $$"], timeout=patience()) == 137


def test_a_command_that_leaves_something_behind_or_does_not_end(flat: EmulatedCluster) -> None:
    began = set(processes.pids_with_variable("TUNER_EMULATED_CLUSTER", str(flat.directory)))
    assert launch.run(flat, ["sh", "-c", "setsid sleep 600 & exit 0"], timeout=patience()) == 0
    with pytest.raises(InputError, match=r"sleep did not end within 0\.2 s and was ended"):
        launch.run(flat, ["sleep", "600"], timeout=expiring(0.2))
    assert processes.pids_with_variable("TUNER_EMULATED_CLUSTER", str(flat.directory)) == began


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_takes_down_what_it_brought_up(
    topology: Path, number: signal.Signals
) -> None:
    prefix = cluster_id_for(topology)
    program = [sys.executable, "-c", SLEEPS + "time.sleep(600)"]
    with subprocess.Popen(
        [*TUNER, "emulate", "run", str(topology), "--", *program], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "on\n"
        running.send_signal(number)
        assert running.wait(patience()) == 128 + number
    assert traces(prefix) == []


def test_a_run_that_is_killed_leaves_a_cluster_that_down_removes(topology: Path) -> None:
    prefix = cluster_id_for(topology)
    with subprocess.Popen(
        [*TUNER, "emulate", "run", str(topology), "--", "sh", "-c", "echo on; sleep 600"],
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "on\n"
        running.kill()
    assert main(["emulate", "down", str(topology)]) == 0
    assert traces(prefix) == []


def test_run_leaves_a_cluster_up_that_was_up(topology: Path) -> None:
    cluster = EmulatedCluster(cluster_id_for(topology), emulated_network(load_topology(topology)))
    assert main(["emulate", "up", str(topology)]) == 0
    try:
        assert main(["emulate", "run", str(topology), "--", "true"]) == 0
        assert cluster.status().up
    finally:
        assert main(["emulate", "down", str(topology)]) == 0
    assert traces(cluster.cluster_id) == []
