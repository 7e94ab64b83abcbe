"""A rank that is done early goes on to its books when the others are done, too.

Rank 1 takes long, and all are said to share cores. Prints how many repetitions followed another
one, and how many of these rank 0 turned to before rank 1 had ended the one before.
"""

import time

import numpy as np
from mpi4py import MPI

from tests.support.waiting import be_slow
from tuner.probe.timing import Stopwatch, TimedOperation

LONG = 0.02  # seconds
REPETITIONS = 3  # however long calls take
comm = MPI.COMM_WORLD
turned, ended = list[float](), list[float]()


def call() -> None:
    if comm.rank == 1:
        be_slow(LONG)
    ended.append(time.monotonic())


watch = Stopwatch(
    comm.Dup(), oversubscribed=True, keep_alive=lambda: turned.append(time.monotonic())
)
watch.sample(
    [TimedOperation(call)], ci_half_width=0.0, seconds=0.0, seed=1, min_repetitions=REPETITIONS
)
before = np.array(comm.bcast(ended[-REPETITIONS:-1], root=1))
after = np.array(turned[-REPETITIONS:-1])  # the very last saw that there are enough
if comm.rank == 0:
    print(len(before), int((after < before).sum()))
