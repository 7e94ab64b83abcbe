"""How long ranks sleep that wait for nothing: the first sleeps of one, and a later one (s)."""

import json
import os
import time

from mpi4py import MPI

LOOKS = 2  # of netns_hold.c: before the first sleep
SLEEPS = 12

MPI.COMM_WORLD.Barrier()  # the library's descriptors are known now


def pause() -> float:
    begin = time.monotonic()
    os.sched_yield()
    return time.monotonic() - begin


def series() -> list[float]:
    MPI.COMM_WORLD.Barrier()
    return [pause() for _ in range(LOOKS + SLEEPS)][LOOKS:]


taken = [series() for _ in range(9)]
if MPI.COMM_WORLD.rank == 0:
    print(
        json.dumps(
            {"sleeps": [sorted(column)[len(taken) // 2] for column in zip(*taken, strict=True)]}
        )
    )
