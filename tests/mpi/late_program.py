"""Rank 1 of two hosts begins late as soon as samples count, so that the lead is too short at first.

Prints whether there are enough samples that count, and whether their ranks began in time.
"""

import itertools
import time

import numpy as np
from mpi4py import MPI

from tuner.probe.clock import Clock
from tuner.probe.plan import FEWEST
from tuner.probe.timing import LATE, LEAD_SECONDS, Arm, Stopwatch

LONG = 0.3 * LEAD_SECONDS  # so that after four calls it is clear how long ranks take
comm = MPI.COMM_WORLD
calls = itertools.count()


def before() -> None:
    if comm.rank == 1 and next(calls) >= 4:
        time.sleep(LONG)


clock = Clock(comm.Dup(), name=f"host {comm.rank}")
watch = Stopwatch(comm.Dup(), crowded=True, clock=clock)
found = watch.sample([Arm(lambda: time.sleep(LONG), before)], target=0.0, seconds=0.0, seed=1)
if comm.rank == 0:
    print(len(found) >= FEWEST, np.median(watch.spread) < LATE * np.median(found))
