"""Real MPI libraries run over the hosts of an emulated cluster as over a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.support.prepared import AWKWARD, SHOWS
from tests.support.waiting import patience
from tuner.base import processes
from tuner.emulation import EmulatedCluster, launch
from tuner.launch import Launcher

PROGRAM = Path(__file__).with_name("programs") / "hosts.py"
WAITING = PROGRAM.with_name("waiting.py")
SLEEPS = PROGRAM.with_name("sleeps.py")


@pytest.fixture(params=["openmpi", "mpich"])
def starter(request: pytest.FixtureRequest) -> Launcher:
    names = {"openmpi": "launcher", "mpich": "mpich_launcher"}
    found: Launcher = request.getfixturevalue(names[request.param])
    return found


def answer(words: list[str], starter: Launcher, program: Path = PROGRAM) -> dict[str, Any]:
    """What rank 0 printed; the launch is ended if it takes too long."""
    mark = f"{os.getpid()} {starter.library}"
    variables = {**os.environ, launch.RUN_VARIABLE: mark}
    command = [*words, str(starter.python), str(program)]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) as running:
        try:
            text = running.communicate(timeout=patience())[0]
        finally:
            processes.terminate(lambda: processes.pids_with_variable(launch.RUN_VARIABLE, mark))
    assert running.returncode == 0
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    return found


@pytest.mark.parametrize("ppn", [1, 2])
def test_ranks_of_all_hosts_reduce_together(
    flat: EmulatedCluster, starter: Launcher, ppn: int
) -> None:
    before = flat.status().counters
    words = launch.launch_command(flat, starter.library, starter.executable, 4 * ppn, ppn)
    said = answer(words, starter)
    after = flat.status().counters
    assert said["names"] == [host for host in flat.network.hosts for _ in range(ppn)]
    assert said["beside"] == [ppn] * 4 * ppn
    assert all(said["right"])
    assert before is not None
    assert after is not None
    for host in flat.network.hosts:
        crossed = after.nbytes(host, "switch") - before.nbytes(host, "switch")
        assert crossed > 8 * 30_000 / 4


def test_a_bare_launcher_on_the_first_host_reaches_all(
    flat: EmulatedCluster, starter: Launcher, capfd: pytest.CaptureFixture[str]
) -> None:
    command = [starter.executable, "-n", "8", starter.python, PROGRAM]
    assert launch.run(flat, [*map(str, command)], ppn=2, timeout=patience()) == 0
    said = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert said["names"] == [host for host in flat.network.hosts for _ in range(2)]
    assert all(said["right"])


def test_fewer_ranks_than_hosts(racks: EmulatedCluster, starter: Launcher) -> None:
    words = launch.launch_command(racks, starter.library, starter.executable, 3, 2)
    assert answer(words, starter)["names"] == ["a", "a", "b"]


def test_ranks_that_share_a_host_look_into_its_memory_more_often(
    flat: EmulatedCluster, starter: Launcher
) -> None:
    """What a launch is like its ranks find out themselves, however it was started."""
    alone, together = (
        answer(
            launch.launch_command(flat, starter.library, starter.executable, 2, ppn),
            starter,
            WAITING,
        )["sleeps"]
        for ppn in (1, 2)
    )
    assert 100 < alone < together / 4


def test_a_rank_that_waits_looks_again_soon_at_first(
    flat: EmulatedCluster, starter: Launcher
) -> None:
    """The library may have to finish what it just sent, and no descriptor tells that it can."""
    words = launch.launch_command(flat, starter.library, starter.executable, 2, 1)
    first, *_, last = answer(words, starter, SLEEPS)["sleeps"]
    assert 2 * first < last


def test_variables_reach_the_ranks_of_all_hosts(flat: EmulatedCluster, starter: Launcher) -> None:
    """Behind our library stands the one that every process of an emulated host has."""
    ranks = len(flat.network.hosts)
    first = launch.host_command(flat, flat.network.hosts[0])
    words = launch.launch_command(flat, starter.library, starter.executable, ranks)[len(first) :]
    given = {"LD_PRELOAD": "/no/library.so", "TUNER_FLAT_TABLE": AWKWARD}
    prepare = [sys.executable, "-P", "-m", "tests.support.prepared"]
    command = [
        *first,
        *prepare,
        *(f"{name}={value}" for name, value in given.items()),
        "--",
        *words,
    ]
    ran = subprocess.run(
        [*command, str(starter.python), str(SHOWS), *given],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert [rank["TUNER_FLAT_TABLE"] for rank in said] == [AWKWARD] * ranks
    assert all(rank["LD_PRELOAD"].startswith("/no/library.so") for rank in said)
