"""Communicators of our own beside the program's.

A library has only so many: MPICH about 2046 for each rank, and the program may need them all. So we
hold few at once, and where there is no more, the library's own collectives run.
"""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

from tuner.runtime.collective_lock import alone
from tuner.runtime.consensus import AbandonedError, Consensus, ObjectionError, reason_of

MOST = 256  # that a rank holds at once
HELD: list[MPI.Intracomm] = []


def hold(consensus: Consensus) -> MPI.Intracomm:
    """Return one of the same ranks without the attributes of users, until `give_back`; collective.

    Raises ObjectionError where a rank holds MOST already, or the library has no more.
    """
    comm = consensus.comm
    room = "" if len(HELD) < MOST else f"{MOST} communicators follow a table already"
    held = MPI.Intracomm(made_of(consensus, lambda: comm.Split(0, comm.rank), room))
    HELD.append(held)
    return held


def give_back(held: MPI.Intracomm) -> None:
    """Free what `hold` returned; collective over it."""
    HELD.remove(held)
    held.Free()


def made_of(consensus: Consensus, make: Callable[[], MPI.Comm], objection: str = "") -> MPI.Comm:
    """Return what all ranks make together, while no other thread makes any; collective.

    Raises ObjectionError where a rank has an objection, or could not make it.
    """
    consensus.check(objection)
    made: MPI.Comm = MPI.COMM_NULL
    with alone(consensus.comm):
        try:
            made = make()
        except MPI.Exception:
            objection = "the library makes no more communicators"
        except Exception as failure:  # noqa: BLE001 - the other ranks are to hear of it
            objection = f"no communicator can be made: {reason_of(failure)}"
    try:
        consensus.check(objection)
    except (ObjectionError, AbandonedError):
        if made != MPI.COMM_NULL:
            made.Free()
        raise
    return made
