"""Gradients and parameters of the stages of a divided transformer: bytes, buckets and calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from tuner.core.collective import Collective
from tuner.training.frameworks.parallel_settings import (
    DATA,
    EXPERTS,
    PIPELINE,
    ParallelSettings,
    blocks_of,
    shape_of,
)
from tuner.training.frameworks.pipeline_passes import add_call
from tuner.training.groups import Call, Group
from tuner.training.job import TrainingJob
from tuner.training.model import Model
from tuner.training.timeline import Timeline

LEAST_BUCKET = 40_000_000  # elements; Megatron-LM's default
BUCKET_PER_REPLICA = 1_000_000  # elements; Megatron-LM's default


def stage_elements(parallel: ParallelSettings, model: Model) -> list[int]:
    """Return the trained elements of a rank of each stage, shape (stages,)."""
    return [shared + experts for shared, experts in _stage_parts(parallel, model)]


def updated_elements(parallel: ParallelSettings, model: Model, replicas: int) -> list[float]:
    """Return the elements that a rank of each stage updates, shape (stages,).

    A distributed optimizer divides parameters over the replicas that have them, which are fewer
    for experts.
    """
    if not parallel.distributed:
        return [float(elements) for elements in stage_elements(parallel, model)]
    same_experts = replicas / parallel.expert
    return [
        shared / replicas + experts / same_experts
        for shared, experts in _stage_parts(parallel, model)
    ]


def gradient_buckets(
    parallel: ParallelSettings, job: TrainingJob, stage: int, chunk: int
) -> Iterator[list[int]]:
    """Yield the layers of a chunk, the last blocks first, whose gradients are reduced at once.

    Megatron-LM divides only what the first stage computes last (its class
    DistributedDataParallel, whose buckets are complete with the block that fills them).
    """
    layers = parallel.layers_of(job.model, stage, chunk)
    if stage or chunk:
        yield layers
        return
    limit = max(LEAST_BUCKET, BUCKET_PER_REPLICA * parallel.replicas(job)) * job.gradient_bytes
    blocks = [*blocks_of([job.model.layers[at] for at in layers])]
    bucket = list[int]()
    for _, block in groupby(zip(blocks[::-1], layers[::-1], strict=True), lambda one: one[0]):
        bucket += [at for _, at in block]
        if sum(_own_bytes(parallel, job.model, bucket, job.gradient_bytes)) >= limit:
            yield bucket[::-1]
            bucket = []
    if bucket:
        yield bucket[::-1]


def reduce_gradients(
    parallel: ParallelSettings,
    job: TrainingJob,
    timeline: Timeline,
    stage: int,
    layers: Sequence[int],
    after: int,
) -> Iterator[int]:
    """Add the reduction of the gradients of some layers over the replicas; yield its calls."""
    collective = Collective.REDUCE_SCATTER if parallel.distributed else Collective.ALLREDUCE
    parts = _replicated_parts(parallel, job, layers, job.gradient_bytes)
    for nbytes, group in parts:
        call = Call(collective.value, nbytes, group)
        yield add_call(timeline, job, f"stage {stage} gradients", call, [after])
    if not parts:
        yield after


def reduce_embedding(
    parallel: ParallelSettings, job: TrainingJob, timeline: Timeline, after: Sequence[int]
) -> list[int]:
    """Add the sum of the gradients of the embedding over the first and the last stage."""
    nbytes = shape_of(job.model).tied * job.gradient_bytes // parallel.tensor
    if parallel.pipeline == 1 or not nbytes:
        return []
    group = Group(2, parallel.group(job, PIPELINE).stride, parallel.pipeline)
    call = Call(Collective.ALLREDUCE.value, nbytes, group)
    return [add_call(timeline, job, "embedding gradients", call, after)]


def gather_parameters(
    parallel: ParallelSettings, job: TrainingJob, timeline: Timeline, stage: int, after: int
) -> int:
    """Add the gathering of updated parameters of a stage; return the last call."""
    layers, last = parallel.layers_of_stage(job.model, stage), after
    for nbytes, group in _replicated_parts(parallel, job, layers, job.parameter_bytes):
        call = Call(Collective.ALLGATHER.value, nbytes, group)
        last = add_call(timeline, job, f"stage {stage} gradients", call, [after])
    return last


def _replicated_parts(
    parallel: ParallelSettings, job: TrainingJob, layers: Sequence[int], element_bytes: int
) -> list[tuple[int, Group]]:
    """Return the bytes of a rank's parameters, if any, and the ranks that have the same ones."""
    shared, experts = _own_bytes(parallel, job.model, layers, element_bytes)
    parts = ((shared, parallel.group(job, DATA)), (experts, parallel.same_experts(job)))
    return [(nbytes, group) for nbytes, group in parts if nbytes]


def _stage_parts(parallel: ParallelSettings, model: Model) -> list[tuple[int, int]]:
    """Return the elements of a rank of each stage: what every replica has, and experts."""
    stages = range(parallel.pipeline)
    return [_own_bytes(parallel, model, parallel.layers_of_stage(model, at), 1) for at in stages]


def _own_bytes(
    parallel: ParallelSettings, model: Model, layers: Sequence[int], element_bytes: int
) -> tuple[int, int]:
    """Return the bytes of a rank's parameters: what every replica has, and experts."""
    there = [model.layers[at] for at in layers]
    experts = sum(one.elements for one in there if one.name.endswith(EXPERTS))
    shared = sum(one.elements for one in there) - experts
    if parallel.pipeline > 1 and len(model.layers) - 1 in layers:
        shared += shape_of(model).tied
    return (
        shared * element_bytes // parallel.tensor,
        experts * element_bytes // (parallel.tensor * parallel.expert),
    )
