"""Measure what a duplicate costs: `python -m tests.bench.duplicates [MPICH_PYTHON]`.

`Dup`, a first call on the duplicate and `Free`, on two and on four ranks: plain, and of a tuned
communicator under a rule of each kind. Blocks of plain and of tuned duplicates alternate; medians
over the blocks, on rank 0.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from tests.support.ladders import table_of
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmConfig
from tuner.launch import Launcher

RANKS, BLOCKS, DUPLICATES = (2, 4), 11, 20
CEILING = 1.5  # times the plain library
CHOICES = (
    AlgorithmConfig(),
    AlgorithmConfig("recursive_doubling"),
    AlgorithmConfig("recursive_doubling", {}, SCHEDULE),
)


def seconds(comm: Any) -> float:
    """Return those of one duplicate, over a block of them; collective."""
    import numpy as np

    given, taken = np.ones(16), np.zeros(16)
    comm.Barrier()
    begin = time.perf_counter()
    for _ in range(DUPLICATES):
        duplicate = comm.Dup()
        duplicate.Allreduce(given, taken)
        duplicate.Free()
    return (time.perf_counter() - begin) / DUPLICATES


def measure(choice: AlgorithmConfig) -> dict[str, object]:
    """Return seconds of a duplicate under a rule, and of a plain one; collective."""
    from mpi4py import MPI

    from tuner.runtime import tune
    from tuner.runtime.agreement import library_name

    world, library = MPI.COMM_WORLD, library_name()
    keys = [(Collective.ALLREDUCE, world.size, kind) for kind in ("any", "commutative")]
    tuned = tune(world.Dup(), table_of({key: [(0, choice)] for key in keys}, library=library))
    samples = [(seconds(world), seconds(tuned)) for _ in range(1 + BLOCKS)][1:]
    plain, followed = (median(column) for column in zip(*samples, strict=True))
    tuned.Free()
    return {
        "library": library,
        "ranks": world.size,
        "rule": str(choice),
        "plain": plain,
        "tuned": followed,
    }


def main() -> None:
    """Measure, on every rank; rank 0 prints one JSON line per rule."""
    from mpi4py import MPI

    for choice in CHOICES:
        record = measure(choice)
        if MPI.COMM_WORLD.rank == 0:
            print(json.dumps(record), flush=True)


def show(line: str) -> None:
    """Print one measurement, in microseconds."""
    record = json.loads(line)
    plain, tuned = 1e6 * record["plain"], 1e6 * record["tuned"]
    said = f"{record['library']:14} {record['ranks']} ranks {record['rule']:30}"
    met = "met" if tuned <= CEILING * plain else "MISSED"
    print(f"{said} us: plain {plain:.0f}, tuned {tuned:.0f}, ratio {tuned / plain:.2f}: {met}")


def launch(library: str, python: Path) -> None:
    """Measure under one library."""
    launcher = Launcher.find(library, python)
    for ranks in RANKS:
        launcher.run(ranks, ["-m", "tests.bench.duplicates", "--rank"], on_line=show)


if __name__ == "__main__":
    if sys.argv[1:] == ["--rank"]:
        main()
    else:
        launch("openmpi", Path(sys.executable))
        launch("mpich", Path(sys.argv[1] if sys.argv[1:] else ".venv-mpich/bin/python").absolute())
