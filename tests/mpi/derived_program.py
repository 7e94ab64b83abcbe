"""Run by mpirun under `tuner.run`: communicators that are derived, called and freed.

Prints on rank 0, as JSON, the collective calls of the library (`tests/support/count_calls.c`) that
ten rounds of each kind took, and the calls of a communicator up to the one in which it was tuned.
With the argument `observed`, rank 0 counts its calls for the log.
"""

import ctypes
import json
import logging
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

calls_made = ctypes.CDLL(None).calls_made
calls_made.restype = ctypes.c_long
ROUNDS = 10
MOST_CALLS = 400
world = MPI.COMM_WORLD
if sys.argv[1:] == ["observed"] and world.rank == 0:
    logging.getLogger("tuner").setLevel(logging.INFO)
world.Allreduce(np.ones(4), np.zeros(4))  # the world is tuned now


def split(count: int) -> None:
    """Split by the remainder of the rank, duplicate, make one call and free."""
    part = world.Split(world.rank % 2, world.rank)
    twin = part.Dup()
    result = np.zeros(count)
    twin.Allreduce(np.ones(count), result)
    assert (result == twin.size).all()
    twin.Free()
    part.Free()


def duplicate(count: int) -> None:
    """Duplicate the world, make one call and free."""
    twin = world.Dup()
    twin.Allreduce(np.ones(count), np.zeros(count))
    twin.Free()


def calls_of(act: Callable[[int], None], count: int) -> int:
    """Return the calls of the library in `ROUNDS` rounds."""
    before = int(calls_made())
    for _ in range(ROUNDS):
        act(count)
    return int(calls_made()) - before


def calls_until_tuned(comm: Any, count: int) -> int:
    """Return the calls that the library made one by one before a call took more than one."""
    result = np.zeros(count)
    for number in range(MOST_CALLS):
        before = int(calls_made())
        comm.Allreduce(np.ones(count), result)
        assert (result == comm.size).all()
        if int(calls_made()) - before != 1:
            return number
    return MOST_CALLS


found: dict[str, Any] = {
    "split": calls_of(split, 4),
    "split, of a size that a rule changes": calls_of(split, 4000),
    "dup": calls_of(duplicate, 4),
    "dup, of a size that a rule changes": calls_of(duplicate, 4000),
}
twin, part = world.Dup(), world.Split(0, -world.rank)
found["short calls"] = calls_until_tuned(twin, 4)
until = [calls_until_tuned(comm, 4000) for comm in (twin, part)]
if world.allgather(until) != [until] * world.size:
    raise SystemExit(f"the ranks differ: {world.allgather(until)}")
found["long calls"] = until
if world.rank == 0:
    print(json.dumps(found), flush=True)
