"""One thread at a time where the library's variables are written, or a communicator is made.

Variables are the whole process's, and Open MPI reads its own when a communicator is made: what one
thread forces would go into the communicators that other threads make meanwhile, on some ranks and
not on others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import numpy as np
from mpi4py import MPI

LONGEST = 1e-3  # seconds of a pause, where threads have met
VARIABLES = Lock()  # held where they are not what the program set


@contextmanager
def alone(comm: MPI.Intracomm) -> Iterator[None]:
    """While no other thread of these ranks holds `VARIABLES`; collective over `comm`.

    A thread that has the lock on one rank must not wait for a rank where another thread has it,
    which waits for this one in turn. So nobody waits for the lock: either all ranks get it, or they
    give it back and try again. No rank tries before all are here, so none holds it for long.
    """
    comm.Barrier()
    while not _taken(comm):
        import random  # not among what a first call may take time for

        time.sleep(random.uniform(0.0, LONGEST))
    try:
        yield
    finally:
        VARIABLES.release()


def _taken(comm: MPI.Intracomm) -> bool:
    """Whether all ranks have the lock; else this one does not keep it."""
    mine = VARIABLES.acquire(blocking=False)
    everywhere = np.array([mine])
    comm.Allreduce(MPI.IN_PLACE, everywhere, MPI.LAND)
    if mine and not everywhere[0]:
        VARIABLES.release()
    return bool(everywhere[0])
