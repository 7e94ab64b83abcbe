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

MIN_PAUSE_S, MAX_PAUSE_S = 1e-3, 0.25  # seconds that a pause may take, where threads have met
VARIABLES_LOCK = Lock()  # held where they are not what the program set


@contextmanager
def collective_lock(comm: MPI.Intracomm) -> Iterator[None]:
    """While no other thread of these ranks holds `VARIABLES`; collective over `comm`.

    A thread that has the lock on one rank must not wait for a rank where another thread has it,
    which waits for this one in turn. So nobody waits for the lock: either all ranks get it, or they
    give it back and try again. No rank tries before all are here, so none holds it for long.
    """
    comm.Barrier()
    longest = MIN_PAUSE_S
    while not _try_lock(comm):
        longest = min(2 * longest, MAX_PAUSE_S)
        time.sleep(_random_pause(comm, longest))
    try:
        yield
    finally:
        VARIABLES_LOCK.release()


def _try_lock(comm: MPI.Intracomm) -> bool:
    """Whether all ranks have the lock; else this one does not keep it."""
    mine, everywhere = VARIABLES_LOCK.acquire(blocking=False), np.array([False])
    try:
        comm.Allreduce(np.array([mine]), everywhere, MPI.LAND)
    finally:
        if mine and not everywhere[0]:
            VARIABLES_LOCK.release()
    return bool(everywhere[0])


def _random_pause(comm: MPI.Intracomm, max_pause_s: float) -> float:
    """A random pause, the same on all ranks: if each took its own, two threads would share the
    ranks out between them again and again, the surer the more ranks there are.
    """
    from random import SystemRandom  # not among what a first call may take time for

    drawn = np.array(
        [SystemRandom().uniform(0.0, max_pause_s)]
    )  # the program's own draws stay its own
    comm.Bcast(drawn)
    return float(drawn[0])
