"""Private communicators beside the program's.

The number of communicators is limited, in MPICH to about 2046 per rank, and the program may need
them all. So we hold few at once, and when there are no more, the library's own collectives run.
"""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

from tuner.runtime.collective_lock import collective_lock
from tuner.runtime.consensus import AbandonedError, Consensus, ObjectionError, error_message

MAX_COMMS = 256  # held by a rank at once
ACQUIRED: list[MPI.Intracomm] = []


def acquire_comm(consensus: Consensus) -> MPI.Intracomm:
    """Create a communicator of the same ranks, without users' attributes; collective.

    It is to be freed by `release_comm`. Raises ObjectionError where a rank holds MAX_COMMS already
    or the library has no more.
    """
    comm = consensus.comm
    room = "" if len(ACQUIRED) < MAX_COMMS else f"{MAX_COMMS} communicators follow a table already"
    held = MPI.Intracomm(create_collectively(consensus, lambda: comm.Split(0, comm.rank), room))
    ACQUIRED.append(held)
    return held


def release_comm(comm: MPI.Intracomm) -> None:
    """Free a communicator of `acquire_comm`; collective over it."""
    ACQUIRED.remove(comm)
    comm.Free()


def create_collectively(
    consensus: Consensus, make: Callable[[], MPI.Comm], objection: str = ""
) -> MPI.Comm:
    """Create a communicator while no other thread creates any; collective.

    make        creates the communicator
    objection   why this rank cannot create one; "" where it can

    Raises ObjectionError where a rank has an objection or `make` failed on it.
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
