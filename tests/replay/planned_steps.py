"""The plan of a replay, from the prediction of an iteration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tests.replay.replay_plan import ReadyTensor, ReplayCycles, ReplayPlan, ReplayStep
from tuner.base.errors import InputError
from tuner.core.table import TuningTable
from tuner.training.call_times import AlgorithmPolicy
from tuner.training.frameworks.fusion import Horovod
from tuner.training.frameworks.model_parallel import ModelParallel
from tuner.training.iteration import make_job, predict_iteration
from tuner.training.job import TrainingJob
from tuner.training.policies import FastestKnown, TableChoice
from tuner.training.recorded import COMPUTE
from tuner.training.timeline import CALL, UPDATE, Operation
from tuner.training.workload import Workload


def make_plan(workload: Workload, ranks: int, table: TuningTable | None = None) -> ReplayPlan:
    """Return the plan for one number of ranks.

    table       table that the calls follow, instead of the workload's algorithms

    Raises InputError for a workload that is not for this number of ranks, or that MPI cannot carry
    out.
    """
    if ranks not in workload.ranks:
        known = ", ".join(map(str, workload.ranks))
        raise InputError(f"{ranks} ranks were started, and the workload is for {known}")
    if isinstance(workload.framework, ModelParallel):
        raise InputError(f"{workload.name}: replay knows data-parallel frameworks only")
    if table is not None:
        workload = replace(workload, policy=TableChoice(table, _default_of(workload)))
    followed = _table_of(workload)
    predicted = predict_iteration(workload, ranks)
    even = replace(workload, noise=0.0)
    operations = (predict_iteration(even, ranks) if workload.noise else predicted).timeline
    horovod = workload.framework if isinstance(workload.framework, Horovod) else None
    cycles = None
    if horovod and ranks > 1:
        steps = _compute_steps(operations)
        cycles = _cycles(horovod, make_job(even, ranks), steps)
    else:
        steps = _all_steps(operations)
    return ReplayPlan(
        workload.name,
        ranks,
        predicted.nodes,
        predicted.seconds,
        predicted.compute,
        workload.noise,
        steps,
        cycles,
        followed,
    )


def _table_of(workload: Workload) -> TuningTable | None:
    if isinstance(workload.policy, TableChoice):
        return workload.policy.table
    if isinstance(workload.policy, FastestKnown):
        raise InputError(
            f"{workload.name}: MPI has no `algorithms: best`; name the file of a tuning table there"
            " or with --table"
        )
    return None


def _default_of(workload: Workload) -> AlgorithmPolicy:
    policy = workload.policy
    return policy.otherwise if isinstance(policy, TableChoice) else policy


def _all_steps(operations: Sequence[Operation]) -> tuple[ReplayStep, ...]:
    """Return the steps of all operations of an iteration, in the order in which they begin.

    The iteration before has the same operations, so a dependency on it is one on the same step.
    """
    first = operations[0].number
    order = sorted(operations, key=lambda one: (float(one.start.max()), one.number))
    place = {one.number - first: number for number, one in enumerate(order)}
    return tuple(_step(one, place, first) for one in order)


def _step(one: Operation, place: dict[int, int], first: int) -> ReplayStep:
    if one.phase == CALL and one.call is None:
        raise InputError(
            f"`{one.name}` on the stream `{one.stream}` is not a collective call: replay a"
            " workload of a framework without servers"
        )
    after = tuple(sorted({place[at - first] for at in one.after if at >= first}))
    before = tuple(sorted({place[at - first + len(place)] for at in one.after if at < first}))
    step = ReplayStep(one.name, one.stream == COMPUTE, _seconds(one), after, before)
    if one.call is None:
        return step
    called = one.call
    return replace(
        step,
        operation=called.operation,
        nbytes=called.nbytes,
        size=called.group.size,
        stride=called.group.stride,
    )


def _compute_steps(operations: Sequence[Operation]) -> tuple[ReplayStep, ...]:
    """Return the computation alone; its update waits for the reduction of all gradients."""
    own = [one for one in operations if one.stream == COMPUTE]
    return tuple(
        ReplayStep(one.name, True, _seconds(one), (len(own),) if one.phase == UPDATE else ())
        for one in own
    )


def _cycles(horovod: Horovod, job: TrainingJob, steps: Sequence[ReplayStep]) -> ReplayCycles:
    """Return the cycles; the steps of the last backward pass and the update are the last ones."""
    layers = len(job.model.layers)
    made = [len(steps) - 2 - layer for layer in range(layers)]
    return ReplayCycles(
        tuple(ReadyTensor(one.nbytes, one.made_by) for one in job.gradients(made)),
        horovod.cycle_time,
        horovod.buffer_bytes(job),
        horovod.cache,
        job.times.placement.shape[1] if horovod.hierarchical else 0,
        job.copy_rate if math.isfinite(job.copy_rate) else 0.0,
    )


def _seconds(one: Operation) -> float:
    return float((one.end - one.start)[0])
