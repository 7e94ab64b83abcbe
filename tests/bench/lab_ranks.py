"""The program that the ranks of `lab_errors` run, with LIBRARY and a file of jobs, one a line.

Rank 0 prints the same jobs with their samples. A job is {"kind", "nbytes"} and, by kind:

collective  "collective", "settings": the library's own, on 4-byte elements
pingpong    one way between ranks 0 and 1, of several trips; the others sleep
exchange    "rows" exchanges that follow one another at once; all ranks, with one of "partners":
            "same" (r xor 1), "doubling" (r xor 1, r xor 2, r xor 4 ...), "ring"
fan         rank 0 to "peers" others, posted together
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from tuner.runtime.forcing import Forcing

WARM, TIMED = 2, 4
TRIPS = 5  # of a ping-pong
LEAD = 0.004  # s between agreeing on a start and starting
QUIET = 1e-2  # s
Call = Callable[[], object]


def seconds(control: MPI.Intracomm, call: Call) -> list[float]:
    """Last end minus common start, s; all hosts of a lab have one clock."""
    taken = []
    for _ in range(WARM + TIMED):
        control.Barrier()
        start = control.allreduce(time.monotonic(), MPI.MAX) + LEAD
        time.sleep(max(0.0, start - time.monotonic()))
        call()
        end = time.monotonic()
        over = control.Ibarrier()
        while not over.Test():  # ranks that have nothing to do leave the cores to the others
            time.sleep(QUIET)
        taken.append(control.allreduce(end, MPI.MAX) - start)
    return taken[WARM:]


def message(comm: MPI.Intracomm, job: dict[str, Any]) -> Call:
    """A ping-pong's there and back, exchanges or a fan."""
    rank, buffer = comm.rank, np.zeros(job["nbytes"], np.uint8)
    arriving = np.zeros_like(buffer)
    if job["kind"] == "pingpong":
        return lambda: _pingpong(comm, buffer)
    if job["kind"] == "fan":
        return lambda: _fan(comm, buffer, job["peers"])

    def exchanges() -> None:
        for row in range(job["rows"]):
            to, source = partners(job["partners"], row, rank, comm.size)
            comm.Sendrecv(buffer, to, 0, arriving, source, 0)

    return exchanges


def partners(pattern: str, row: int, rank: int, p: int) -> tuple[int, int]:
    """To whom a rank sends, from whom it receives."""
    if pattern == "ring":
        return (rank + 1) % p, (rank - 1) % p
    other = rank ^ (1 if pattern == "same" else 1 << row % (p.bit_length() - 1))
    return other, other


def _pingpong(comm: MPI.Intracomm, buffer: Any) -> None:
    for _ in range(TRIPS):
        if comm.rank == 0:
            comm.Send(buffer, 1)
            comm.Recv(buffer, 1)
        elif comm.rank == 1:
            comm.Recv(buffer, 0)
            comm.Send(buffer, 0)


def _fan(comm: MPI.Intracomm, buffer: Any, peers: int) -> None:
    if comm.rank == 0:
        MPI.Request.Waitall([comm.Isend(buffer, peer) for peer in range(1, peers + 1)])
    elif comm.rank <= peers:
        comm.Recv(buffer, 0)


def collective(comm: MPI.Intracomm, forcing: Forcing, job: dict[str, Any]) -> Call:
    """The library's collective under the settings of the job."""
    forced = forcing.communicator(job["settings"])
    before, after = forcing.around(job["settings"])
    data = np.ones(job["nbytes"] // 4, np.float32)
    result = np.empty_like(data)

    def call() -> None:
        before()
        if job["collective"] == "bcast":
            forced.Bcast(data, 0)
        else:
            forced.Allreduce(data, result, MPI.SUM)
        after()

    return call


def main(library: str, path: str) -> None:
    """All jobs of a file, in order."""
    comm = MPI.COMM_WORLD
    control, forcing = comm.Dup(), Forcing(library, comm)
    jobs = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    for job in jobs:
        known = job["kind"] == "collective"
        call = collective(comm, forcing, job) if known else message(comm, job)
        samples = seconds(control, call)
        if comm.rank == 0:
            ways = 2 * TRIPS if job["kind"] == "pingpong" else 1
            print(json.dumps({**job, "samples": [s / ways for s in samples]}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
