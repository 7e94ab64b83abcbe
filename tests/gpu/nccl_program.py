"""Run by mpirun: NCCL gives what MPI gives, or every rank says the same reason why not.

nccl_program.py own|shared|versions     a GPU for each rank, or the first one for all; of the
                                        stand-in another version on every rank
"""

import os
import sys
from itertools import product
from typing import Any

import numpy as np
from mpi4py import MPI

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.runtime import nccl as nccl_module
from tuner.runtime.cuda_support import cuda_device
from tuner.runtime.nccl import NcclComm, Unavailable, connect

WORLD = MPI.COMM_WORLD
COUNTS = (0, 1, 5, 5003)
LARGE = 1 << 20  # elements, which say nothing of the stand-in
OPERATORS = (MPI.SUM, MPI.PROD, MPI.MIN, MPI.MAX)


def numbers(count: int, dtype: str) -> Any:
    return ((np.arange(count) + WORLD.rank) % 3 + 1).astype(dtype)


def require(right: bool, what: str) -> None:
    if not right:
        print(f"rank {WORLD.rank} of {WORLD.size}: {what}: wrong", flush=True)
        WORLD.Abort(1)


def check(nccl: NcclComm, count: int, dtype: str, on_device: bool) -> None:
    """Broadcast from the last rank, and reductions, in place and not."""
    import cupy

    put = cupy.asarray if on_device else np.array
    mine, root = numbers(count, dtype), WORLD.size - 1
    content = put(mine)
    nccl.bcast(content, root)
    WORLD.Bcast(mine, root)
    require(cupy.asnumpy(content).tobytes() == mine.tobytes(), f"broadcast {count} {dtype}")
    for op in OPERATORS:
        mine, result = numbers(count, dtype), np.zeros(count, dtype)
        WORLD.Allreduce(mine, result, op)
        given, taken = put(mine), put(np.zeros(count, dtype))
        nccl.allreduce(given, taken, op)
        require(cupy.asnumpy(taken).tobytes() == result.tobytes(), f"reduction {count} {dtype}")
        require(cupy.asnumpy(given).tobytes() == mine.tobytes(), "operand")
        nccl.allreduce(MPI.IN_PLACE, given, op)
        require(cupy.asnumpy(given).tobytes() == result.tobytes(), f"in place {count} {dtype}")


def choose(how: str) -> None:
    """Make this rank's GPU current."""
    if how == "versions":
        os.environ["CUPY_STANDIN_NCCL"] = ("23203", "21801")[WORLD.rank % 2]
    try:
        cuda_device()
    except InputError:
        return
    import cupy

    present = cupy.cuda.runtime.getDeviceCount()
    cupy.cuda.Device(WORLD.rank % present if how != "shared" else 0).use()


def main(how: str) -> None:
    choose(how)
    answer = connect(WORLD.Dup())
    if isinstance(answer, Unavailable):
        reasons = WORLD.allgather(answer.reason)
        require(len(set(reasons)) == 1, "the reasons differ")
        if WORLD.rank == 0:
            print(f"cannot: {reasons[0]}")
        return
    require(answer.supports(Collective.ALLREDUCE, MPI.SUM, MPI.FLOAT), "what it can")
    import cupy

    nccl_module._MAX_BCAST_BYTES = 1 << 14  # so that large broadcasts go in parts
    counts = COUNTS if hasattr(cupy, "_driver") else (*COUNTS, LARGE)
    for count, dtype, parity in product(counts, ("i", "f", "d", "B"), (0, 1, 2)):
        check(answer, count, dtype, parity == 2 or (WORLD.rank + parity) % 2 == 0)
    answer.release()
    if WORLD.rank == 0:
        print("all equal")


main(sys.argv[1])
