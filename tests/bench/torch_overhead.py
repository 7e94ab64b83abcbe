"""Measure what the backend `tuner` adds to a small call.

    python -m tests.bench.torch_overhead [PYTHON]

`all_reduce` of 16 bytes on 2 and 4 ranks: plain mpi4py, the backend (synchronous, and asynchronous
with a wait), and gloo. Blocks of calls take turns; medians over the blocks of the slowest rank.
`overhead` is the median difference between the backend and plain mpi4py in the same turn.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from tuner.launch import Launcher

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("TUNER_TORCH_PYTHON", ROOT / ".venv-torch" / "bin" / "python"))
BLOCKS = 41
CALLS = 200
RANKS = (2, 4)
CEILING_US = 20.0


def main() -> None:
    """Time the calls on each rank; rank 0 prints one line of JSON."""
    import numpy as np
    import torch
    import torch.distributed as dist
    from mpi4py import MPI

    import tuner.torch  # noqa: F401 - registers the backend

    dist.init_process_group("tuner")
    plain, gloo = MPI.COMM_WORLD.Dup(), dist.new_group(backend="gloo")
    tensor, array = torch.ones(4), np.ones(4, np.float32)
    ways: dict[str, Callable[[], object]] = {
        "mpi4py": lambda: plain.Allreduce(MPI.IN_PLACE, array),
        "tuner": lambda: dist.all_reduce(tensor),
        "tuner, asynchronous": lambda: dist.all_reduce(tensor, async_op=True).wait(),
        "gloo": lambda: dist.all_reduce(tensor, group=gloo),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(BLOCKS):
        for name, call in ways.items():
            plain.Barrier()
            begin = time.perf_counter()
            for _ in range(CALLS):
                call()
            own = (time.perf_counter() - begin) / CALLS * 1e6
            times[name].append(plain.allreduce(own, MPI.MAX))
            tensor.fill_(1.0)
    if plain.rank == 0:
        added = [a - b for a, b in zip(times["tuner"], times["mpi4py"], strict=True)]
        told = {name: round(median(some), 1) for name, some in times.items()}
        print(json.dumps({"ranks": plain.size, **told, "overhead": round(median(added), 1)}))
    dist.destroy_process_group()


def drive(python: Path) -> None:
    """Print microseconds per call, and whether the overhead keeps below its ceiling."""
    launcher = Launcher.find(python=python)
    for ranks in RANKS:
        arguments = ["-c", "from tests.bench.torch_overhead import main; main()"]
        environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        run = launcher.run(ranks, arguments, timeout=300.0, environment=environment)
        told = json.loads(run.stdout)
        verdict = "ok" if told["overhead"] <= CEILING_US else "too slow"
        print(" ".join(f"{name} {value};" for name, value in told.items()), "us:", verdict)


if __name__ == "__main__":
    drive(Path(sys.argv[1]) if len(sys.argv) > 1 else PYTHON)
