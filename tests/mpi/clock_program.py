"""Clocks that were set apart on purpose are found to be so. Prints the largest error in seconds."""

import time

from mpi4py import MPI

from tuner.probe.clock import Clock

comm = MPI.Intracomm(MPI.COMM_WORLD.Dup())
ahead = 1000.0 * comm.rank
clock = Clock(comm, lambda: time.monotonic() + ahead, name=f"clock {comm.rank}")
comm.Barrier()
error = max(abs(clock.now() - time.monotonic()), abs(clock.here(clock.now()) - clock.read()))
worst = comm.allreduce(error, MPI.MAX)
described = clock.described()
same = Clock(MPI.Intracomm(comm.Dup()))
if comm.rank == 0:
    assert same.one
    assert not clock.one
    assert [round(value, 2) for value in described["offsets"]] == [
        1000.0 * rank for rank in range(comm.size)
    ]
    print(worst, described["uncertainty"])
