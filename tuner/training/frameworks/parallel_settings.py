"""The division of a transformer over ranks: settings, groups of ranks, and layers of stages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Annotated

from tuner.base.errors import InputError
from tuner.base.file_settings import MAX_COUNT, Count, Flag, not_negative, one_of, whole
from tuner.prediction.block_counts import Routing
from tuner.training.frameworks.pipeline_schedule import (
    GPIPE,
    ONE_F_ONE_B,
    SCHEDULES,
    PipelineSchedule,
)
from tuner.training.frameworks.stage_blocks import DEFAULT_BLOCKS, divide_blocks
from tuner.training.groups import Group
from tuner.training.job import TrainingJob
from tuner.training.model import Model, ModelLayer, TransformerShape
from tuner.training.token_dispatch import ALLTOALL, DISPATCHERS, TokenDispatch

TENSOR, DATA, PIPELINE = DIMENSIONS = ("tensor", "data", "pipeline")
ORDERS = tuple("-".join(names) for names in permutations(DIMENSIONS))
Blocks = Annotated[int, whole(MAX_COUNT, DEFAULT_BLOCKS)]  # of a stage
MAX_EXPONENT = 16.0  # of routing; then one expert has nearly all tokens
EXPERTS = "experts"  # ends the names of layers whose work the experts do


@dataclass(frozen=True)
class ParallelSettings:
    """The settings by which Megatron-LM divides a transformer over ranks.

    The samples of a pass are a microbatch; the passes of an iteration are its microbatches.

    tensor              ranks over which each matrix is divided
    pipeline            stages over which the blocks are divided
    expert              replicas over which the experts of each block are divided
    routing_exponent    by which tokens prefer some experts; 0: none, see `Routing`
    capacity_factor     most tokens of an expert as a multiple of the mean, beyond which they are
                        dropped (Megatron-LM's --moe-expert-capacity-factor); 0: no limit
    dispatcher          what carries tokens to experts, one of DISPATCHERS
    expert_nodes        nodes on which the experts of a token are at most (those of Megatron-LM's
                        --moe-router-group-topk, with a group on each node); 0: no limit
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

    tensor: Count = 1
    pipeline: Count = 1
    expert: Count = 1
    routing_exponent: Annotated[float, not_negative(MAX_EXPONENT)] = 0.0
    capacity_factor: Annotated[float, not_negative()] = 0.0
    dispatcher: Annotated[str, one_of(DISPATCHERS)] = ALLTOALL
    expert_nodes: Annotated[int, whole(MAX_COUNT, 0)] = 0
    interleaved: Count = 1
    first_blocks: Blocks = DEFAULT_BLOCKS
    last_blocks: Blocks = DEFAULT_BLOCKS
    schedule: Annotated[str, one_of(SCHEDULES)] = ONE_F_ONE_B
    rank_order: Annotated[str, one_of(ORDERS)] = "tensor-data-pipeline"
    sequence_parallel: Flag = False
    recompute: Flag = False
    distributed: Flag = False
    overlapped: Flag = False

    def __post_init__(self) -> None:
        if self.interleaved > 1 and (self.schedule == GPIPE or self.pipeline == 1):
            raise InputError("megatron: interleaved needs schedule 1f1b and a pipeline of 2 stages")
        if self.pipeline == 1 and (self.first_blocks or self.last_blocks):
            raise InputError("megatron: first_blocks and last_blocks need a pipeline of 2 stages")
        if self.expert == 1 and (self.dispatcher != ALLTOALL or self.expert_nodes):
            raise InputError("megatron: dispatcher and expert_nodes need expert of at least 2")
        if self.expert_nodes and self.routing_exponent:
            raise InputError(
                "megatron: expert_nodes needs routing_exponent 0: which nodes are chosen where"
                " tokens want some experts more is not known"
            )

    @property
    def replica_ranks(self) -> int:
        """Number of ranks that one replica of the model is divided over."""
        return self.tensor * self.pipeline

    @property
    def order(self) -> PipelineSchedule:
        return PipelineSchedule(self.pipeline, self.interleaved, self.schedule)

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

    def routing(self, job: TrainingJob) -> Routing | None:
        """Return how unevenly tokens want experts; None where all get equally many, and all."""
        shape, drops = shape_of(job.model), 0 < self.capacity_factor < 1
        if not (self.routing_exponent or drops) or shape.experts == 1:
            return None
        capacity = self.capacity_factor or math.inf
        return Routing(self.routing_exponent, capacity, shape.experts, shape.active_experts)

    def dispatch(self, job: TrainingJob) -> TokenDispatch | None:
        """Return how tokens reach their experts; None where an all-to-all carries them."""
        shape = shape_of(job.model)
        how = (self.dispatcher, shape.active_experts, shape.experts, self.expert_nodes)
        return None if self.dispatcher == ALLTOALL else TokenDispatch(*how)

    def same_experts(self, job: TrainingJob) -> Group:
        """Return the groups of ranks that have the same experts."""
        data = self.group(job, DATA)
        return Group(data.size // self.expert, data.stride * self.expert)

    def layers_of(self, model: Model, stage: int, chunk: int) -> list[int]:
        """Return the layers of a chunk of a stage: blocks, and what is before or after them."""
        number = chunk * self.pipeline + stage
        counts = self.block_counts(shape_of(model))
        before = sum(counts[:number])
        blocks = range(before, before + counts[number])
        last = self.pipeline * self.interleaved - 1
        return [
            at
            for at, block in enumerate(blocks_of(model.layers))
            if block in blocks
            or (block is None and at == 0 and number == 0)
            or (block is None and at > 0 and number == last)
        ]

    def layers_of_stage(self, model: Model, stage: int) -> list[int]:
        chunks = range(self.interleaved)
        return [at for chunk in chunks for at in self.layers_of(model, stage, chunk)]

    def block_counts(self, shape: TransformerShape) -> tuple[int, ...]:
        """Return the blocks of each part of the pipeline in order; see `divide_blocks`."""
        return divide_blocks(
            shape.layers, self.pipeline, self.interleaved, self.first_blocks, self.last_blocks
        )

    def check(self, job: TrainingJob) -> None:
        """Raise InputError for a model or ranks that cannot be divided like this."""
        shape, ranks = shape_of(job.model), job.ranks
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


def shape_of(model: Model) -> TransformerShape:
    """Return the shape of a transformer; raise InputError for another model."""
    if model.transformer is None:
        raise InputError(f"megatron: the model must be a transformer, not {model.name}")
    return model.transformer


def blocks_of(layers: Sequence[ModelLayer]) -> Iterator[int | None]:
    """Yield the block of each layer; None for the embedding and the head."""
    for layer in layers:
        words = layer.name.split()
        yield int(words[1]) if words[0] == "block" else None
