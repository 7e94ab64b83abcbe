"""Run by mpirun: threads that call collectives at once, each on a tuned communicator of its own.

`thread_levels_program.py THREADS LEVEL ...`: rank r starts MPI with the r-th of the thread levels.
Rank 0 prints, from all ranks, the calls that followed a rule, the wrong results, and the lines of
the log.
"""

import json
import logging
import os
import sys
import threading
from itertools import chain
from typing import Any

import numpy as np

N_THREADS = int(sys.argv[1])
LEVELS = sys.argv[2:]
RANK = int(os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
os.environ["MPI4PY_RC_THREAD_LEVEL"] = LEVELS[RANK]

from mpi4py import MPI  # noqa: E402 - after the level is set

from tests.support.ladders import table_of  # noqa: E402 - after the level is set
from tuner.core.collective import Collective  # noqa: E402 - after the level is set
from tuner.core.table import AlgorithmChoice  # noqa: E402 - after the level is set
from tuner.runtime import tune  # noqa: E402 - after the level is set
from tuner.runtime.agreement import library_name  # noqa: E402 - after the level is set
from tuner.runtime.algorithm_control import AlgorithmControl  # noqa: E402 - after the level is set

WORLD = MPI.COMM_WORLD
CALLS = 200
COUNTS = (4, 400, 4000)
CHOICES = (  # that are forced by variables which the library reads at each call
    (AlgorithmChoice("binomial"), AlgorithmChoice("scatter_allgather_ring"))
    if "mpich" in library_name()
    else (AlgorithmChoice("knomial", {"radix": 2}), AlgorithmChoice("knomial", {"radix": 3}))
)
TABLE = table_of(
    {(Collective.BCAST, WORLD.size): [(0, CHOICES[0]), (1024, CHOICES[1])]}, library=library_name()
)


class Sayings(logging.Handler):
    """The lines of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def make_calls(comm: Any, first: int, wrong: list[int]) -> None:
    """Call Bcast with sizes in an order that differs between the threads."""
    for call in range(CALLS):
        count = COUNTS[(call + first) % len(COUNTS)]
        root = call % WORLD.size
        result = np.full(count, WORLD.rank)
        comm.Bcast(result, root)
        if (result != root).any():
            wrong.append(count)


def main() -> None:
    sayings, wrong, forced = Sayings(), list[int](), list[int]()
    logging.getLogger("tuner").addHandler(sayings)
    hooks = AlgorithmControl.hooks

    def counted(self: AlgorithmControl, settings: Any) -> Any:
        forced.append(1)
        return hooks(self, settings)

    AlgorithmControl.hooks = counted  # type: ignore[method-assign]
    comms = [tune(WORLD.Dup(), TABLE) for _ in range(N_THREADS)]
    threads = [
        threading.Thread(target=make_calls, args=(comm, number, wrong))
        for number, comm in enumerate(comms)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = WORLD.gather((len(forced), len(wrong), sayings.lines))
    if found:
        forced_by_rank, wrong_by_rank, lines = zip(*found, strict=True)
        record = {"forced": forced_by_rank, "wrong": wrong_by_rank, "log": [*chain(*lines)]}
        print(json.dumps(record), flush=True)


main()
