"""Clocks that were set apart on purpose are found to be so. Prints the largest error in seconds."""

import time

from mpi4py import MPI

from tuner.probe.clock import SharedClock

comm = MPI.Intracomm(MPI.COMM_WORLD.Dup())
ahead = 1000.0 * comm.rank
clock = SharedClock(comm, lambda: time.monotonic() + ahead, name=f"clock {comm.rank}")
comm.Barrier()
error = abs(clock.now() - time.monotonic())
worst = comm.allreduce(error, MPI.MAX)
described = clock.describe()
same = SharedClock(MPI.Intracomm(comm.Dup()))
if comm.rank == 0:
    assert same.is_single
    assert not clock.is_single
    assert [round(value, 2) for value in described["offsets"]] == [
        1000.0 * rank for rank in range(comm.size)
    ]
    print(worst, described["uncertainty"])
