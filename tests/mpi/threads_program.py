"""Run by mpirun: threads that tune and call at once, each on a communicator of its own.

Prints `fine`, what is wrong, or the level of threads where MPI allows no such thing.
"""

import logging
import os
import threading

import numpy as np

os.environ["MPI4PY_RC_THREAD_LEVEL"] = "multiple"

from mpi4py import MPI

from tests.support.ladders import Rungs, table_of
from tests.support.waiting import be_slow
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, TuningTable
from tuner.runtime import tune
from tuner.runtime.agreement import library_name
from tuner.runtime.control_variables import ControlVariables

WORLD = MPI.COMM_WORLD
ALGORITHMS = ("binomial", "chain", "linear")
VARIABLES = ("coll_tuned_use_dynamic_rules", "coll_tuned_bcast_algorithm")
LIVES = 15
SIZES = (4, 400, 40_000)


class Sayings(logging.Handler):
    """What the log says is wrong, too."""

    def __init__(self, wrong: list[str]) -> None:
        super().__init__()
        self.wrong = wrong

    def emit(self, record: logging.LogRecord) -> None:
        self.wrong.append(record.getMessage())


def table(first: int) -> TuningTable:
    """Another algorithm of the library's for each size, in another order for each thread."""
    rungs: Rungs = [
        (size // 2, AlgorithmChoice(ALGORITHMS[(first + number) % len(ALGORITHMS)]))
        for number, size in enumerate(SIZES)
    ]
    return table_of(
        {(Collective.BCAST, WORLD.size): [(0, AlgorithmChoice()), *rungs]}, library=library_name()
    )


def lives(comm: MPI.Intracomm, number: int, wrong: list[str]) -> None:
    """Tune, make calls, and give up what belongs to the table; again and again."""
    be_slow((number + WORLD.rank) % 3 * 1e-3)  # ranks begin with different threads
    for life in range(LIVES):
        tuned = tune(comm, table(number))
        for size in SIZES:
            root = (life + number) % WORLD.size
            array = np.full(size, WORLD.rank, np.int8)
            tuned.Bcast(array, root)
            if (array != root).any():
                wrong.append(f"{size} bytes from {root}: {array[0]}")
        tuned.finalize()


def main() -> None:
    variables, wrong = ControlVariables(), list[str]()
    usual = [variables.read(name) for name in VARIABLES]
    logging.getLogger("tuner").addHandler(Sayings(wrong))
    comms = [WORLD.Dup() for _ in ALGORITHMS]
    threads = [
        threading.Thread(target=lives, args=(comm, number, wrong))
        for number, comm in enumerate(comms)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    now = [variables.read(name) for name in VARIABLES]
    if now != usual:
        wrong.append(f"variables are {now}, were {usual}")
    found = [text for texts in WORLD.allgather(wrong) for text in texts]
    if WORLD.rank == 0:
        print("; ".join(found[:5]) or "fine", flush=True)


if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
    main()
elif WORLD.rank == 0:
    print(f"level {MPI.Query_thread()}", flush=True)
