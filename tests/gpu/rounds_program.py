"""Run by mpirun: how often schedules on the stand-in wait for it, and ask about pointers."""

from typing import Any

import cupy
import numpy as np
from mpi4py import MPI

from tuner.algorithms import build
from tuner.core.collective import Collective
from tuner.runtime.buffers import contiguous_view
from tuner.runtime.executor import PersistentSchedule
from tuner.runtime.memory import DeviceMemory
from tuner.runtime.rank_schedule import RankSchedule

WORLD = MPI.COMM_WORLD
CHUNK = 1000  # elements


def bound(
    collective: Collective, name: str, content: Any, memory: DeviceMemory
) -> PersistentSchedule:
    part = RankSchedule.from_schedule(build(collective, name, WORLD.size), WORLD.rank, len(content))
    view = contiguous_view(content, writable=True)
    assert view is not None
    spare = memory.empty(part.extra_elements * content.dtype.itemsize)
    return PersistentSchedule(part, WORLD, view.flat, spare, content.dtype.itemsize, memory)


def main() -> None:
    memory = DeviceMemory()
    for collective in (Collective.ALLGATHER, Collective.ALLREDUCE):
        given = np.full(CHUNK * WORLD.size, WORLD.rank + 1.0)
        content = cupy.asarray(given)
        ring = bound(collective, "ring", content, memory)
        for _ in range(2):  # the first one compiles kernels, and tries them
            content[...] = given
            waits, queries = cupy._driver.waits, cupy._driver.queries
            ring.run(MPI.SUM, MPI.DOUBLE)
            counts = cupy._driver.waits - waits, cupy._driver.queries - queries
        ring.free()
        expected = np.repeat(np.arange(1.0, WORLD.size + 1), CHUNK)
        if collective == Collective.ALLREDUCE:
            expected = np.full(CHUNK * WORLD.size, expected.sum() / CHUNK)
        assert np.array_equal(content.get(), expected)
        if WORLD.rank == 0:
            print(f"{collective} ring: {counts[0]} waits, {counts[1]} queries")


main()
