"""Run by mpirun: call MPI_Reduce_scatter, and say what Open MPI's watcher saw.

`reduce_scatter_program.py BYTES ...`: calls of so many bytes of the whole buffer on the first 2, 3
and more ranks, in which the first ranks get the longer blocks. Rank 0 prints a line for each,
{ranks, nbytes, seen}; without the watcher nothing is seen.
"""

import json
import sys

import numpy as np
from mpi4py import MPI

from tuner.core.collective import PROBE_ELEMENT_BYTES
from tuner.rank_programs.validate import observed_calls, watch_communicator

WORLD = MPI.COMM_WORLD
SIZES = [int(word) for word in sys.argv[1:]]


def call(comm: MPI.Comm, nbytes: int) -> None:
    """Reduce and scatter elements of ones, and check the sums."""
    count = nbytes // PROBE_ELEMENT_BYTES
    counts = [count // comm.size + (rank < count % comm.size) for rank in range(comm.size)]
    sent, received = np.ones(count, np.int32), np.zeros(counts[comm.rank], np.int32)
    comm.Reduce_scatter(sent, received, counts, MPI.SUM)
    assert (received == comm.size).all()


for ranks in range(2, WORLD.size + 1):
    part = WORLD.Split(0 if WORLD.rank < ranks else MPI.UNDEFINED)
    if part == MPI.COMM_NULL:
        continue
    watch_communicator(part)
    call(part, SIZES[0])  # one-time setup of a communicator belongs to no call
    for size in SIZES:
        observed_calls()
        call(part, size)
        seen = observed_calls()
        if WORLD.rank == 0:
            print(json.dumps({"ranks": ranks, "nbytes": size, "seen": seen}), flush=True)
    part.Free()
