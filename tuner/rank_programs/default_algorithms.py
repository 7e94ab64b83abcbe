"""Find what Open MPI runs by default (rank side).

CALLS is a JSON list of {collective, nodes, ppn, placement, max_bytes}; the calls are those of the
first `ppn` ranks on each of the first `nodes` hosts, in the order of the placement. Rank 0 prints a
line for each: {call, steps}, where `steps` are [bytes, executed]: from that size on, up to
`max_bytes`, the watcher sees this call (`struct call` of tuner/validation/openmpi_trace.c). There
are no steps where a call does not end in exactly one call of coll/tuned on the same communicator.

Sizes are multiples of 4 bytes, or of 4 bytes for each rank where ranks exchange blocks. The library
decides by number of ranks and bytes, so every rank finds the same steps; each call runs only once.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

from mpi4py import MPI

from tuner.core.collective import PROBE_ELEMENT_BYTES, Collective
from tuner.core.path_classes import CYCLIC
from tuner.rank_programs.bisection import find_change_points
from tuner.rank_programs.validate import (
    host_and_local_rank,
    make_call,
    observed_calls,
    watch_communicator,
)
from tuner.runtime.override_check import require_default_selection

Step = tuple[int, list[int]]


def find_default_steps(comm: MPI.Comm, collective: str, max_bytes: int) -> list[Step]:
    """Return the steps of the library's default algorithms on a communicator."""
    watch = ctypes.CDLL(None).tuner_watch
    handle = ctypes.c_void_p(MPI._handleof(comm))

    def seen(nbytes: int) -> list[int]:
        observed_calls()
        error = make_call(comm, {"collective": collective, "nbytes": nbytes}, MPI.SUM)
        calls = observed_calls()
        return [] if error or len(calls) != 1 else calls[0]

    least = PROBE_ELEMENT_BYTES * max(Collective(collective).blocks(comm.size))
    watch_communicator(comm)
    watch(handle, 1)
    seen(least)  # one-time setup of a communicator belongs to no call
    usual = all(comm.allgather(bool(seen(least))))
    watch(handle, 0)
    found = find_change_points(seen, max_bytes, least) if usual and least <= max_bytes else []
    watch(None, 1)
    return found


def main(path: str) -> None:
    """Find and print the steps of every call, in the order given."""
    require_default_selection("openmpi")
    world, first = MPI.COMM_WORLD, MPI.COMM_WORLD.rank == 0
    host, local = host_and_local_rank(world)
    for number, call in enumerate(json.loads(Path(path).read_text(encoding="utf-8"))):
        part = host < call["nodes"] and local < call["ppn"]
        turn = local * call["nodes"] + host if call["placement"] == CYCLIC else world.rank
        comm = world.Split(0 if part else MPI.UNDEFINED, turn)
        if comm == MPI.COMM_NULL:
            continue
        found = find_default_steps(comm, call["collective"], call["max_bytes"])
        if first:
            print(json.dumps({"call": number, "steps": found}), flush=True)
        comm.Free()
    world.Barrier()


if __name__ == "__main__":
    main(sys.argv[1])
