"""The backend of PyTorch under torchrun, an agent on each of two hosts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.waiting import patience
from tuner.base import processes
from tuner.base.errors import ProbeError
from tuner.emulation import EmulatedCluster, launch
from tuner.launch import Launcher

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("TUNER_TORCH_PYTHON", ROOT / ".venv-torch" / "bin" / "python"))
PROGRAM = ROOT / "tests" / "torch" / "reporting_program.py"
HOSTS = ("node0", "node1")
PORT = 29400


@pytest.fixture(scope="module", autouse=True)
def torch_is_there() -> None:
    try:
        Launcher.find("openmpi", PYTHON)
    except ProbeError as reason:
        pytest.skip(str(reason))


def agents(cluster: EmulatedCluster, ranks: int, mark: str) -> list[subprocess.Popen[str]]:
    """Start an agent with `ranks` processes on each host."""
    words = [str(PYTHON.with_name("torchrun")), "--nnodes", str(len(HOSTS))]
    words += ["--nproc-per-node", str(ranks), "--rdzv-backend", "c10d", "--rdzv-id", mark]
    words += ["--rdzv-endpoint", f"{HOSTS[0]}:{PORT}", str(PROGRAM)]
    variables = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", launch.RUN_VARIABLE: mark}
    return [
        subprocess.Popen(
            [*launch.host_command(cluster, host), *words],
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for host in HOSTS
    ]


@pytest.mark.parametrize("ranks", [1, 2])
def test_agents_of_two_hosts_make_one_group(flat: EmulatedCluster, ranks: int) -> None:
    mark = f"torchrun {os.getpid()} {ranks}"
    started = agents(flat, ranks, mark)
    try:
        said = [agent.communicate(timeout=patience(24)) for agent in started]
    finally:
        processes.terminate(lambda: processes.pids_with_variable(launch.RUN_VARIABLE, mark))
    assert [agent.returncode for agent in started] == [0, 0], said
    expected = [(rank, str(rank % ranks)) for rank in range(2 * ranks)]
    total = sum(range(2 * ranks + 1))
    assert f"{expected} {total}" in "".join(out for out, _ in said)
