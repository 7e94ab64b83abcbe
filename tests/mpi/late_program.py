"""Rank 1 of two hosts is ready late from when the first lead is known, which is too short then.

Prints whether samples began in time nevertheless.
"""

import itertools
import time

import numpy as np
from mpi4py import MPI

from tuner.probe.clock import Clock
from tuner.probe.probe_plan import WARM_UP
from tuner.probe.timing import Arm, Stopwatch

LATE = 0.02  # seconds
comm = MPI.COMM_WORLD
calls = itertools.count()


def before() -> None:
    if comm.rank == 1 and next(calls) >= WARM_UP:
        time.sleep(LATE)


clock = Clock(comm.Dup(), name=f"host {comm.rank}")
watch = Stopwatch(comm.Dup(), crowded=True, clock=clock)
watch.sample([Arm(lambda: None, before)], target=0.0, seconds=0.0, seed=1)
if comm.rank == 0:
    print(np.median(watch.spread) < LATE / 2)
