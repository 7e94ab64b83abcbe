"""Describe the machine of a probe and the circumstances of the run."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tuner.base.processes import available_cores
from tuner.core.measurement import Cluster
from tuner.launch import PACKAGE_DIR

GIB = 2**30
LOCALHOST = "localhost"  # RFC 6761, section 6.3: this computer, wherever it is looked up


def local_cluster() -> Cluster:
    """Return this computer as a cluster of one node."""
    return Cluster(
        name=platform.node(),
        nodes=1,
        cores=available_cores(),
        cpu=cpu_model(),
        memory=memory_bytes(),
    )


def is_this_computer(cluster: Cluster, hosts: Collection[str] = ()) -> bool:
    """Return whether a cluster is this computer, also as the only host of a probe of hosts.

    hosts   names that its hosts gave themselves, where they are known: these alone decide then

    Such a probe names the cluster by what was given for the host, and counts all of its processors.
    """
    here = local_cluster()
    is_named = here.name in hosts if hosts else cluster.name in (here.name, LOCALHOST)
    counted = cluster.cores in (here.cores, os.cpu_count())
    return is_named and counted and replace(cluster, name=here.name, cores=here.cores) == here


def collect_provenance(launcher_version: str, python: Path) -> dict[str, Any]:
    """Return the circumstances of the measurements; nothing in them identifies the cluster."""
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "host": platform.node(),
        "kernel": platform.release(),
        "clock": "CLOCK_MONOTONIC ("
        + _read(
            "/sys/devices/system/clocksource/clocksource0/current_clocksource", "unknown source"
        )
        + ")",
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "launcher": launcher_version,
        "rank_python": str(python),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "revision": _git_revision(),
    }


def memory_bytes() -> int:
    """Return the memory in bytes, rounded to GiB.

    The part that the kernel reserves changes from boot to boot.
    """
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return round(pages / GIB) * GIB


def cpu_model() -> str:
    """Return the model name of the processor."""
    match = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo", ""), re.MULTILINE)
    return match[1].strip() if match else platform.machine()


def _read(path: str, default: str) -> str:
    file = Path(path)
    return file.read_text(encoding="utf-8").strip() if file.is_file() else default


def _git_revision() -> str | None:
    """Return the commit of this package's checkout; None if it is installed or git is missing."""
    if not (PACKAGE_DIR.parent / ".git").exists() or shutil.which("git") is None:
        return None
    answer = subprocess.run(
        ["git", "-C", str(PACKAGE_DIR.parent), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip() or None
