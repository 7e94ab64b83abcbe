"""Rank 1 of two hosts is ready late from when the first lead is known, which is too short then.

Prints whether samples began in time nevertheless.
"""

import itertools

import numpy as np
from mpi4py import MPI

from tests.support.waiting import be_slow
from tuner.probe.clock import SharedClock
from tuner.probe.probe_plan import WARM_UP_REPETITIONS
from tuner.probe.timing import Stopwatch, TimedOperation

LATE = 0.02  # seconds
comm = MPI.COMM_WORLD
calls = itertools.count()


def before() -> None:
    if comm.rank == 1 and next(calls) >= WARM_UP_REPETITIONS:
        be_slow(LATE)


clock = SharedClock(comm.Dup(), name=f"host {comm.rank}")
watch = Stopwatch(comm.Dup(), oversubscribed=True, clock=clock)
watch.sample([TimedOperation(lambda: None, before)], ci_half_width=0.0, seconds=0.0, seed=1)
if comm.rank == 0:
    print(np.median(watch.start_delays) < LATE / 2)
