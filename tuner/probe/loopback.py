"""What the transport's software takes of a message: two ranks of one host that talk as if they were
on two (rank side; `tuner.probe.cluster` starts it in a launch of its own).

Between two hosts a short message takes as long, and the latency of the links.
"""

from __future__ import annotations

import json

from mpi4py import MPI

from tuner.probe.pointtopoint import pingpong
from tuner.probe.timing import Stopwatch

NBYTES = 8
SECONDS, TARGET = 1.0, 0.01


def main() -> None:
    """Rank 0 prints the one-way seconds of each sample as a JSON list."""
    comm = MPI.COMM_WORLD
    watch = Stopwatch(comm.Dup(), crowded=False)
    taken = watch.sample(
        [pingpong(comm, NBYTES)], target=TARGET, seconds=SECONDS, seed=1, compete=False
    )
    if comm.rank == 0:
        print(json.dumps([float(seconds) / 2 for seconds in taken[:, 0]]), flush=True)


if __name__ == "__main__":
    main()
