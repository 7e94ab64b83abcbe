"""The program of ranks that tell what Open MPI's default decides: `tuner.runtime.decisions CALLS`.

CALLS is a JSON list of {collective, nodes, ppn, most}; the calls are those of the first `ppn` ranks
on each of the first `nodes` hosts. Rank 0 prints a line for each: {call, steps}, and `steps` are
[bytes, executed]: from so many bytes on, up to `most`, the watcher sees these numbers
(tuner/export/openmpi/interpose.c). No step where one call is not one call of coll/tuned on the
communicator.

Sizes are multiples of 4 bytes. The library decides by number of ranks and bytes, so every rank
finds the same steps; calls run but once, and then return at once.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from pathlib import Path

from mpi4py import MPI

from tuner.runtime.prover import ITEM, executed, perform, place

APART = (
    2**0.25
)  # of sizes looked at first: two nearer switches may be missed

Step = tuple[int, list[int]]


def ladder(decide: Callable[[int], list[int]], most: int) -> list[Step]:
    """The sizes up to `most`, multiples of 4, from which on `decide` says something else."""
    found: list[Step] = [(ITEM, decide(ITEM))]
    known = ITEM
    for size in _looked_at(most):
        while decide(size) != found[-1][1]:
            low, high = known, size
            while high - low > ITEM:
                middle = (low + high) // (2 * ITEM) * ITEM
                low, high = (low, middle) if decide(middle) != found[-1][1] else (middle, high)
            found.append((high, decide(high)))
            known = high
        known = size
    return found


def _looked_at(most: int) -> list[int]:
    sizes, size = {most // ITEM * ITEM}, float(ITEM)
    while size < most:
        sizes.add(int(size) // ITEM * ITEM)
        size *= APART
    return sorted(sizes)


def steps(comm: MPI.Comm, collective: str, most: int) -> list[Step]:
    """What the default decides on a communicator."""
    watch = ctypes.CDLL(None).tuner_watch
    handle = ctypes.c_void_p(MPI._handleof(comm))

    def seen(nbytes: int) -> list[int]:
        executed()
        error = perform(comm, {"collective": collective, "nbytes": nbytes}, MPI.SUM)
        return [] if error else executed()

    watch(handle, 1)
    seen(ITEM)  # what a communicator needs once belongs to no call
    usual = bool(seen(ITEM))
    watch(handle, 0)
    found = ladder(seen, most) if usual else []
    watch(None, 1)
    return found


def main(path: str) -> None:
    """Answer for every call, in the order given."""
    world, first = MPI.COMM_WORLD, MPI.COMM_WORLD.rank == 0
    host, local = place(world)
    for number, call in enumerate(json.loads(Path(path).read_text(encoding="utf-8"))):
        part = host < call["nodes"] and local < call["ppn"]
        comm = world.Split(0 if part else MPI.UNDEFINED, world.rank)
        if comm == MPI.COMM_NULL:
            continue
        found = steps(comm, call["collective"], call["most"])
        if first:
            print(json.dumps({"call": number, "steps": found}), flush=True)
        comm.Free()
    world.Barrier()


if __name__ == "__main__":
    main(sys.argv[1])
