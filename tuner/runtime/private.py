"""Communicators of our own beside the program's.

A library has only so many: MPICH about 2046 for each rank, and the program may need them all. So we
hold few at once, and where there is no more, the library's own collectives run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
from mpi4py import MPI

from tuner.runtime.alone import alone
from tuner.runtime.once import warn_once

MOST = 256  # that a rank holds at once
HELD: list[MPI.Intracomm] = []


def hold(comm: MPI.Intracomm) -> MPI.Intracomm:
    """One of the same ranks without the attributes of users, until `give_back`; collective.

    The null communicator on all ranks where one holds MOST already, or the library has no more.
    """
    held = made_of(comm, lambda: comm.Split(0, comm.rank), room=len(HELD) < MOST)
    if held != MPI.COMM_NULL:
        HELD.append(held)
    return held


def give_back(held: MPI.Intracomm) -> None:
    """Free what `hold` gave, if that was a communicator; collective over it."""
    if held != MPI.COMM_NULL:
        HELD.remove(held)
        held.Free()


def made_of(
    comm: MPI.Intracomm, make: Callable[[], MPI.Comm], *, room: bool = True
) -> MPI.Intracomm:
    """What all ranks of `comm` make together, while no other thread makes any; collective.

    The null communicator on all ranks where one has no `room` or fails: said once in the log.
    """
    made: MPI.Comm = MPI.COMM_NULL
    with alone(comm):
        with suppress(MPI.Exception):
            made = make()
        found = np.array([made != MPI.COMM_NULL, room])
        comm.Allreduce(MPI.IN_PLACE, found, MPI.LAND)
    if found.all():
        return MPI.Intracomm(made)
    reason = f"{MOST} communicators follow it already"
    if found[0]:
        made.Free()
    else:
        reason = "the library makes no more communicators"
    if comm.rank == 0:
        warn_once(f"tuner: a table is not followed on {comm.size} ranks: {reason}")
    return MPI.Intracomm(MPI.COMM_NULL)
