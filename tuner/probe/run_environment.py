"""Collect the circumstances of a run, once, on the hosts of the ranks (rank side)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mpi4py import MPI

from tuner.probe.clock import SharedClock
from tuner.probe.probed_machine import cpu_model, memory_bytes
from tuner.probe.rank_layout import RankLayout

VARIABLE_PREFIXES = (
    "OMPI_MCA_",
    "PRTE_MCA_",
    "PMIX_MCA_",
    "MPIR_",
    "MPICH_",
    "FI_",
    "UCX_",
    "NCCL_",
    "CUDA_",
    "ROCR_",
    "HIP_",
    "OMP_",
    "SLURM_JOB_",
    "SLURM_CLUSTER_",
    "LSB_",
    "PBS_",
)
SECRET_PATTERN = re.compile(r"KEY|TOKEN|PASS|SECRET|CRED|AUTH|COOKIE", re.IGNORECASE)
MAX_VALUE_CHARS = 500  # characters kept of a value
NVIDIA_VERSION_FILE = Path("/proc/driver/nvidia/version")


def select_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that affect a library's speed, without those that may be secrets."""
    return {
        name: value[:MAX_VALUE_CHARS]
        for name, value in sorted(environ.items())
        if name.startswith(VARIABLE_PREFIXES) and not SECRET_PATTERN.search(name)
    }


def collect_environment(
    world: MPI.Intracomm, layout: RankLayout, clock: SharedClock
) -> dict[str, Any]:
    """Return provenance that only the ranks know; collective."""
    cores = world.allgather(sorted(os.sched_getaffinity(0)))
    kernels = world.allgather(os.uname().release)
    return {
        "hosts": list(layout.hosts),
        "placement": layout.host_of_rank,
        "cores": [len(one) for one in cores],
        "kernels": sorted(set(kernels)),
        "clock": clock.describe(),
        "mpi": " ".join(MPI.Get_library_version().replace("\0", "").split())[:MAX_VALUE_CHARS],
        "environment": select_variables(os.environ),
        "drivers": _drivers(),
        "cluster": {"cores": os.cpu_count() or 1, "cpu": cpu_model(), "memory": memory_bytes()},
    }


def _drivers() -> dict[str, str]:
    """Return the drivers of network adapters and GPUs on rank 0's host, if the kernel tells."""
    found = {}
    for device in sorted(Path("/sys/class/net").glob("*/device/driver")):
        found[device.parent.parent.name] = device.resolve().name
    for device in sorted(Path("/sys/class/infiniband").glob("*/fw_ver")):
        found[device.parent.name] = f"firmware {device.read_text(encoding='utf-8').strip()}"
    if NVIDIA_VERSION_FILE.is_file():
        found["nvidia"] = NVIDIA_VERSION_FILE.read_text(encoding="utf-8").splitlines()[0][
            :MAX_VALUE_CHARS
        ]
    return found
