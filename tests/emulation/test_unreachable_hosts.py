"""A probe of hosts whose network swallows every packet: nobody refuses, nobody answers."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MPICH_PYTHON
from tests.support.waiting import patience
from tuner.base import processes
from tuner.emulation import namespaces

PROBE = ("-m", "tuner.cli.main", "probe", "run", "--measure", "messages", "--ppn", "1")


@pytest.fixture
def alone() -> Iterator[str]:
    """The network of a host whose cables end in a switch that passes nothing on."""
    name = f"tl{secrets.token_hex(4)}"
    hosts = [f"{name}-{number}" for number in range(3)]
    namespaces.create(hosts, name)
    try:
        yield hosts[0]
    finally:
        namespaces.delete([*hosts, name])


def test_hosts_that_swallow_packets_are_named_and_nothing_stays_behind(
    alone: str, tmp_path: Path
) -> None:
    if shutil.which("ssh") is None or not MPICH_PYTHON.exists():
        pytest.skip("needs ssh and the environment of MPICH")
    others = [namespaces.ip_address(1), namespaces.ip_address(2)]
    launches = [
        subprocess.Popen(
            [
                "ip",
                "netns",
                "exec",
                alone,
                sys.executable,
                *PROBE,
                "--hosts",
                ",".join(others),
                "--library",
                library,
                "--python",
                str(python),
                "--out",
                str(tmp_path / library),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        for library, python in (("openmpi", sys.executable), ("mpich", MPICH_PYTHON))
    ]
    try:
        for launch in launches:
            said = " ".join(launch.communicate(timeout=patience(20))[1].split())
            assert launch.returncode == 1
            assert f"host {others[0]} " in said, said
            assert "cannot be reached" in said
            assert "Traceback" not in said
    finally:
        for launch in launches:
            launch.terminate()
            launch.wait(patience())
    assert not processes.pids_in_namespaces([namespaces.NAMESPACE_DIR / alone])
