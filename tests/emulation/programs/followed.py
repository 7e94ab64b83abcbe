"""What two ranks on each of two hosts follow under a table, dealt to the hosts in every way: TABLE.

Rank 0 prints as JSON, for every order of the four: the layout that all ranks found, the algorithms
that they follow for a broadcast of 4 KiB, and whether all results are right.
"""

import json
import sys
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from tuner.core.collective import Collective
from tuner.core.table import TuningTable, read_table
from tuner.runtime import tune
from tuner.runtime.comm_layout import CommLayout, NodePlaces
from tuner.runtime.consensus import run_together
from tuner.runtime.table_binding import matching_rules

WORLD = MPI.COMM_WORLD
NBYTES = 4096


def layout_of(comm: MPI.Intracomm) -> CommLayout | None:
    """Return how the ranks lie on the hosts; collective."""
    places, failure = run_together(comm, NodePlaces.gather)
    assert places is not None, failure
    return places.layout(comm)


def followed(comm: MPI.Intracomm, table: TuningTable) -> list[str]:
    """The choices of the rules that hold there for such a broadcast."""
    layout = layout_of(comm)
    ladders = {} if layout is None else matching_rules(table, layout, "host")
    return [
        str(rule.choice)
        for key, ladder in ladders.items()
        if (key.collective, key.operators) == (Collective.BCAST, "any")
        for rule in ladder
        if rule.start_bytes <= NBYTES < rule.stop_bytes
    ]


def right(comm: MPI.Intracomm, table: TuningTable) -> bool:
    """Whether every rank gets what the last one sends; the communicator is freed."""
    tuned = tune(comm, table)
    data, last = np.full(NBYTES // 4, comm.rank, np.int32), comm.size - 1
    tuned.Bcast(data, last)
    tuned.Free()
    return bool((data == last).all())


def main(path: str) -> None:
    """Every order of the ranks of the world."""
    table, found = read_table(Path(path)), list[dict[str, Any]]()
    for order in permutations(range(WORLD.size)):
        comm = MPI.Intracomm(WORLD.Split(0, order[WORLD.rank]))
        mine = {
            "layout": layout_of(comm),
            "follows": followed(comm, table),
            "right": right(comm, table),
        }
        everyone = WORLD.allgather(mine)
        assert everyone == [mine] * WORLD.size
        found.append({"order": order, **mine})
    if WORLD.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
