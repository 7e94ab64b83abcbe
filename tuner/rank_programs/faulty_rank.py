"""Make calls while one rank dies, stops for a time or is late (rank side).

REQUEST is the JSON record {table, fault, collective, nbytes, commutative}: all ranks follow the
table, or the library where it is null. The call is made once without a fault, and rank 0 prints
READY; then the last rank has the fault before the same call.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

from mpi4py import MPI

from tuner.core.collective import Collective
from tuner.core.peer_faults import FAULTS, READY
from tuner.probe.collectives import call_on_zeros
from tuner.rank_programs.validate import take_arriving
from tuner.runtime import tune

FAULT_S = 2.0  # for which a rank is late or stopped


def die() -> None:
    """End this process as the kernel does that is out of memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    """Stop this process for FAULT_S."""
    subprocess.Popen(["sh", "-c", f"sleep {FAULT_S}; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)


def be_late() -> None:
    """Make no call for FAULT_S."""
    time.sleep(FAULT_S)


ACTIONS = dict(zip(FAULTS, (die, stop, be_late), strict=True))


def main(request: str) -> None:
    """Make both calls; raises RuntimeError where the table is not followed."""
    asked, world = json.loads(request), MPI.COMM_WORLD
    comm = tune(world, asked["table"]) if asked["table"] else world
    if asked["table"] and getattr(comm, "table", None) is None:
        raise RuntimeError("the ranks do not follow the table")
    operator = MPI.SUM if asked["commutative"] else MPI.Op.Create(take_arriving, commute=False)
    call = partial(call_on_zeros, comm, Collective(asked["collective"]), asked["nbytes"], operator)
    call()
    world.Barrier()
    if world.rank == 0:
        print(READY, flush=True)
    world.Barrier()  # so that rank 0 has said so before another rank dies
    if world.rank == world.size - 1:
        ACTIONS[asked["fault"]]()
    call()
    world.Barrier()


if __name__ == "__main__":
    main(sys.argv[1])
