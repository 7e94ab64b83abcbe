"""Settings as frameworks take them: environment variables, arguments and configuration.

Sources: documentation of Horovod (`docs/autotune.rst`, `docs/tensor-fusion.rst`), PyTorch
(`DistributedDataParallel`, `FullyShardedDataParallel`), DeepSpeed (`zero_optimization`) and
Megatron-LM (`megatron/training/arguments.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from tuner.training.frameworks.framework import Framework
from tuner.training.frameworks.fusion import BACKWARD_ORDER, MIB, Ddp, Horovod
from tuner.training.frameworks.model_parallel import ModelParallel
from tuner.training.frameworks.parameter_server import BEST, ParameterServer
from tuner.training.frameworks.pipeline_schedule import GPIPE
from tuner.training.frameworks.sharded import Zero
from tuner.training.frameworks.stage_blocks import stage_arguments
from tuner.training.model import Model
from tuner.training.token_dispatch import ALLTOALL, DEEPEP, HIERARCHICAL, LOW_LATENCY

MEGATRON_ORDERS = {  # of ranks, from the inside to the outside, with the options that set them
    "tensor-data-pipeline": (),
    "tensor-pipeline-data": ("--use-tp-pp-dp-mapping",),
}
_FLEX = "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend"
MEGATRON_DISPATCHERS = {
    ALLTOALL: "--moe-token-dispatcher-type alltoall",
    HIERARCHICAL: "# dispatcher hierarchical: not in Megatron-LM, whose flex dispatchers do more",
    DEEPEP: f"{_FLEX} deepep",
    LOW_LATENCY: "# dispatcher deepep-low-latency: for inference, and not in Megatron-LM",
}


def framework_arguments(framework: Framework, model: Model, element_bytes: int) -> list[str]:
    """Return lines for a shell or a program with the settings of a framework; none if unknown.

    model           the model that is trained
    element_bytes   bytes of an element of a gradient, for sizes that are counted in elements
    """
    if isinstance(framework, Horovod):
        return [
            f"export HOROVOD_FUSION_THRESHOLD={framework.fusion_threshold}",
            f"export HOROVOD_CYCLE_TIME={framework.cycle_time * 1e3:g}",  # milliseconds
            f"export HOROVOD_HIERARCHICAL_ALLREDUCE={int(framework.hierarchical)}",
        ]
    if isinstance(framework, Ddp):
        return _of_ddp(framework)
    if isinstance(framework, Zero):
        return _of_zero(framework, element_bytes)
    if isinstance(framework, ParameterServer):
        return _of_parameter_server(framework)
    if isinstance(framework, ModelParallel):
        return list(_of_megatron(framework, model))
    return []


def _of_ddp(framework: Ddp) -> list[str]:
    rebuilt = framework.order == BACKWARD_ORDER
    return [
        f"torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = {framework.first_bucket}",
        f"DistributedDataParallel(model, bucket_cap_mb={framework.bucket / MIB:g},"
        f" find_unused_parameters={not rebuilt})",
    ]


def _of_zero(framework: Zero, element_bytes: int) -> list[str]:
    elements = framework.bucket // element_bytes
    if framework.stage == 3:
        return [
            f"size_based_auto_wrap_policy(min_num_params={elements})",
            "FullyShardedDataParallel(model, auto_wrap_policy=...,"
            f" forward_prefetch={framework.prefetch > 1})",
        ]
    settings = {"stage": framework.stage, "reduce_bucket_size": elements, "overlap_comm": True}
    return [json.dumps({"zero_optimization": settings})]


def _of_parameter_server(framework: ParameterServer) -> list[str]:
    lines = [f"--num_ps={framework.servers}"] if framework.servers != BEST else []
    if framework.shard:
        lines.append(f"tf.compat.v1.fixed_size_partitioner({framework.servers})")
        lines[-1] += f"  # for variables from {framework.shard} bytes"
    if framework.local_aggregation:
        lines.append("--local_parameter_device=gpu  # gradients are added up on each node first")
    return lines


def _of_megatron(framework: ModelParallel, model: Model) -> Iterator[str]:
    yield f"--tensor-model-parallel-size {framework.tensor}"
    yield f"--pipeline-model-parallel-size {framework.pipeline}"
    if framework.expert > 1:
        yield f"--expert-model-parallel-size {framework.expert}"
        yield MEGATRON_DISPATCHERS[framework.dispatcher]
    if framework.expert_nodes:
        nodes = framework.expert_nodes
        yield f"# --moe-router-num-groups (nodes of the experts) --moe-router-group-topk {nodes}"
    if framework.capacity_factor:
        yield f"--moe-expert-capacity-factor {framework.capacity_factor:g}"
    stages: list[str] = []
    if model.transformer:
        counts = framework.block_counts(model.transformer)
        first, last = framework.first_blocks, framework.last_blocks
        stages = list(stage_arguments(counts, framework.pipeline, first, last))
    if framework.interleaved > 1 and not any("-layout" in line for line in stages):
        yield f"--num-virtual-stages-per-pipeline-rank {framework.interleaved}"
    yield from stages
    if framework.schedule == GPIPE:
        yield "# schedule gpipe: Megatron-LM has 1f1b alone"
    if framework.rank_order in MEGATRON_ORDERS:
        yield from MEGATRON_ORDERS[framework.rank_order]
    else:
        known = " and ".join(MEGATRON_ORDERS)
        yield f"# rank_order {framework.rank_order}: Megatron-LM has {known}"
    if framework.sequence_parallel:
        yield "--sequence-parallel"
    if framework.recompute:
        yield "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
    if framework.distributed:
        yield "--use-distributed-optimizer"
    if framework.overlapped:
        yield "--overlap-grad-reduce"
