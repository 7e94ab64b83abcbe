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

SHORTEST, LONGEST = 1e-3, 0.25  # seconds that a pause may take, where threads have met
VARIABLES = Lock()  # held where they are not what the program set


@contextmanager
def alone(comm: MPI.Intracomm) -> Iterator[None]:
    """While no other thread of these ranks holds `VARIABLES`; collective over `comm`.

    A thread that has the lock on one rank must not wait for a rank where another thread has it,
    which waits for this one in turn. So nobody waits for the lock: either all ranks get it, or they
    give it back and try again. No rank tries before all are here, so none holds it for long.
    """
    comm.Barrier()
    longest = SHORTEST
    while not _taken(comm):
        longest = min(2 * longest, LONGEST)
        time.sleep(_drawn(comm, longest))
    try:
        yield
    finally:
        VARIABLES.release()


def _taken(comm: MPI.Intracomm) -> bool:
    """Whether all ranks have the lock; else this one does not keep it."""
    mine, everywhere = VARIABLES.acquire(blocking=False), np.array([False])
    try:
        comm.Allreduce(np.array([mine]), everywhere, MPI.LAND)
    finally:
        if mine and not everywhere[0]:
            VARIABLES.release()
    return bool(everywhere[0])


def _drawn(comm: MPI.Intracomm, longest: float) -> float:
    """A random pause, the same on all ranks: if each took its own, two threads would share the
    ranks out between them again and again, the surer the more ranks there are.
    """
    from random import SystemRandom  # not among what a first call may take time for

    drawn = np.array([SystemRandom().uniform(0.0, longest)])  # the program's own draws stay its own
    comm.Bcast(drawn)
    return float(drawn[0])
