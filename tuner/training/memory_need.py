"""The memory that a rank needs: parameters, gradients, the optimizer's state, and activations."""

from __future__ import annotations

from tuner.base.errors import InputError
from tuner.base.units import format_size, plural
from tuner.topology import CUDA
from tuner.training.compute import AMP
from tuner.training.frameworks.caffe import OutOfCore
from tuner.training.frameworks.model_parallel import ModelParallel
from tuner.training.frameworks.sharded import Zero
from tuner.training.frameworks.stage_gradients import stage_elements, updated_elements
from tuner.training.model import TransformerShape
from tuner.training.workload import Workload

# Bytes per element of the optimizer's state.
MOMENTUM = 4  # SGD with momentum
ADAM = 8
MASTER = 4  # bytes per element of the copy in fp32 that mixed precision keeps


def needed_memory(workload: Workload, ranks: int) -> float:
    """Return the bytes that a rank needs at least, without activations.

    Images are trained with momentum SGD, sequences with Adam. ZeRO divides the optimizer's state
    over the ranks, from stage 2 the gradients, in stage 3 the parameters, too (S. Rajbhandari et
    al., arXiv 1910.02054, section 3). Tensor and pipeline parallelism divide everything,
    expert parallelism the experts, and a distributed optimizer its state over the replicas. The
    stage of a pipeline that has most counts.
    """
    state = MOMENTUM if workload.model.sample == "image" else ADAM
    state += MASTER if workload.precision == AMP else 0
    framework = workload.framework
    if isinstance(framework, ModelParallel):
        replicas = ranks // framework.replica_ranks
        model = workload.model
        own = stage_elements(framework, model), updated_elements(framework, model, replicas)
        return max(
            elements * 2 * workload.element_bytes + updated * state
            for elements, updated in zip(*own, strict=True)
        )
    stage = framework.stage if isinstance(framework, Zero) else 0
    per_element = (
        state / (ranks if stage >= 1 else 1)
        + workload.element_bytes / (ranks if stage >= 2 else 1)
        + workload.element_bytes / (ranks if stage >= 3 else 1)
    )
    return workload.model.elements * per_element


def activation_memory(workload: Workload, ranks: int) -> float:
    """Return the bytes of the activations that a rank keeps at most, of dense transformers.

    They are those of the blocks of the stage of a pipeline that keeps most, whose attention keeps
    its matrix of scores; 0 for other models, of which it is not known. With two bytes per element
    they are s b h (10 + 24 / t + 5 a s / (h t)) per block, and s b h (34 + 5 a s / h) / t with
    sequence parallelism (V. Korthikanti et al., arXiv 2205.05198, section 4): tensors of 16
    elements per token and hidden element and two masks of dropout, scores of two elements and a
    mask.
    """
    shape = workload.model.transformer
    if shape is None or shape.experts > 1:
        return 0.0
    framework = workload.framework
    parallel = framework if isinstance(framework, ModelParallel) else ModelParallel()
    size, around = workload.element_bytes, parallel.tensor if parallel.sequence_parallel else 1
    scores = (2 * size + 1) * shape.heads * shape.sequence / shape.width
    per_block = (4 * size + 2) / around + (12 * size + scores) / parallel.tensor
    if parallel.recompute:  # the inputs of the blocks alone are kept
        per_block = size / around
    kept = _kept_blocks(parallel, shape, workload.passes)
    return workload.rank_batch(ranks) * shape.sequence * shape.width * per_block * kept


def _kept_blocks(parallel: ModelParallel, shape: TransformerShape, passes: int) -> float:
    """Return how many blocks a stage keeps activations of at most, each once for every pass."""
    counts = parallel.block_counts(shape)
    return max(
        sum(counts[stage :: parallel.pipeline])
        / parallel.interleaved
        * parallel.order.kept_passes(stage, passes)
        for stage in range(parallel.pipeline)
    )


def activation_warning(workload: Workload, ranks: int) -> str:
    """Return a warning if activations do not fit beside what `require_memory` counts, else ""."""
    size, kept = _gpu_memory(workload), activation_memory(workload, ranks)
    needed = needed_memory(workload, ranks)
    if size is None or needed + kept <= size:
        return ""
    return (
        f"caution: with all activations ({format_size(kept)}) {workload.model.name} needs"
        f" {format_size(needed + kept)} on each of {plural(ranks, 'rank')}, and a GPU has"
        f" {format_size(size)}: recompute them, take a smaller batch, or attention that keeps no"
        " scores"
    )


def _gpu_memory(workload: Workload) -> float | None:
    """Return the bytes of each GPU's memory; None where that is not known or does not matter."""
    spec = workload.machine.spec
    size = spec.gpu.memory_size if spec and spec.gpu else None
    if size is None or workload.memory != CUDA or isinstance(workload.framework, OutOfCore):
        return None
    return size.value


def require_memory(workload: Workload, ranks: int) -> None:
    """Raise InputError for a model that does not fit into the memory of each GPU.

    Nothing is required where the machine's file does not say how much memory its GPUs have, and of
    training out of core.
    """
    size, needed = _gpu_memory(workload), needed_memory(workload, ranks)
    if size is not None and needed > size:
        raise InputError(
            f"{workload.model.name} needs {format_size(needed)} on each of"
            f" {plural(ranks, 'rank')} for parameters, gradients and the optimizer's state, and"
            f" a GPU of {workload.machine.name} has {format_size(size)}: take more ranks"
            " with ZeRO, FSDP or model parallelism, larger GPUs, or a smaller model"
        )
