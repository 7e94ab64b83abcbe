"""Time collectives in alternation with another launch, without a C compiler (rank side).

    collective_times TURN SIDE SECONDS CALLS

It takes the same arguments and prints the same lines as tuner/validation/timing/collectives.c,
where both are described; the conditions are in the same order. It has fewer fresh buffers, which
may still lie in a cache. The overhead of Python is part of the times of both launches.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from random import Random

import numpy as np
from mpi4py import MPI

from tuner.base.statistics import midmean
from tuner.core.collective import Collective
from tuner.probe.collectives import CollectiveRun

CONDITIONS = ("barrier reused", "barrier fresh", "row reused", "row fresh")
CALLS_IN_A_ROW = 8  # of a sample under the conditions "row ..."
MIN_SAMPLES = 6  # of single calls
MIN_ROW_SAMPLES = 2  # of calls in a row
MAX_SAMPLES = 4000
WARM_UP_CALLS = 8
POOL_BYTES = 16 << 20  # of all fresh buffers
MAX_BUFFER_PAIRS = 512  # of fresh buffers
POLL_INTERVAL_S = 0.002  # between looks at the turn file
TURN_TIMEOUT_S = 120.0  # until waiting for a turn fails
NUMBER_SLOT, STOP_SLOT, READY_SLOT = range(3)  # indices in the turn file (`struct turns`)
SEED = 7


class TurnFile:
    """A file that says which launch measures; without one, this launch always does."""

    def __init__(self, path: str, side: int, comm: MPI.Intracomm) -> None:
        host = comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank)
        self._local, self._comm, self._path = host.rank, comm, path
        self._cores = sorted(os.sched_getaffinity(0))
        everyone = enumerate(host.allgather(self._cores))
        self._sharing = [local for local, cores in everyone if cores == self._cores]
        host.Free()
        self._values: memoryview | None = None
        if path != "-":
            self._values = self._map_file(path)
            comm.Barrier()
            if self._local == 0:
                self._values[READY_SLOT + side] = 1
            self._wait_for_value(READY_SLOT, 1)
            self._wait_for_value(READY_SLOT + 1, 1)

    def wait(self, number: int) -> None:
        """Sleep until it is the turn of measurement `number`."""
        if self._values is not None:
            self._wait_for_value(NUMBER_SLOT, number)
            self._spread_over_cores(number // 2)  # the same for both sides

    def end(self) -> None:
        """Let the next measurement begin."""
        self._comm.Barrier()
        if self._values is not None and self._local == 0:
            self._values[NUMBER_SLOT] += 1

    def _spread_over_cores(self, turn: int) -> None:
        """Shuffle ranks over their cores if they outnumber them; all cores stay allowed."""
        if len(self._sharing) <= len(self._cores):
            return
        order = self._sharing.copy()
        Random(f"{self._path} {turn}").shuffle(order)
        core = self._cores[order.index(self._local) % len(self._cores)]
        os.sched_setaffinity(0, {core})
        os.sched_setaffinity(0, self._cores)

    @staticmethod
    def _map_file(path: str) -> memoryview:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(descriptor, 16)
        values = memoryview(mmap.mmap(descriptor, 16)).cast("i")
        os.close(descriptor)
        return values

    def _wait_for_value(self, slot: int, number: int) -> None:
        assert self._values is not None
        end = time.monotonic() + TURN_TIMEOUT_S
        while self._values[slot] != number:
            if self._values[STOP_SLOT] or time.monotonic() > end:
                raise RuntimeError("the other launch has ended")
            time.sleep(POLL_INTERVAL_S)


@dataclass(frozen=True)
class TimedCollective:
    """A collective bound to the buffers that it is called on."""

    comm: MPI.Intracomm
    reused: Callable[[], object]
    fresh: cycle[Callable[[], object]]

    @classmethod
    def prepare(cls, comm: MPI.Intracomm, collective: Collective, nbytes: int) -> TimedCollective:
        """Return a collective with one reused pair of buffers and a pool of fresh ones."""
        number = min(MAX_BUFFER_PAIRS, max(4, POOL_BYTES // max(nbytes, 1)))
        made = [CollectiveRun(collective, nbytes).make_calls([comm])[0] for _ in range(number)]
        return cls(comm, made[0], cycle(made))

    def _meet(self) -> None:
        """Wait for all ranks, not by the Barrier that a table may have a rule for."""
        self.comm.Ibarrier().Wait()

    def measure(self, fresh: bool, times: int, seconds: float) -> float:
        """Return the mean of the middle half of the times, each that of the slowest rank."""
        calls = self.fresh if fresh else cycle((self.reused,))
        self._run(calls, 3)
        self._meet()
        each = self.comm.allreduce(self._run(calls, 4) * times, MPI.MAX)
        fewest = MIN_ROW_SAMPLES if times > 1 else MIN_SAMPLES
        taken = np.zeros(min(max(int(seconds / each), fewest), MAX_SAMPLES))
        for number in range(len(taken)):
            self._meet()
            taken[number] = self._run(calls, times)
        self.comm.Allreduce(MPI.IN_PLACE, taken, MPI.MAX)
        return float(midmean(taken))

    @staticmethod
    def _run(calls: cycle[Callable[[], object]], times: int) -> float:
        """Return the mean seconds of `times` calls, one after the other."""
        some = [next(calls) for _ in range(times)]
        begin = time.perf_counter()
        for call in some:
            call()
        return (time.perf_counter() - begin) / times


def main(turn: str, side: str, seconds: str, listed: str) -> None:
    """Time every call of the file under every condition."""
    world = MPI.COMM_WORLD
    turns = TurnFile(turn, int(side), world)
    lines = [line.split() for line in Path(listed).read_text(encoding="utf-8").splitlines()]
    if world.rank == 0:
        print("library:", *MPI.Get_library_version().split(), flush=True)
    for number, (name, nbytes, first) in enumerate(lines):
        collective, size = Collective(name), int(nbytes)
        timed = TimedCollective.prepare(world, collective, size)
        for condition in range(len(CONDITIONS)):
            turns.wait(2 * (4 * number + condition) + (side != first))
            right = condition > 0 or _warmed_up(timed, CollectiveRun(collective, size))
            right = world.allreduce(right, MPI.LAND)
            taken = timed.measure(
                condition % 2 == 1, 1 if condition < 2 else CALLS_IN_A_ROW, float(seconds)
            )
            if world.rank == 0:
                wrong = "" if right else f"{number} wrong 0\n"
                print(f"{wrong}{number} {CONDITIONS[condition]} {taken:.9g}", flush=True)
            turns.end()
    turns.wait(2 * 4 * len(lines))


def _warmed_up(timed: TimedCollective, call: CollectiveRun) -> bool:
    """Make the first calls, in which a library sets up; return whether the result is right then."""
    for _ in range(WARM_UP_CALLS):
        timed.reused()
    return call.is_correct(timed.comm, SEED)


if __name__ == "__main__":
    main(*sys.argv[1:])
