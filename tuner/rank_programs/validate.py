"""Make given calls and report which algorithms ran (rank side).

CALLS is a JSON list of {collective, nodes, ppn, nbytes, commutative}; a call is made by the first
`ppn` ranks on each of the first `nodes` hosts. When the communicators are made, which itself takes
calls of the library, rank 0 prints the number of calls, {calls}. Then it prints one line for each:
{call, error, executed, entered}. `error` is the MPI error class, 0 for success; `executed` and
`entered` are what a preloaded watcher saw on rank 0 (`struct call` of openmpi_trace.c and
intelmpi_trace.c in tuner/validation), [] without it. What is watched is called twice, so that the
one-time setup of a communicator does not count as part of a call. A call of 0 bytes is made with a
count of 0 and with a datatype of size 0, and answered when all its ranks have survived it.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

from mpi4py import MPI

from tuner.core.collective import Collective
from tuner.probe.collectives import call_on_zeros, call_without_data
from tuner.rank_programs import shm_cleanup

INTS_PER_CALL = 7  # that Open MPI's watcher reports
MAX_OBSERVED_CALLS = 32  # different ones that Open MPI's watcher reports
HAS_FUNCTION_WATCHER = hasattr(ctypes.CDLL(None), "tuner_entered")
HAS_CALL_WATCHER = hasattr(ctypes.CDLL(None), "tuner_executed")


def take_arriving(arriving: Any, inout: Any, _datatype: MPI.Datatype) -> None:
    """Set `inout = arriving`: an associative operator that does not commute."""
    inout[:] = arriving[:]


def observed_calls() -> list[list[int]]:
    """Return the different calls that Open MPI's watcher saw since the last time it was asked."""
    if not HAS_CALL_WATCHER:
        return []
    out = ((ctypes.c_int * INTS_PER_CALL) * MAX_OBSERVED_CALLS)()
    count: int = ctypes.CDLL(None).tuner_executed(out)
    return [list(call) for call in out[:count]]


def watch_communicator(comm: MPI.Comm) -> None:
    """Have the watcher tell the calls of a communicator from others."""
    if HAS_CALL_WATCHER:
        ctypes.CDLL(None).tuner_expect(ctypes.c_void_p(MPI._handleof(comm)))


def entered_functions() -> list[str]:
    """Return the functions entered since the last time the watcher was asked, in no order."""
    if not HAS_FUNCTION_WATCHER:
        return []
    ask = ctypes.CFUNCTYPE(ctypes.c_char_p)(("tuner_entered", ctypes.CDLL(None)))
    return str(ask().decode()).split()


def make_call(comm: MPI.Comm, call: dict[str, Any], operator: MPI.Op) -> int:
    """Make one call and return the MPI error class."""
    try:
        call_on_zeros(comm, Collective(call["collective"]), call["nbytes"], operator)
    except MPI.Exception as reason:
        return int(reason.Get_error_class())
    return 0


def make_empty_calls(comm: MPI.Comm, call: dict[str, Any]) -> int:
    """Call without data and return the MPI error class."""
    try:
        call_without_data(comm, Collective(call["collective"]), commute=call["commutative"])
    except MPI.Exception as reason:
        return int(reason.Get_error_class())
    return 0


def observe_call(comm: MPI.Comm, call: dict[str, Any], operator: MPI.Op) -> dict[str, Any]:
    """Make a call and return its error and what the watchers saw."""
    if call["nbytes"] == 0:
        return {"error": make_empty_calls(comm, call), "executed": [], "entered": []}
    if HAS_FUNCTION_WATCHER or HAS_CALL_WATCHER:
        make_call(comm, call, operator)
    watch_communicator(comm)
    observed_calls(), entered_functions()
    error = make_call(comm, call, operator)
    return {"error": error, "executed": observed_calls(), "entered": entered_functions()}


def host_and_local_rank(world: MPI.Comm) -> tuple[int, int]:
    """Return the number of this rank's host and its local rank there.

    Hosts are numbered from that of rank 0 on.
    """
    names = world.allgather(MPI.Get_processor_name())
    mine = names[world.rank]
    return list(dict.fromkeys(names)).index(mine), names[: world.rank].count(mine)


def main(path: str) -> None:
    """Make every call on the ranks of its shape, in the order given."""
    world, first = MPI.COMM_WORLD, MPI.COMM_WORLD.rank == 0
    operators = {True: MPI.SUM, False: MPI.Op.Create(take_arriving, commute=False)}
    host, local = host_and_local_rank(world)
    shm_cleanup.unlink_shared_memory()
    calls = json.loads(Path(path).read_text(encoding="utf-8"))
    comms: dict[tuple[int, int], MPI.Comm] = {}
    for nodes, ppn in dict.fromkeys((call["nodes"], call["ppn"]) for call in calls):
        part = host < nodes and local < ppn
        comms[nodes, ppn] = world.Split(0 if part else MPI.UNDEFINED, world.rank)
    if first:
        print(json.dumps({"calls": len(calls)}), flush=True)
    for number, call in enumerate(calls):
        comm = comms[call["nodes"], call["ppn"]]
        if comm == MPI.COMM_NULL:
            continue
        said = observe_call(comm, call, operators[call["commutative"]])
        if first:
            print(json.dumps({"call": number, **said}), flush=True)
    world.Barrier()


if __name__ == "__main__":
    main(sys.argv[1])
