"""The ranks of a replay: they make the calls of a plan while a thread of each one computes.

The main thread makes all calls of MPI, so that any library will do, whatever it says of threads.
All ranks make the calls in the order of the plan, or of the cycles that they agree on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from tests.replay.replay_plan import ReadyTensor, ReplayCycles, ReplayPlan, ReplayStep
from tests.replay.streams import SPIN, ComputeStream, Progress, awaited, sleep_until, spin_until
from tuner.base.arrays import AnyArray, FloatArray
from tuner.core.collective import Collective
from tuner.probe.collectives import CollectiveRun, page_aligned_ones
from tuner.runtime import tune
from tuner.training.buckets import fill_buckets
from tuner.training.recorded import SEND

ELEMENT_BYTES = 4
TAG = 1


class _CallKey(NamedTuple):
    operation: str
    nbytes: int
    size: int
    stride: int

    @classmethod
    def of_step(cls, step: ReplayStep) -> _CallKey:
        return cls(step.operation, step.nbytes, step.size, step.stride)


class ReplayingRank:
    """One rank of a replay of a plan, which can run again and again.

    world       communicator of all ranks, of which the replay makes duplicates
    compute     SLEEP or SPIN
    """

    def __init__(self, plan: ReplayPlan, world: MPI.Intracomm, compute: str) -> None:
        self.plan = plan
        self._world = world.Dup()
        self._wait_until = spin_until if compute == SPIN else sleep_until
        self._random = np.random.default_rng(world.rank)
        self._comms: dict[tuple[int, int], Any] = {}
        self._calls: dict[_CallKey, Callable[[], object]] = {}
        for step in plan.steps:
            if step.operation:
                self._call(_CallKey.of_step(step))

    def run(self, iterations: int) -> FloatArray:
        """Return the seconds of each iteration after the first on this rank; collective."""
        progress = Progress(len(self.plan.steps) + 1)
        compute = ComputeStream(
            self.plan.steps, progress, self._slowdown(iterations), self._wait_until
        )
        self._world.Barrier()
        compute.start()
        try:
            if self.plan.cycles:
                self._run_cycles(self.plan.cycles, progress, iterations)
            else:
                self._run_steps(progress, iterations)
        except BaseException:
            progress.fail()
            raise
        compute.join()
        if len(compute.ends) < iterations:
            raise RuntimeError("the thread that computes has failed")
        return np.diff(compute.ends)

    def _slowdown(self, iterations: int) -> FloatArray:
        """Draw the factor of the compute time of each iteration."""
        drawn = self._random.standard_normal(iterations)
        factor: FloatArray = np.exp(self.plan.noise * drawn - self.plan.noise**2 / 2)
        return factor

    def _run_steps(self, progress: Progress, iterations: int) -> None:
        """Make the calls and copies of all iterations in the order of the plan."""
        for iteration in range(iterations):
            for number, step in enumerate(self.plan.steps):
                if step.computes:
                    continue
                progress.wait(awaited(step, iteration))
                if step.operation:
                    self._call(_CallKey.of_step(step))()
                else:
                    sleep_until(time.monotonic() + step.seconds)
                progress.mark(number)

    def _run_cycles(self, cycles: ReplayCycles, progress: Progress, iterations: int) -> None:
        """Reduce in cycles what is ready on all ranks, until all iterations are done.

        Cycles go on while nothing is ready, as Horovod's do.
        """
        start = time.monotonic()
        for iteration in range(iterations):
            waiting = list(range(len(cycles.tensors)))
            while waiting:
                sleep_until(start + cycles.cycle_time)
                start = time.monotonic()
                ready = self._agree(cycles, progress, waiting, iteration)
                waiting = [number for number in waiting if not ready[number]]
                here = [cycles.tensors[number] for number in np.flatnonzero(ready)]
                for bucket in fill_buckets(here, cycles.threshold):
                    self._reduce_bucket(cycles, bucket)
            progress.mark(len(self.plan.steps))

    def _agree(
        self, cycles: ReplayCycles, progress: Progress, waiting: list[int], iteration: int
    ) -> AnyArray:
        """Return which of the waiting tensors are ready on all ranks; collective."""
        own = np.zeros(len(cycles.tensors), np.uint8)
        for number in waiting:
            own[number] = progress.has_ended(cycles.tensors[number].made_by, iteration + 1)
        if cycles.cache:
            bits = np.packbits(own)
            self._world.Allreduce(MPI.IN_PLACE, bits, MPI.BAND)
            return np.unpackbits(bits)[: len(own)]
        requests = np.zeros((self._world.size, len(own)), np.uint8)
        self._world.Gather(own, requests)
        own[:] = requests.all(axis=0)
        self._world.Bcast(own)
        return own

    def _reduce_bucket(self, cycles: ReplayCycles, bucket: list[ReadyTensor]) -> None:
        nbytes = sum(one.nbytes for one in bucket)
        copied = len(bucket) > 1 and cycles.copy_rate > 0
        seconds = 2 * nbytes / cycles.copy_rate if copied else 0.0
        sleep_until(time.monotonic() + seconds)
        for key in self._allreduce(nbytes, cycles.local_size):
            self._call(key)()
        sleep_until(time.monotonic() + seconds)

    def _allreduce(self, nbytes: int, local_size: int) -> Iterator[_CallKey]:
        """Yield the calls of one allreduce; hierarchical if nodes have `local_size` ranks."""
        p = self._world.size
        if not local_size:
            yield _CallKey(Collective.ALLREDUCE.value, nbytes, p, 1)
            return
        share = -(-nbytes // local_size)
        yield _CallKey(Collective.REDUCE_SCATTER.value, nbytes, local_size, 1)
        yield _CallKey(Collective.ALLREDUCE.value, share, p // local_size, local_size)
        yield _CallKey(Collective.ALLGATHER.value, nbytes, local_size, 1)

    def _call(self, key: _CallKey) -> Callable[[], object]:
        """Return the call of MPI on buffers of its own; the first time collective."""
        if key not in self._calls:
            self._calls[key] = self._bind(key)
        return self._calls[key]

    def _bind(self, key: _CallKey) -> Callable[[], object]:
        if key.size == 1 or key.nbytes == 0:
            return _nothing
        comm = self._comm(key.size, key.stride)
        unit = ELEMENT_BYTES * comm.size
        nbytes = -(-key.nbytes // unit) * unit  # equal shares of whole elements
        if key.operation == SEND:
            return partial(_send, comm, page_aligned_ones(nbytes))
        return CollectiveRun(Collective(key.operation), nbytes).make_calls([comm])[0]

    def _comm(self, size: int, stride: int) -> Any:
        """Return the communicator of this rank's group, tuned if there is a table; collective."""
        if (size, stride) not in self._comms:
            rank = self._world.rank
            group = rank // (size * stride) * stride + rank % stride
            comm = self._world.Split(group, rank)
            table = self.plan.table
            self._comms[size, stride] = tune(comm, table) if table else comm
        return self._comms[size, stride]


def _nothing() -> None:
    """Do nothing, for a group of one rank."""


def _send(comm: MPI.Intracomm, buffer: AnyArray) -> None:
    """Send one message from the first rank of a group to the second."""
    if comm.rank == 0:
        comm.Send(buffer, 1, TAG)
    elif comm.rank == 1:
        comm.Recv(buffer, 0, TAG)
