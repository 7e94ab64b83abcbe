"""Communicators of our own beside the program's.

A library has only so many: MPICH about 2046 for each rank, and the program may need them all. So we
hold few at once, and where there is no more, the library's own collectives run.
"""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

from tuner.runtime.collective_lock import collective_lock
from tuner.runtime.consensus import AbandonedError, Consensus, ObjectionError, error_message

MAX_COMMS = 256  # that a rank holds at once
ACQUIRED: list[MPI.Intracomm] = []


def acquire_comm(consensus: Consensus) -> MPI.Intracomm:
    """Return one of the same ranks without the attributes of users, until `release_comm`;
    collective.

    Raises ObjectionError where a rank holds MOST already, or the library has no more.
    """
    comm = consensus.comm
    room = "" if len(ACQUIRED) < MAX_COMMS else f"{MAX_COMMS} communicators follow a table already"
    held = MPI.Intracomm(create_collectively(consensus, lambda: comm.Split(0, comm.rank), room))
    ACQUIRED.append(held)
    return held


def release_comm(comm: MPI.Intracomm) -> None:
    """Free what `hold` returned; collective over it."""
    ACQUIRED.remove(comm)
    comm.Free()


def create_collectively(
    consensus: Consensus, make: Callable[[], MPI.Comm], objection: str = ""
) -> MPI.Comm:
    """Return what all ranks make together, while no other thread makes any; collective.

    Raises ObjectionError where a rank has an objection, or could not make it.
    """
    consensus.check(objection)
    made: MPI.Comm = MPI.COMM_NULL
    with collective_lock(consensus.comm):
        try:
            made = make()
        except MPI.Exception:
            objection = "the library makes no more communicators"
        except Exception as failure:  # noqa: BLE001 - the other ranks are to hear of it
            objection = f"no communicator can be made: {error_message(failure)}"
    try:
        consensus.check(objection)
    except (ObjectionError, AbandonedError):
        if made != MPI.COMM_NULL:
            made.Free()
        raise
    return made
