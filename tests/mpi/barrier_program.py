"""Run by mpirun: no algorithm of a barrier lets a rank pass before all have arrived.

`barrier_program.py P ...`: every algorithm, ours and the library's own where it can be forced, on
communicators of these sizes, with every rank coming late in turn.
"""

import sys
from collections.abc import Iterator
from typing import Any

from mpi4py import MPI

from tests.support.ladders import table_of
from tuner import algorithms, mpi_libraries
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmChoice
from tuner.probe.collectives import waits_for_rank
from tuner.runtime import tune
from tuner.runtime.agreement import library_name

WORLD = MPI.COMM_WORLD
LIBRARY = library_name()
BARRIER = Collective.BARRIER


def choices(p: int) -> Iterator[AlgorithmChoice]:
    """Ours and the library's for so many ranks."""
    yield from (
        AlgorithmChoice(name, runner=SCHEDULE) for name in algorithms.algorithm_names(BARRIER)
    )
    yield from mpi_libraries.library_module(LIBRARY).candidates(BARRIER, p, 4)


def check(comm: Any, choice: AlgorithmChoice) -> int:
    """Call on a tuned communicator with each rank late in turn; return the number of calls."""
    tuned = tune(comm, table_of({(BARRIER, comm.size): [(0, choice)]}, library=LIBRARY))
    methods = (tuned.Barrier, tuned.barrier)
    made = 0
    for late in range(comm.size):
        for synchronise in methods:
            waited = waits_for_rank(comm, synchronise, late)
            made += 1
            if not waited:
                print(f"{choice}: rank {comm.rank} of {comm.size} passed before rank {late}")
                WORLD.Abort(1)
    tuned.finalize()
    return made


def notice(comm: MPI.Intracomm) -> None:
    """Return once a rank passes a call that does nothing, which it may enter late, too."""
    while comm.allreduce(waits_for_rank(comm, lambda: None, 0), MPI.LAND):
        pass


def main(sizes: list[int]) -> None:
    notice(WORLD)
    calls = 0
    for p in sizes:
        part = WORLD.Split(0 if WORLD.rank < p else MPI.UNDEFINED)
        if part != MPI.COMM_NULL:
            for choice in choices(p):
                calls += check(part, choice)
            part.Free()
    if WORLD.rank == 0:
        print(f"{calls} barriers held")


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]])
