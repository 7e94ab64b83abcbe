"""Tensor, pipeline and expert parallelism of transformers, as in Megatron-LM.

A rank has a share of every matrix (tensor parallelism) of some of the blocks (pipeline
parallelism); such a replica of the model exists several times (data parallelism). With experts,
these are divided over ranks of different replicas (expert parallelism).

If the head uses the embedding of tokens, both the first and the last stage have it, and they add up
its gradients.

Sources: M. Shoeybi et al. (arXiv 1909.08053): two allreduces per block and pass; D. Narayanan et
al. (arXiv 2104.04473): the schedules 1F1B and interleaved 1F1B, and messages between stages of
which each tensor-parallel rank sends its part; V. Korthikanti et al. (arXiv 2205.05198): sequence
parallelism and recomputed activations; D. Lepikhin et al. (arXiv 2006.16668): all-to-all exchanges
of tokens before and after the experts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.training.frameworks.pipeline_passes import (
    PipelinePasses,
    ReducedPart,
    StageWork,
    add_call,
)
from tuner.training.frameworks.pipeline_schedule import GPIPE, ONE_F_ONE_B, PipelineSchedule
from tuner.training.frameworks.stage_blocks import DEFAULT_BLOCKS, divide_blocks
from tuner.training.groups import Call, Group
from tuner.training.job import TrainingJob
from tuner.training.model import Model, ModelLayer, TransformerShape
from tuner.training.recorded import ALLTOALL, SEND
from tuner.training.timeline import BACKWARD, FORWARD, Timeline

TENSOR, DATA, PIPELINE = DIMENSIONS = ("tensor", "data", "pipeline")
ORDERS = tuple(
    f"{first}-{second}-{third}"
    for first in DIMENSIONS
    for second in DIMENSIONS
    for third in DIMENSIONS
    if len({first, second, third}) == 3
)
EXPERTS = "experts"  # ends the names of layers whose work the experts do
# Megatron-LM's defaults, in elements.
LEAST_BUCKET = 40_000_000
BUCKET_PER_REPLICA = 1_000_000
BLOCK_CALLS = 2  # of tensor parallelism, per block and pass


@dataclass(frozen=True)
class ModelParallel:
    """Megatron-LM: a transformer that is divided over ranks.

    The samples of a pass are a microbatch; the passes of an iteration are its microbatches.

    tensor              ranks over which each matrix is divided
    pipeline            stages over which the blocks are divided
    expert              replicas over which the experts of each block are divided
    interleaved         chunks of layers of each stage
    first_blocks        blocks of the first stage; DEFAULT_BLOCKS: as `divide_blocks` divides them
    last_blocks         blocks of the last stage; the same
    schedule            ONE_F_ONE_B: a stage alternates forward and backward passes as soon as it
                        can; GPIPE: all forward passes come first
    rank_order          which dimension has neighbouring ranks, from the inside to the outside
    sequence_parallel   whether norms and dropouts are divided along the sequence, which turns each
                        allreduce into an allgather and a reduce-scatter
    recompute           whether activations are computed again in the backward pass
    distributed         whether the optimizer's state is divided over the replicas
    overlapped          whether gradients are reduced during the last backward pass (Megatron-LM's
                        --overlap-grad-reduce); if not, after it
    """

    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    interleaved: int = 1
    first_blocks: int = DEFAULT_BLOCKS
    last_blocks: int = DEFAULT_BLOCKS
    schedule: str = ONE_F_ONE_B
    rank_order: str = "tensor-data-pipeline"
    sequence_parallel: bool = False
    recompute: bool = False
    distributed: bool = False
    overlapped: bool = False

    def __post_init__(self) -> None:
        if self.interleaved > 1 and (self.schedule == GPIPE or self.pipeline == 1):
            raise InputError("megatron: interleaved needs schedule 1f1b and a pipeline of 2 stages")
        if self.pipeline == 1 and (self.first_blocks or self.last_blocks):
            raise InputError("megatron: first_blocks and last_blocks need a pipeline of 2 stages")

    @property
    def replica_ranks(self) -> int:
        """Number of ranks that one replica of the model is divided over."""
        return self.tensor * self.pipeline

    @property
    def order(self) -> PipelineSchedule:
        """The order of the steps of each stage."""
        return PipelineSchedule(self.pipeline, self.interleaved, self.schedule)

    def compute_seconds(self, job: TrainingJob) -> float:
        """Return the seconds that a rank computes in an iteration, as the mean of all stages."""
        again = float(job.forward.sum()) if self.recompute else 0.0
        passes = job.passes * (float(job.forward.sum() + job.backward.sum()) + again)
        updated = self.updated_elements(job.model, self.replicas(job))
        share = sum(updated) / self.pipeline / job.model.elements
        return passes / self.replica_ranks + job.update * share

    def add_iteration(
        self, job: TrainingJob, timeline: Timeline, ready: Sequence[int | None]
    ) -> list[int | None]:
        """Add an iteration; return the operation after which each layer can be used again.

        Raises InputError for a model that cannot be divided like this.
        """
        self._check(job)
        before = [one for one in ready[:1] if one is not None]
        pipeline = self._passes(job, timeline, before)
        ended = pipeline.add()
        reduced = pipeline.reduced or [
            operation
            for stage in range(self.pipeline)
            for operation in self._reduce_gradients(
                job, timeline, stage, self._layers_of_stage(job.model, stage), ended[stage]
            )
        ]
        reduced += self._reduce_embedding(job, timeline, reduced)
        updated = self.updated_elements(job.model, self.replicas(job))
        share = max(updated) / job.model.elements
        last = [job.add_update(timeline, reduced, share=share)]
        if self.distributed:
            last = [
                self._gather_parameters(job, timeline, stage, last[0])
                for stage in range(self.pipeline)
            ]
        latest = max(last, key=lambda at: timeline.operations[at].end[0])
        return [latest] * len(job.model.layers)

    def _passes(
        self, job: TrainingJob, timeline: Timeline, before: Sequence[int]
    ) -> PipelinePasses:
        """Return the passes of all stages, which are to be added to a timeline."""
        work = {
            (stage, chunk, phase): self._stage_work(
                job, self.layers_of(job.model, stage, chunk), phase
            )
            for stage in range(self.pipeline)
            for chunk in range(self.interleaved)
            for phase in (FORWARD, BACKWARD)
        }

        def last_parts(stage: int, chunk: int) -> Iterator[ReducedPart]:
            for layers in self.buckets(job, stage, chunk):
                reduce = partial(self._reduce_gradients, job, timeline, stage, layers)
                yield ReducedPart(self._stage_work(job, layers, BACKWARD), reduce)

        return PipelinePasses(
            self.order,
            job,
            timeline,
            before,
            self._message(job),
            work,
            last_parts if self.overlapped else None,
        )

    def replicas(self, job: TrainingJob) -> int:
        return job.ranks // self.replica_ranks

    def group(self, job: TrainingJob, dimension: str) -> Group:
        """Return the groups of ranks along a dimension."""
        sizes = {TENSOR: self.tensor, DATA: self.replicas(job), PIPELINE: self.pipeline}
        stride = 1
        for name in self.rank_order.split("-"):
            if name == dimension:
                break
            stride *= sizes[name]
        return Group(sizes[dimension], stride)

    def layers_of(self, model: Model, stage: int, chunk: int) -> list[int]:
        """Return the layers of a chunk of a stage: blocks, and what is before or after them."""
        number = chunk * self.pipeline + stage
        counts = self.block_counts(_shape(model))
        before = sum(counts[:number])
        blocks = range(before, before + counts[number])
        last = self.pipeline * self.interleaved - 1
        return [
            at
            for at, block in enumerate(_blocks(model.layers))
            if block in blocks
            or (block is None and at == 0 and number == 0)
            or (block is None and at > 0 and number == last)
        ]

    def block_counts(self, shape: TransformerShape) -> tuple[int, ...]:
        """Return the blocks of each part of the pipeline in order; see `divide_blocks`."""
        return divide_blocks(
            shape.layers, self.pipeline, self.interleaved, self.first_blocks, self.last_blocks
        )

    def _check(self, job: TrainingJob) -> None:
        shape, ranks = _shape(job.model), job.ranks
        if ranks % self.replica_ranks:
            raise InputError(
                f"megatron: {ranks} ranks cannot be divided into replicas of {self.tensor} (tensor)"
                f" x {self.pipeline} (pipeline) ranks"
            )
        self.block_counts(shape)
        if shape.heads % self.tensor:
            raise InputError(
                f"megatron: {shape.heads} attention heads cannot be divided over tensor:"
                f" {self.tensor} ranks"
            )
        if shape.experts % self.expert or self.replicas(job) % self.expert:
            raise InputError(
                f"megatron: expert: {self.expert} must divide the {shape.experts} experts and the"
                f" {self.replicas(job)} replicas"
            )
        if self.interleaved > 1 and job.passes % self.pipeline:
            raise InputError(
                f"megatron: with interleaved, passes ({job.passes}) must be a multiple of pipeline"
                f" ({self.pipeline})"
            )
        if job.noise:
            raise InputError("megatron: noise is known for data-parallel frameworks only")

    def _layers_of_stage(self, model: Model, stage: int) -> list[int]:
        chunks = range(self.interleaved)
        return [at for chunk in chunks for at in self.layers_of(model, stage, chunk)]

    def stage_elements(self, model: Model) -> list[int]:
        """Return the trained elements of a rank of each stage, shape (stages,)."""
        return [shared + experts for shared, experts in self._stage_parts(model)]

    def updated_elements(self, model: Model, replicas: int) -> list[float]:
        """Return the elements that a rank of each stage updates, shape (stages,).

        A distributed optimizer divides parameters over the replicas that have them, which are fewer
        for experts.
        """
        if not self.distributed:
            return [float(elements) for elements in self.stage_elements(model)]
        same_experts = replicas / self.expert
        return [
            shared / replicas + experts / same_experts
            for shared, experts in self._stage_parts(model)
        ]

    def _stage_parts(self, model: Model) -> list[tuple[int, int]]:
        """Return the elements of a rank of each stage: what every replica has, and experts."""
        stages = range(self.pipeline)
        return [self._own_bytes(model, self._layers_of_stage(model, at), 1) for at in stages]

    def _own_bytes(
        self, model: Model, layers: Sequence[int], element_bytes: int
    ) -> tuple[int, int]:
        """Return the bytes of a rank's parameters: what every replica has, and experts."""
        there = [model.layers[at] for at in layers]
        experts = sum(one.elements for one in there if one.name.endswith(EXPERTS))
        shared = sum(one.elements for one in there) - experts
        if self.pipeline > 1 and len(model.layers) - 1 in layers:
            shared += _shape(model).tied
        return (
            shared * element_bytes // self.tensor,
            experts * element_bytes // (self.tensor * self.expert),
        )

    def _reduce_gradients(
        self, job: TrainingJob, timeline: Timeline, stage: int, layers: Sequence[int], after: int
    ) -> Iterator[int]:
        """Add the reduction of the gradients of some layers over the replicas; yield its calls."""
        collective = Collective.REDUCE_SCATTER if self.distributed else Collective.ALLREDUCE
        shared, experts = self._own_bytes(job.model, layers, job.gradient_bytes)
        for nbytes, group in ((shared, self.group(job, DATA)), (experts, self._same_experts(job))):
            if nbytes:
                yield add_call(
                    timeline,
                    job,
                    f"stage {stage} gradients",
                    Call(collective.value, nbytes, group),
                    [after],
                )
        if not shared + experts:
            yield after

    def buckets(self, job: TrainingJob, stage: int, chunk: int) -> Iterator[list[int]]:
        """Yield the layers of a chunk, the last blocks first, whose gradients are reduced at once.

        Megatron-LM divides only what the first stage computes last (its class
        DistributedDataParallel, whose buckets are complete with the block that fills them).
        """
        layers = self.layers_of(job.model, stage, chunk)
        if stage or chunk:
            yield layers
            return
        limit = max(LEAST_BUCKET, BUCKET_PER_REPLICA * self.replicas(job)) * job.gradient_bytes
        blocks = [*_blocks([job.model.layers[at] for at in layers])]
        bucket = list[int]()
        for _, block in groupby(zip(blocks[::-1], layers[::-1], strict=True), lambda one: one[0]):
            bucket += [at for _, at in block]
            if sum(self._own_bytes(job.model, bucket, job.gradient_bytes)) >= limit:
                yield bucket[::-1]
                bucket = []
        if bucket:
            yield bucket[::-1]

    def _reduce_embedding(
        self, job: TrainingJob, timeline: Timeline, after: Sequence[int]
    ) -> list[int]:
        """Add the sum of the gradients of the embedding over the first and the last stage."""
        nbytes = _shape(job.model).tied * job.gradient_bytes // self.tensor
        if self.pipeline == 1 or not nbytes:
            return []
        group = Group(2, self.group(job, PIPELINE).stride, self.pipeline)
        call = Call(Collective.ALLREDUCE.value, nbytes, group)
        return [add_call(timeline, job, "embedding gradients", call, after)]

    def _gather_parameters(
        self, job: TrainingJob, timeline: Timeline, stage: int, after: int
    ) -> int:
        """Add the gathering of updated parameters of a stage; return the last call."""
        layers = self._layers_of_stage(job.model, stage)
        shared, experts = self._own_bytes(job.model, layers, job.parameter_bytes)
        last = after
        for nbytes, group in ((shared, self.group(job, DATA)), (experts, self._same_experts(job))):
            if nbytes:
                call = Call(Collective.ALLGATHER.value, nbytes, group)
                last = add_call(timeline, job, f"stage {stage} gradients", call, [after])
        return last

    def _same_experts(self, job: TrainingJob) -> Group:
        """Return the groups of ranks that have the same experts."""
        data = self.group(job, DATA)
        return Group(data.size // self.expert, data.stride * self.expert)

    def _stage_work(self, job: TrainingJob, layers: Sequence[int], phase: str) -> StageWork:
        """Return what a stage does in a pass over some layers for one microbatch."""
        forward = float(job.forward[layers].sum()) / self.tensor
        backward = float(job.backward[layers].sum()) / self.tensor
        again = self.recompute and phase == BACKWARD
        compute = forward if phase == FORWARD else backward + (forward if again else 0.0)
        times = 2 if again else 1
        calls = chain(
            self._tensor_calls(job, layers, phase, times), self._expert_calls(job, layers, times)
        )
        return StageWork(compute, tuple(calls))

    def _tensor_calls(
        self, job: TrainingJob, layers: Sequence[int], phase: str, times: int
    ) -> Iterator[tuple[Call, int]]:
        """Yield the calls of tensor parallelism in a pass over some layers.

        The embedding adds one in its forward pass and the head one in its backward pass.
        """
        if self.tensor == 1:
            return
        names = [job.model.layers[at] for at in layers]
        blocks = len({block for block in _blocks(names) if block is not None})
        ends = [layer for layer, block in zip(names, _blocks(names), strict=True) if block is None]
        extra = sum(1 for layer in ends if (layer.name == "embedding") == (phase == FORWARD))
        count = BLOCK_CALLS * blocks * times + extra
        group, nbytes = self.group(job, TENSOR), self._activation_bytes(job)
        if not count:
            return
        if not self.sequence_parallel:
            yield Call(Collective.ALLREDUCE.value, nbytes, group), count
            return
        yield Call(Collective.ALLGATHER.value, nbytes, group), count
        yield Call(Collective.REDUCE_SCATTER.value, nbytes, group), count

    def _expert_calls(
        self, job: TrainingJob, layers: Sequence[int], times: int
    ) -> Iterator[tuple[Call, int]]:
        """Yield the exchanges of tokens before and after the experts."""
        count = sum(1 for at in layers if job.model.layers[at].name.endswith(EXPERTS))
        if self.expert == 1 or not count:
            return
        tokens = self._activation_bytes(job) * _shape(job.model).active_experts
        nbytes = tokens // (self.tensor if self.sequence_parallel else 1)
        group = Group(self.expert, self.group(job, DATA).stride)
        yield Call(ALLTOALL, nbytes, group), 2 * count * times

    def _activation_bytes(self, job: TrainingJob) -> int:
        """Return the bytes of the activations between two blocks, for one microbatch."""
        shape = _shape(job.model)
        return job.samples * shape.sequence * shape.width * job.parameter_bytes

    def _message(self, job: TrainingJob) -> Call:
        """Return the message between two stages, of which each tensor rank sends its part."""
        nbytes = -(-self._activation_bytes(job) // self.tensor)
        return Call(SEND, nbytes, self.group(job, PIPELINE))


def _shape(model: Model) -> TransformerShape:
    if model.transformer is None:
        raise InputError(f"megatron: {model.name} is not a transformer")
    return model.transformer


def _blocks(layers: Sequence[ModelLayer]) -> Iterator[int | None]:
    """Yield the block of each layer; None for the embedding and the head."""
    for layer in layers:
        words = layer.name.split()
        yield int(words[1]) if words[0] == "block" else None
