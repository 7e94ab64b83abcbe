"""The program of ranks that tell what Open MPI's default decides.

CALLS is a JSON list of {collective, nodes, ppn, placement, most}; the calls are those of the first
`ppn` ranks on each of the first `nodes` hosts, in the order of the placement. Rank 0 prints a line
for each: {call, steps}, and `steps` are [bytes, executed]: from so many bytes on, up to `most`, the
watcher sees this call (`struct call` of tuner/validation/openmpi_trace.c). No step where a call
does not end in just one call of coll/tuned on the same communicator.

Sizes are multiples of 4 bytes. The library decides by number of ranks and bytes, so every rank
finds the same steps; calls run but once, and then return at once.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

from mpi4py import MPI

from tuner.core.path_classes import CYCLIC
from tuner.rank_programs.bisection import ladder
from tuner.rank_programs.validate import ITEM, executed, expect, perform, place
from tuner.runtime.override_check import require_undecided

Step = tuple[int, list[int]]


def steps(comm: MPI.Comm, collective: str, most: int) -> list[Step]:
    """What the default decides on a communicator."""
    watch = ctypes.CDLL(None).tuner_watch
    handle = ctypes.c_void_p(MPI._handleof(comm))

    def seen(nbytes: int) -> list[int]:
        executed()
        error = perform(comm, {"collective": collective, "nbytes": nbytes}, MPI.SUM)
        calls = executed()
        return [] if error or len(calls) != 1 else calls[0]

    expect(comm)
    watch(handle, 1)
    seen(ITEM)  # what a communicator needs once belongs to no call
    usual = all(comm.allgather(bool(seen(ITEM))))
    watch(handle, 0)
    found = ladder(seen, most) if usual else []
    watch(None, 1)
    return found


def main(path: str) -> None:
    """Answer for every call, in the order given."""
    require_undecided("openmpi")
    world, first = MPI.COMM_WORLD, MPI.COMM_WORLD.rank == 0
    host, local = place(world)
    for number, call in enumerate(json.loads(Path(path).read_text(encoding="utf-8"))):
        part = host < call["nodes"] and local < call["ppn"]
        turn = local * call["nodes"] + host if call["placement"] == CYCLIC else world.rank
        comm = world.Split(0 if part else MPI.UNDEFINED, turn)
        if comm == MPI.COMM_NULL:
            continue
        found = steps(comm, call["collective"], call["most"])
        if first:
            print(json.dumps({"call": number, "steps": found}), flush=True)
        comm.Free()
    world.Barrier()


if __name__ == "__main__":
    main(sys.argv[1])
