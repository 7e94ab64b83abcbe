"""Run by mpirun: staged algorithms go through the host, though MPI would take device pointers.

The device is pretended, on the host's memory.
"""

import os
from collections.abc import Iterator
from functools import cache

import numpy as np
from mpi4py import MPI

from tests.support.device import FakeDevice, resident
from tuner import algorithms
from tuner.core.collective import Collective
from tuner.core.measurement import Cluster
from tuner.core.path_classes import CUDA
from tuner.core.table import SCHEDULE, AlgorithmChoice, Evidence, Rule, RuleKey, TuningTable
from tuner.runtime import cuda_support
from tuner.runtime.agreement import library_name

WORLD = MPI.COMM_WORLD
DEVICE = FakeDevice()


def staged() -> Iterator[tuple[Collective, str]]:
    for collective in (Collective.BCAST, Collective.ALLREDUCE):
        for name in algorithms.algorithm_names(collective, algorithms.REQUIREMENTS):
            if algorithms.build(collective, name, WORLD.size).staged:
                yield collective, name


def table(collective: Collective, choice: AlgorithmChoice) -> TuningTable:
    key = RuleKey(collective, 1, WORLD.size, CUDA)
    rule = Rule(key, 0, float("inf"), choice, Evidence("none"))
    return TuningTable(Cluster("here", 1, 2, "any", 1 << 30), library_name(), (rule,))


def check(right: bool, what: str) -> None:
    if not right:
        print(f"rank {WORLD.rank} of {WORLD.size}: {what}", flush=True)
        WORLD.Abort(1)


def main() -> None:
    os.environ["TUNER_CUDA_AWARE"] = "1"
    cuda_support.cuda_device = cache(lambda: DEVICE)  # before the dispatcher is imported
    from tuner.runtime import tune

    found = list(staged())
    for collective, name in found:
        made = table(collective, AlgorithmChoice(name, {}, SCHEDULE))
        comm = tune(WORLD.Dup(), made, memory=CUDA)
        for count in (1, 1003):
            mine, result = resident(np.arange(count) + WORLD.rank), resident(np.zeros(count, int))
            brought = DEVICE.brought_to_host
            if collective == Collective.BCAST:
                comm.Bcast(mine, 0)
                check(np.array_equal(mine, np.arange(count)), f"{name}: wrong")
                check(WORLD.rank > 0 or DEVICE.brought_to_host == brought + 1, f"{name}: direct")
            else:
                comm.Allreduce(mine, result)
                total = WORLD.size * np.arange(count) + sum(range(WORLD.size))
                check(np.array_equal(result, total), f"{name}: wrong")
                check(DEVICE.brought_to_host == brought + 1, f"{name}: direct")
        comm.Free()
    if WORLD.rank == 0:
        print(f"{len(found)} algorithms: all through the host")


main()
