"""The work of a stage of a divided transformer in a pass: computation, calls, and messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.core.collective import Collective
from tuner.training.frameworks.parallel_settings import (
    DATA,
    EXPERTS,
    PIPELINE,
    TENSOR,
    ParallelSettings,
    blocks_of,
    shape_of,
)
from tuner.training.frameworks.pipeline_passes import StageWork
from tuner.training.groups import DISPATCH, Call, Group
from tuner.training.job import TrainingJob
from tuner.training.recorded import SEND
from tuner.training.timeline import BACKWARD, FORWARD

BLOCK_CALLS = 2  # of tensor parallelism, per block and pass


def stage_work(
    parallel: ParallelSettings, job: TrainingJob, layers: Sequence[int], phase: str
) -> StageWork:
    """Return what a stage does in a pass over some layers for one microbatch."""
    load = expert_loads(parallel, job, layers)
    forward = float((job.forward[layers] * load).sum()) / parallel.tensor
    backward = float((job.backward[layers] * load).sum()) / parallel.tensor
    again = parallel.recompute and phase == BACKWARD
    compute = forward if phase == FORWARD else backward + (forward if again else 0.0)
    times = 2 if again else 1
    calls = chain(
        _tensor_calls(parallel, job, layers, phase, times),
        _expert_calls(parallel, job, layers, times),
    )
    return StageWork(compute, tuple(calls))


def stage_message(parallel: ParallelSettings, job: TrainingJob) -> Call:
    """Return the message between two stages, of which each tensor rank sends its part."""
    nbytes = -(-_activation_bytes(parallel, job) // parallel.tensor)
    return Call(SEND, nbytes, parallel.group(job, PIPELINE))


def _tensor_calls(
    parallel: ParallelSettings, job: TrainingJob, layers: Sequence[int], phase: str, times: int
) -> Iterator[tuple[Call, int]]:
    """Yield the calls of tensor parallelism in a pass over some layers.

    The embedding adds one in its forward pass and the head one in its backward pass.
    """
    if parallel.tensor == 1:
        return
    names = [job.model.layers[at] for at in layers]
    blocks = len({block for block in blocks_of(names) if block is not None})
    ends = [layer for layer, block in zip(names, blocks_of(names), strict=True) if block is None]
    extra = sum(1 for layer in ends if (layer.name == "embedding") == (phase == FORWARD))
    count = BLOCK_CALLS * blocks * times + extra
    group, nbytes = parallel.group(job, TENSOR), _activation_bytes(parallel, job)
    if not count:
        return
    if not parallel.sequence_parallel:
        yield Call(Collective.ALLREDUCE.value, nbytes, group), count
        return
    yield Call(Collective.ALLGATHER.value, nbytes, group), count
    yield Call(Collective.REDUCE_SCATTER.value, nbytes, group), count


def _expert_calls(
    parallel: ParallelSettings, job: TrainingJob, layers: Sequence[int], times: int
) -> Iterator[tuple[Call, int]]:
    """Yield the exchanges of tokens before and after the experts."""
    count = sum(1 for at in layers if job.model.layers[at].name.endswith(EXPERTS))
    if parallel.expert == 1 or not count:
        return
    shares = parallel.tensor if parallel.sequence_parallel else 1
    group = Group(parallel.expert, parallel.group(job, DATA).stride)
    routing, dispatch = parallel.routing(job), parallel.dispatch(job)
    tokens = _activation_bytes(parallel, job)
    if dispatch:
        yield Call(DISPATCH, tokens // shares, group, routing, dispatch), 2 * count * times
        return
    nbytes = tokens * shape_of(job.model).active_experts // shares
    collective = Collective.ALLTOALLV if routing else Collective.ALLTOALL
    yield Call(collective, nbytes, group, routing), 2 * count * times


def expert_loads(parallel: ParallelSettings, job: TrainingJob, layers: Sequence[int]) -> FloatArray:
    """Return the tokens of each layer on the rank with most, as a multiple of the mean.

    All ranks wait for that one in the exchange that follows.
    """
    routing = parallel.routing(job)
    most = parallel.expert * routing.taken(parallel.expert).max() if routing else 1.0
    names = (job.model.layers[at].name for at in layers)
    return np.array([most if name.endswith(EXPERTS) else 1.0 for name in names])


def _activation_bytes(parallel: ParallelSettings, job: TrainingJob) -> int:
    """Return the bytes of the activations between two blocks, for one microbatch."""
    shape = shape_of(job.model)
    return job.samples * shape.sequence * shape.width * job.parameter_bytes
