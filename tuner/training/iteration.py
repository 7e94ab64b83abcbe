"""Predictions of training: the time of an iteration, and where it goes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.machines.model_accuracy import SizedCall
from tuner.training.call_times import CallTimes
from tuner.training.compute import divide_over_layers
from tuner.training.groups import Call
from tuner.training.job import TrainingJob
from tuner.training.recorded import COMPUTE
from tuner.training.recorded_training import RecordedTraining, add_recorded_iteration
from tuner.training.timeline import CALL, COMPUTATION, COPY, Operation, Timeline, busy_seconds
from tuner.training.workload import Workload

WARM_UP_ITERATIONS = 1  # before the pipelines of communication are filled
ITERATIONS = 2  # whose mean time counts if all ranks compute alike
NOISY_ITERATIONS = 30  # the same if they do not
HOST_COPY_RATE = 8e9  # bytes per second of a core that copies host memory


@dataclass(frozen=True)
class PredictedCall:
    """A call of an iteration: how often it is made, what runs it, and its seconds.

    predicted_by    what predicts the seconds: NCCL or SIMULATION
    nodes           number of nodes of one of its groups
    ppn             largest number of ranks of this group on a node
    """

    call: Call
    count: int
    algorithm: str
    seconds: float
    predicted_by: str
    nodes: int = 1
    ppn: int = 1


@dataclass(frozen=True)
class PredictedIteration:
    """An iteration of training on some number of ranks.

    seconds         time of an iteration
    compute         seconds in which a rank computes, without noise
    exposed         seconds of the iteration in which the rank waits or communicates only
    communication   seconds in which at least one call or copy runs
    samples         samples of all ranks in an iteration
    alone           samples per second of one rank that never waits
    calls           calls of an iteration, by operation and size
    timeline        operations of the last iteration
    """

    ranks: int
    nodes: int
    seconds: float
    compute: float
    exposed: float
    communication: float
    samples: float
    alone: float
    calls: tuple[PredictedCall, ...]
    timeline: tuple[Operation, ...]

    @property
    def rate(self) -> float:
        return self.samples / self.seconds

    @property
    def efficiency(self) -> float:
        """The rate over that of as many ranks that do not have to wait for one another."""
        return self.rate / (self.ranks * self.alone)


def predict_iteration(
    workload: Workload, ranks: int, times: CallTimes | None = None
) -> PredictedIteration:
    """Return the prediction for one number of ranks; raises InputError.

    times       times of the calls, by default those of the workload's policy
    """
    job = make_job(workload, ranks, times)
    timeline = Timeline(ranks if job.noise else 1)
    ready: list[int | None] = [None] * len(workload.model.layers)
    ends = []
    count = WARM_UP_ITERATIONS + (NOISY_ITERATIONS if job.noise else ITERATIONS)
    for timeline.iteration in range(count):
        ready = workload.framework.add_iteration(job, timeline, ready)
        ends.append(timeline.end_of(COMPUTE))
    seconds = (ends[-1] - ends[WARM_UP_ITERATIONS - 1]) / (count - WARM_UP_ITERATIONS)
    compute = workload.framework.compute_seconds(job)
    replicas = ranks // workload.framework.replica_ranks
    samples = workload.rank_batch(ranks) * workload.passes
    last = tuple(one for one in timeline.operations if one.iteration == count - 1)
    return PredictedIteration(
        ranks,
        job.times.placement.shape[0],
        seconds,
        compute,
        max(0.0, seconds - compute),
        busy_seconds(one for one in last if one.phase in (CALL, COPY)),
        replicas * samples,
        samples / (compute * workload.framework.replica_ranks),
        tuple(_calls(job.times, last)),
        last,
    )


def predict_recorded(training: RecordedTraining, ranks: int) -> PredictedIteration:
    """Return the prediction of a recorded iteration on some number of ranks; raises InputError."""
    times = training.call_times(ranks)
    timeline = Timeline()
    add_recorded_iteration(training.recorded, times, timeline)
    done = tuple(timeline.operations)
    seconds = timeline.end_of(COMPUTE)
    compute = sum(float(one.end[0] - one.start[0]) for one in done if one.phase == COMPUTATION)
    if not seconds:
        raise InputError(f"{training.recorded.name}: at least one step must take time")
    samples = training.samples(ranks)
    return PredictedIteration(
        ranks,
        times.nodes,
        seconds,
        compute,
        seconds - compute,
        busy_seconds(one for one in done if one.phase == CALL),
        samples,
        samples / (ranks * compute) if compute else float("inf"),
        tuple(_calls(times, done)),
        done,
    )


def make_job(workload: Workload, ranks: int, times: CallTimes | None = None) -> TrainingJob:
    """Return the job of a workload on some number of ranks; raises InputError.

    A rank alone has no noise: it waits for no other, and its given rate is its mean.

    times       times of the calls, by default those of the workload's policy
    """
    gpu = workload.machine.spec.gpu if workload.machine.spec else None
    memory_rate = gpu.memory_rate.value if gpu else HOST_COPY_RATE
    layers = divide_over_layers(
        workload.model, workload.rank_batch(ranks), workload.rate, memory_rate, workload.passes
    )
    return TrainingJob(
        workload.model,
        layers.forward,
        layers.backward,
        layers.update,
        times or workload.call_times(ranks),
        workload.element_bytes,
        workload.element_bytes,
        memory_rate,
        workload.passes,
        workload.noise if ranks > 1 else 0.0,
        np.random.default_rng(0),
        workload.rank_batch(ranks),
        gpu.memory_size.value if gpu and gpu.memory_size else 0.0,
    )


def _calls(times: CallTimes, operations: Sequence[Operation]) -> Iterator[PredictedCall]:
    """Yield the calls of an iteration, the largest first."""
    made = Counter[Call]()
    for one in operations:
        if one.call is not None:
            made[one.call] += one.count
    for call in sorted(made, key=lambda call: (call.operation, -call.nbytes)):
        timed = times.timed(call)
        done = made[call], timed.algorithm, timed.seconds, timed.predicted_by
        yield PredictedCall(call, *done, *times.shape(call.group))


def calls_by_model(iterations: Iterable[PredictedIteration]) -> dict[str, list[SizedCall]]:
    """Return the collective calls of iterations by what predicts their times."""
    found = defaultdict[str, list[SizedCall]](list)
    for one in (call for iteration in iterations for call in iteration.calls):
        if one.seconds and one.call.own_algorithm is None:
            sized = SizedCall(Collective(one.call.operation), one.nodes, one.call.nbytes)
            found[one.predicted_by].append(sized)
    return found
