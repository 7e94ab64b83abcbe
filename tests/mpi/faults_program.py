"""Run by mpirun: loops over collectives while the service has one fault after another.

The first argument is a directory, every further one the JSON of a fault: its name, variables that
the last rank or rank 0 alone sets in its environment, and what runs out of memory on the last rank
while the ranks get the table. For each fault rank 0 says when it may happen; the ranks go on
calling until a file of its name is in the directory, get the table again, and call on, also on a
communicator that they derive. Every result is compared with numpy's.
"""

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from mpi4py import MPI

from tuner.runtime import tune

WORLD = MPI.COMM_WORLD
SIZES = (4, 1024, 40_000, 300_000)  # bytes
LAPS = 3


def require(right: Any, what: str) -> None:
    if not np.all(right):
        print(f"rank {WORLD.rank}: {what} is wrong", file=sys.stderr, flush=True)
        WORLD.Abort(3)


def lap(comm: Any, lap: int) -> None:
    """Every size once, with another root and other numbers in each lap."""
    for nbytes in SIZES:
        expected = np.arange(nbytes // 4, dtype=np.int32) + lap
        root = lap % comm.size
        sent = expected.copy() if comm.rank == root else np.zeros_like(expected)
        comm.Bcast(sent, root)
        require(sent == expected, f"Bcast of {nbytes} bytes")
        total, mine = np.empty(nbytes // 4, np.float32), expected.astype(np.float32) % 1000
        comm.Allreduce(mine + comm.rank, total)
        require(total == comm.size * mine + sum(range(comm.size)), f"sum of {nbytes} bytes")
        comm.Allreduce(MPI.IN_PLACE, mine, MPI.MAX)
        require(mine == expected % 1000, f"maximum of {nbytes} bytes")


def until(comm: Any, file: Path) -> None:
    """Call on until the file is there, all ranks for the same number of laps."""
    there, laps = np.zeros(1, np.int8), 0
    while not there[0]:
        lap(comm, laps)
        laps += 1
        there[0] = comm.rank == 0 and file.exists()
        comm.Bcast(there)


def followed(comm: Any) -> list[str]:
    """The algorithms of the table that this rank follows."""
    return sorted({str(rule.choice) for rule in comm.table.rules}) if comm.table else []


def tell(name: str, comm: Any) -> None:
    everywhere = WORLD.gather(followed(comm))
    if WORLD.rank == 0:
        print(json.dumps({"now": name, "followed": everywhere}), flush=True)


def main() -> None:
    comm = tune(WORLD)
    tell("start", comm)
    for fault in map(json.loads, sys.argv[2:]):
        if WORLD.rank == 0:
            print(json.dumps({"may": fault["name"]}), flush=True)
        until(comm, Path(sys.argv[1], fault["name"]))
        if WORLD.rank == 0:
            os.environ.update(fault.get("first", {}))
        if WORLD.rank == WORLD.size - 1:
            os.environ.update(fault.get("last", {}))
        with ExitStack() as patched:
            if fault.get("breaks") and WORLD.rank == WORLD.size - 1:
                patched.enter_context(patch(fault["breaks"], side_effect=MemoryError))
            comm.refresh()
        derived = comm.Dup()
        for number in range(LAPS):
            lap(comm, number)
            lap(derived, number)
        derived.Free()
        tell(fault["name"], comm)
    comm.finalize()


main()
