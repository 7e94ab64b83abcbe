"""The program of a trial launch: `python -m tuner.rank_programs.trial`.

Rank 0 prints one JSON object: how many ranks there are, the thread level that MPI provides, and of
each rank its host, its versions and a hash of its copy of this file.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import mpi4py
from mpi4py import MPI

THREAD_LEVEL_NAMES = {
    MPI.THREAD_SINGLE: "single",
    MPI.THREAD_FUNNELED: "funneled",
    MPI.THREAD_SERIALIZED: "serialized",
    MPI.THREAD_MULTIPLE: "multiple",
}


def describe_rank() -> dict[str, Any]:
    """Return the host's name, and what should be the same on all hosts."""
    import numpy

    source = Path(__file__)
    return {
        "host": MPI.Get_processor_name(),
        "python": platform.python_version(),
        "interpreter": sys.executable,
        "numpy": numpy.__version__,
        "mpi4py": mpi4py.__version__,
        "library": " ".join(MPI.Get_library_version().replace("\0", "").split())[:200],
        "package": hashlib.sha256(source.read_bytes()).hexdigest()[:12],
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
    }


def main() -> None:
    """Gather the descriptions of all ranks and print them."""
    world = MPI.COMM_WORLD
    ranks = world.gather(describe_rank())
    if ranks is not None:
        level = THREAD_LEVEL_NAMES.get(MPI.Query_thread(), "unknown")
        print(json.dumps({"size": world.size, "level": level, "ranks": ranks}), flush=True)


if __name__ == "__main__":
    main()
