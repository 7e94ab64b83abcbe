"""The ranks of `tests.bench.dispatch_gain`: `tuned_ranks TABLE POINTS`.

POINTS is a JSON list of [collective, p, nbytes]. Rank 0 prints one line per point: its number and
the samples of the plain communicator, the tuned one and a duplicate of the plain one.
"""

import json
import sys

from mpi4py import MPI

from tuner.base.processes import available_cores
from tuner.core.collective import Collective
from tuner.probe.collectives import CollectiveRun
from tuner.probe.timing import Stopwatch, TimedOperation, yielding_barrier
from tuner.runtime import tune

SECONDS = 0.4  # of one point
TARGET = 0.02  # relative half-width at which a point ends earlier


def measure(path: str, points: list[tuple[str, int, int]]) -> None:
    """Every point on its first p ranks; the others sleep."""
    world = MPI.COMM_WORLD
    for p in sorted({p for _, p, _ in points}):
        comm = world.Split(0 if world.rank < p else MPI.UNDEFINED, world.rank)
        if comm != MPI.COMM_NULL:
            watch = Stopwatch(comm.Dup(), p > available_cores())
            tuned, duplicate = tune(comm, path), comm.Dup()
            for number, (collective, ranks, nbytes) in enumerate(points):
                if ranks == p:
                    call = CollectiveRun(Collective(collective), nbytes)
                    arms = [
                        TimedOperation(timed) for timed in call.make_calls([comm, tuned, duplicate])
                    ]
                    samples = watch.sample(
                        arms,
                        ci_half_width=TARGET,
                        seconds=SECONDS,
                        seed=number,
                        is_comparison=False,
                    )
                    if world.rank == 0:
                        print(json.dumps([number, samples.T.tolist()]), flush=True)
        yielding_barrier(world)


if __name__ == "__main__":
    measure(sys.argv[1], json.loads(sys.argv[2]))
