"""The program whose ranks time a library with and without a table: `tuner.probe.heldout ORDER`.

ORDER is JSON: {cores, target, seed, arms, points}; an arm is the control variables under which its
communicator is created, a point {collective, p, nbytes, seconds}. Rank 0 prints one line for each
point, {point, samples}, with one list of seconds for each arm; samples of one index were taken
back to back, in random order.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mpi4py import MPI

from tuner.collective import Collective
from tuner.probe.collectives import Call
from tuner.probe.timing import Arm, Stopwatch, wait_quietly
from tuner.runtime import traces
from tuner.runtime.forcing import Forcing


def main(path: str) -> None:
    """Time every point on its first `p` ranks while the others sleep."""
    order, world = json.loads(Path(path).read_text(encoding="utf-8")), MPI.COMM_WORLD
    for p in sorted({point["p"] for point in order["points"]}):
        comm = MPI.Intracomm(world.Split(0 if world.rank < p else MPI.UNDEFINED, world.rank))
        traces.hide()
        if comm != MPI.COMM_NULL:
            # A library that is switched at start-up has one arm without variables.
            forcing = Forcing("openmpi", comm)
            comms = [forcing.communicator(arm) for arm in order["arms"]]
            stopwatch = Stopwatch(comm, p > order["cores"])
            for number, point in enumerate(order["points"]):
                if point["p"] == p:
                    time_point(number, point, comms, stopwatch, order)
            forcing.release()
            comm.Free()
        wait_quietly(world)


def time_point(
    number: int, point: dict[str, Any], comms: Sequence[MPI.Comm], stopwatch: Stopwatch,
    order: dict[str, Any],
) -> None:  # fmt: skip
    """Time one point under every arm and print the samples."""
    call = Call(Collective(point["collective"]), point["nbytes"])
    samples = stopwatch.sample(
        [Arm(timed) for timed in call.timed(comms)],
        target=order["target"], seconds=point["seconds"], seed=order["seed"] + number,
    )  # fmt: skip
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps({"point": number, "samples": samples.T.tolist()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
