"""Calls that MPICH's layers answer: `layers_program.py COLLECTIVE:BYTES ...`.

Ten small calls before each have the device layer set up its shared memory: its first calls on a
communicator go through the MPIR layer. Rank 0 prints `done COLLECTIVE:BYTES` after each.
"""

import sys

import numpy as np
from mpi4py import MPI

WARM = 10  # calls
SMALL = 8  # bytes
world = MPI.COMM_WORLD


def call(collective: str, nbytes: int) -> None:
    """Make one call, of 4-byte integers."""
    data = np.zeros(nbytes // 4, np.int32)
    if collective == "bcast":
        world.Bcast(data)
    else:
        world.Allreduce(data.copy(), data)


for word in sys.argv[1:]:
    name, size = word.split(":")
    for nbytes in [SMALL] * WARM + [int(size)]:
        call(name, nbytes)
    world.Barrier()
    if world.rank == 0:
        print(f"done {word}", flush=True)
