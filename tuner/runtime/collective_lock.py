"""A collective lock for writing the library's variables and for creating communicators.

Variables belong to the whole process, and Open MPI reads its own when a communicator is created.
Without the lock, settings that one thread writes would apply to communicators that other threads
create meanwhile, on some ranks and not on others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import numpy as np
from mpi4py import MPI

MIN_PAUSE_S = 1e-3  # before the second attempt to take the lock
MAX_PAUSE_S = 0.25  # between late attempts
VARIABLES_LOCK = Lock()  # held while variables may differ from the program's values


@contextmanager
def collective_lock(comm: MPI.Intracomm) -> Iterator[None]:
    """Hold `VARIABLES_LOCK` on all ranks of `comm`; collective.

    A thread that has the lock on one rank must not wait for a rank where another thread has it,
    which waits for this one in turn. So no thread blocks on the lock: either all ranks get it, or
    they release it and try again. No rank tries before all have arrived, so none holds it for long.
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
    """Take the lock if all ranks can; return whether they could. Collective."""
    mine, everywhere = VARIABLES_LOCK.acquire(blocking=False), np.array([False])
    try:
        comm.Allreduce(np.array([mine]), everywhere, MPI.LAND)
    finally:
        if mine and not everywhere[0]:
            VARIABLES_LOCK.release()
    return bool(everywhere[0])


def _random_pause(comm: MPI.Intracomm, max_pause_s: float) -> float:
    """Return a random pause in seconds, the same on all ranks; collective.

    If each rank drew its own, two competing threads would each get the lock on some of the ranks
    again and again, the more likely the more ranks there are.
    """
    from random import SystemRandom  # slow to import

    drawn = np.array(
        [SystemRandom().uniform(0.0, max_pause_s)]
    )  # does not change the state of the program's generator
    comm.Bcast(drawn)
    return float(drawn[0])
