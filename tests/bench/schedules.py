"""Our schedules against the same algorithms inside the library:

    python -m tests.bench.schedules [MPICH_PYTHON]

Both are called through the dispatcher on the same buffers, in random order, each sample from a
common start to the last rank's end. Prints the ratio of medians (ours / the library's) for every
algorithm, size and number of ranks, and their geometric mean per library with its interval.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.ladders import table_of
from tuner import algorithms
from tuner.base.processes import available_cores
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmChoice
from tuner.launch import Launcher
from tuner.mpi_libraries import library_module

SIZES = (1 << 16, 1 << 18, 1 << 20, 1 << 22)
RANKS = {"openmpi": (4, 8), "mpich": (4,)}
SECONDS = 0.5  # of one comparison
TARGET = 0.02  # relative half-width at which a comparison ends earlier
LAUNCHES = 3
COLLECTIVES = (Collective.BCAST, Collective.ALLREDUCE)


def both(library: str, collective: Collective, p: int, nbytes: int) -> list[AlgorithmChoice]:
    """What the library and we have under one name and the same parameters."""
    ours = algorithms.algorithm_names(collective)
    offered = library_module(library).candidates(collective, p, nbytes)
    return [choice for choice in offered if choice.algorithm in ours]


def compare(library: str, version: str) -> None:
    """The ranks' part: print one JSON line per comparison."""
    from mpi4py import MPI

    from tuner.probe.collectives import CollectiveRun
    from tuner.probe.timing import Stopwatch, TimedOperation
    from tuner.runtime import tune

    world = MPI.COMM_WORLD
    watch = Stopwatch(world.Dup(), world.size > available_cores())
    for collective in COLLECTIVES:
        operators = "commutative" if collective.is_reduction else "any"
        for nbytes in SIZES:
            for choice in both(library, collective, world.size, nbytes):
                ours = AlgorithmChoice(choice.algorithm, choice.params, SCHEDULE)
                comms = [
                    tune(
                        world,
                        table_of(
                            {(collective, world.size, operators): [(0, arm)]}, library=version
                        ),
                    )
                    for arm in (choice, ours)
                ]
                call = CollectiveRun(collective, nbytes)
                assert all(call.is_correct(comm, 7) for comm in comms), str(choice)
                arms = [TimedOperation(timed) for timed in call.make_calls(comms)]
                samples = watch.sample(
                    arms, ci_half_width=TARGET, seconds=SECONDS, seed=1, is_comparison=False
                )
                for comm in comms:
                    comm.finalize()
                if world.rank == 0:
                    theirs, mine = np.median(samples, axis=0)
                    record = {
                        "call": f"{collective} {nbytes}",
                        "algorithm": str(choice),
                        "library_s": theirs,
                        "ours_s": mine,
                    }
                    print(json.dumps(record), flush=True)


def launch(library: str, python: Path) -> None:
    """All comparisons under one library, each launch anew; the launch is the unit of intervals."""
    from tuner.core.speedup import (
        mean_over_launches,  # scipy, which the ranks' environment may lack
    )

    launcher = Launcher.find(library, python)
    command = ["-m", "mpi4py", "-m", "tests.bench.schedules", "--rank", library, launcher.version()]
    everything: list[list[float]] = [[] for _ in range(LAUNCHES)]
    for p in RANKS[library]:
        found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)

        for number in range(LAUNCHES):
            run = launcher.run(p, command)
            for record in map(json.loads, run.stdout.splitlines()):
                found[record["call"], record["algorithm"]].append(record)
                everything[number].append(record["ours_s"] / record["library_s"])
        for (call, algorithm), records in found.items():
            ratios = [record["ours_s"] / record["library_s"] for record in records]
            theirs = np.median([record["library_s"] for record in records])
            print(
                f"{library} p={p} {call:18} {algorithm:42} library {1e6 * theirs:9.1f} us,"
                f" ours / library {np.exp(np.mean(np.log(ratios))):.2f}"
            )
    means = [[float(np.exp(np.mean(np.log(ratios))))] for ratios in everything]
    mean, low, high = mean_over_launches(means)
    print(f"{library}: geometric mean {mean:.3f}, 95 % interval {low:.3f} to {high:.3f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        compare(*sys.argv[2:4])
    else:
        launch("openmpi", Path(sys.executable))
        for path in sys.argv[1:]:
            launch("mpich", Path(path))
