"""Tuning an emulated cluster in little time: there is always a table, and nothing is lost."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import MPICH_PYTHON
from tests.emulation.topologies import private_cluster
from tests.support.waiting import patience, until
from tuner.core.measurement import read_measurements, read_partial
from tuner.core.table import read_table
from tuner.emulation import EmulatedCluster, launch

SLOW = "{name: slow3, nodes: 3, latency: 400us, bandwidth: 20Mbit/s}"
TUNE = (
    sys.executable,
    "-m",
    "tuner.cli.main",
    "tune",
    "--hosts",
    "node0,node1,node2",
    "--ppn",
    "2",
    "--topology",
    "slow.yaml",
    "--measurements",
    "m.ndjson",
    "--out",
    "t.json",
)
BAR = re.compile(r"measuring \w+ on 3 hosts: +(\d+)%")
KEPT = re.compile(r"kept (\d+) of (\d+) message points from the earlier run")


@pytest.fixture
def cluster(tmp_path: Path) -> EmulatedCluster:
    (tmp_path / "slow.yaml").write_text(SLOW)
    return private_cluster(SLOW)


def measured(path: Path) -> int:
    return len(read_partial(path)[1]) if path.exists() else 0


def tuned(cluster: EmulatedCluster, folder: Path, *words: str) -> tuple[str, float]:
    """What a run that must succeed said, and the seconds that it took."""
    command = " ".join([*TUNE, *words])
    begun = time.monotonic()
    status = launch.run(
        cluster, ["sh", "-c", f"cd {folder}; {command} > out.txt 2> said.txt"], timeout=patience()
    )
    took = time.monotonic() - begun
    said = " ".join((folder / "said.txt").read_text().split())
    assert status == 0, said
    return said, took


@pytest.mark.parametrize("library", ["openmpi", "mpich"])
def test_a_short_budget_gives_a_table_in_time(
    cluster: EmulatedCluster, tmp_path: Path, library: str
) -> None:
    if library == "mpich" and not MPICH_PYTHON.exists():
        pytest.skip("needs the environment of MPICH")
    python = ["--python", str(MPICH_PYTHON)] if library == "mpich" else []
    cluster.up()
    try:
        _, took = tuned(cluster, tmp_path, "--library", library, *python, "--budget", "15s")
    finally:
        cluster.down()
    assert took < 15 * 1.1 + 5
    table = read_table(tmp_path / "t.json")
    assert table.library.startswith(library)
    out = (tmp_path / "out.txt").read_text()
    gained = any(not rule.choice.is_default for rule in table.rules)
    assert gained == ("nothing gained: the default is kept everywhere" not in out)
    assert read_measurements(tmp_path / "m.ndjson").series


def test_an_interrupted_run_goes_on_where_it_was(cluster: EmulatedCluster, tmp_path: Path) -> None:
    """Interrupted while messages are measured, it keeps these, and its bar begins where it was."""
    cluster.up()
    try:
        words = [
            *launch.host_command(cluster, "node0"),
            "sh",
            "-c",
            f"cd {tmp_path}; exec {' '.join(TUNE)} --budget 40s 2> first.txt",
        ]
        first = subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True)
        until(lambda: first.poll() is not None or measured(tmp_path / "m.ndjson") >= 5)
        os.killpg(first.pid, signal.SIGINT)
        assert first.wait(patience()) == 130
        said, took = tuned(cluster, tmp_path, "--budget", "40s")
    finally:
        cluster.down()
    points, planned = map(int, KEPT.findall(said)[0])
    assert 0 < points < planned
    before = [int(part) for part in BAR.findall((tmp_path / "first.txt").read_text())]
    after = [int(part) for part in BAR.findall(said)]
    assert before[-1] - 2 <= after[0] <= 60
    assert after == sorted(after)
    assert took < 40 * 1.1 + 5 - 8  # the first run took more than eight seconds of the budget
    assert read_table(tmp_path / "t.json").rules


def test_a_budget_for_nothing_is_refused_before_any_rank_is_started(tmp_path: Path) -> None:
    (tmp_path / "slow.yaml").write_text(SLOW)
    done = subprocess.run(
        [*TUNE, "--budget", "1s"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    said = " ".join(done.stderr.split())
    assert re.search(r"1s do not suffice to measure anything: .* give --budget \d+s or more", said)
    assert not (tmp_path / "m.ndjson").exists()
