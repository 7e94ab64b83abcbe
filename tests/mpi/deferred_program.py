"""Use a communicator that is not tuned yet in every way that a program may."""

from typing import Any

import numpy as np
from mpi4py import MPI

from tuner.runtime.deferred import defer_tuning

WORLD: Any = MPI.COMM_WORLD
ONES, TOTAL = np.ones(4), np.zeros(4)


def check(comm: MPI.Intracomm) -> None:
    """Call kept methods again and again, and objects that mpi4py makes of the same class."""
    kept, split = comm.Allreduce, comm.Split
    copy, request = comm.Idup()
    request.Wait()
    for other in (copy, type(comm)(comm)):
        other.Allreduce(ONES, TOTAL)
    for _ in range(3):
        kept(ONES, TOTAL)
        split(0).Free()
    comm.Allreduce(ONES, TOTAL)
    copy.Free()
    assert TOTAL.min() == TOTAL.max() == comm.size


check(defer_tuning(WORLD.plain, lambda comm: comm))  # nothing can be tuned
if WORLD.rank == 0:
    print("untuned")
check(MPI.COMM_WORLD)  # under `tuner.run`
if WORLD.rank == 0:
    print(type(MPI.COMM_WORLD).__name__)
