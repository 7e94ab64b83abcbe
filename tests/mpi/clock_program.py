"""Clocks that were set apart on purpose are found to be so.

Prints the largest error and the uncertainty in seconds. A rank may be held back between two
readings: the error is how far a reading lies outside of those of the true clock around it.
"""

import time

from mpi4py import MPI

from tuner.probe.clock import SharedClock

ROUNDING_S = 1e-6  # more than differences of seconds since the boot are rounded by
comm = MPI.Intracomm(MPI.COMM_WORLD.Dup())
ahead = 1000.0 * comm.rank
clock = SharedClock(comm, lambda: time.monotonic() + ahead, name=f"clock {comm.rank}")
comm.Barrier()
before, found, after = time.monotonic(), clock.now(), time.monotonic()
error = max(before - found, found - after, 0.0)
worst = comm.allreduce(error, MPI.MAX)
described = clock.describe()
same = SharedClock(MPI.Intracomm(comm.Dup()))
if comm.rank == 0:
    assert same.is_single
    assert not clock.is_single
    for rank, offset in enumerate(described["offsets"]):
        assert abs(offset - 1000.0 * rank) <= described["uncertainty"] + ROUNDING_S
    print(worst, described["uncertainty"])
