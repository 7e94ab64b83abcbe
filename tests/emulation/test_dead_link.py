"""A probe and a host that stops answering: its link goes down, nothing is killed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import patience, until
from tuner.cli.main import main
from tuner.core.measurement import read_partial
from tuner.emulation import cluster_id_for

TUNER = (sys.executable, "-m", "tuner.cli.main")
PROBE = (
    "probe",
    "run",
    "--hosts",
    "node0,node1,node2,node3",
    "--budget",
    "200s",
    "--measure",
    "messages",
    "--sizes",
    "1MiB",
    "--out",
    "m.ndjson",
)


@pytest.fixture
def up(topology: Path) -> Iterator[str]:
    """A flat cluster of its own; the beginning of its names."""
    assert main(["emulate", "up", str(topology)]) == 0
    try:
        yield cluster_id_for(topology)
    finally:
        assert main(["emulate", "down", str(topology)]) == 0


def measured(path: Path) -> int:
    return len(read_partial(path)[1]) if path.exists() else 0


# node1 is being measured on. node3 waits quietly, until others come to need it.
@pytest.mark.parametrize("host", ["node1", "node3"])
def test_a_host_whose_link_goes_down_ends_the_probe_with_one_sentence(
    topology: Path, up: str, host: str
) -> None:
    folder = topology.parent
    out = folder / "m.ndjson"
    command = [*TUNER, "emulate", "run", str(topology), "--", *TUNER, *PROBE]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as running:
        until(lambda: running.poll() is not None or measured(out) >= 5)
        before = measured(out)
        subprocess.run(["ip", "-n", f"{up}-{host}", "link", "set", "eth0", "down"], check=True)
        said = running.communicate(timeout=patience(60))[1]
    assert before >= 5
    assert running.returncode == 1
    assert "Traceback" not in said
    assert re.search(f"host {host} (stopped answering|was lost)", " ".join(said.split())), said
    assert "points are kept in" in " ".join(said.split()), said
    _, series, ended = read_partial(out)
    assert len(series) >= before
    assert not ended
