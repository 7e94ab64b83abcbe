"""The settings of workloads and sweeps, as their files and requests have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from tuner.base.errors import InputError
from tuner.base.file_settings import (
    ANY,
    FILE,
    POSITIVE,
    TEXT,
    Kind,
    mapping,
    one_of,
    optional,
    parse_int,
    positive,
    read_record,
    share,
    whole,
)
from tuner.topology import CUDA, HOST
from tuner.training.compute import FP32, PRECISIONS
from tuner.training.published import MAX_RESULTS, PublishedResult, parse_published
from tuner.whatif.axes import AXES, NCCL_AXIS
from tuner.whatif.prices import AXIS_OF_PART

MAX_BATCH = 1 << 20
MAX_PASSES = 1 << 12
MAX_RANKS = 1 << 17
MAX_EPOCH = 10**15
MAX_RATE = 1e12  # samples per second
SWEEP_AXES = {*AXES, "ranks", "framework"} - {"placement", NCCL_AXIS}  # choices training lacks
DEFAULT, BEST = "default", "best"
WEAK, STRONG = "weak", "strong"


RANK = whole(MAX_RANKS)


def parse_ranks(what: str, entry: Any) -> tuple[int, ...]:
    """Return numbers of ranks, ascending; raise InputError for anything else or none."""
    listed = entry if isinstance(entry, list) else [entry]
    if not listed:
        raise InputError(f"{what} must be a number of ranks or a list of them")
    return tuple(sorted({parse_int(what, one, MAX_RANKS) for one in listed}))


def _read_framework(_what: str, value: Any) -> Any:
    from tuner.training.frameworks import framework_from_record  # slow to import

    return framework_from_record(value)


def parse_groups(what: str, entry: Any) -> dict[str, tuple[int, int]]:
    """Return size and stride of groups by name; raise InputError for a malformed mapping."""
    if not isinstance(entry, dict):
        raise InputError(f"{what} is a mapping such as groups: {{TP: {{size: 8, stride: 1}}}}")
    shapes = {
        str(name): read_record(GroupSettings, shape, f"group {name}")
        for name, shape in entry.items()
    }
    return {name: (shape.size, shape.stride) for name, shape in shapes.items()}


@dataclass(frozen=True)
class GroupSettings:
    """The settings of a group of ranks of a recorded iteration."""

    size: Annotated[int, RANK]
    stride: Annotated[int, RANK] = 1


RANKS = Kind("numbers", parse_ranks)
FRAMEWORK = Kind("framework", _read_framework, {"type": ["string", "object"]})
PUBLISHED = Kind("results", parse_published, {"type": "array", "maxItems": MAX_RESULTS})
GROUPS = Kind("groups", parse_groups)


@dataclass(frozen=True, kw_only=True)
class PlacedSettings:
    """The settings that workloads with a model and recorded ones share; None: left out."""

    topology: Annotated[Any, ANY]
    ranks: Annotated[tuple[int, ...], RANKS]
    name: Annotated[str | None, TEXT] = None
    calibration: Annotated[str | None, FILE] = None
    memory: Annotated[str | None, one_of((HOST, CUDA)), "memory of the buffers"] = None
    ppn: Annotated[int | None, RANK, "ranks of a node; by default its GPUs"] = None
    algorithms: Annotated[Any, ANY] = DEFAULT
    defaults: Annotated[str | None, FILE] = None


@dataclass(frozen=True, kw_only=True)
class WorkloadSettings(PlacedSettings):
    """The settings of a workload with a model; None: left out."""

    model: Annotated[Any, ANY]
    batch: Annotated[int, whole(MAX_BATCH), "samples of a rank in one pass"]
    framework: Annotated[Any, FRAMEWORK]
    precision: Annotated[str, one_of(PRECISIONS), "precision of the computation"] = FP32
    rate: Annotated[
        float | None, optional(positive(MAX_RATE)), "samples per second of one rank"
    ] = None
    passes: Annotated[int, whole(MAX_PASSES), "passes whose gradients are accumulated"] = 1
    noise: Annotated[float, share(), "relative standard deviation of compute times"] = 0.0
    published: Annotated[tuple[PublishedResult, ...], PUBLISHED] = ()
    scaling: Annotated[str, one_of((WEAK, STRONG)), "whether the batch of all ranks grows"] = WEAK


@dataclass(frozen=True, kw_only=True)
class RecordedSettings(PlacedSettings):
    """The settings of a workload with a recorded iteration."""

    recorded: Annotated[str, FILE]
    batch: Annotated[float, POSITIVE] = 0.0
    groups: Annotated[Any, GROUPS] = None


@dataclass(frozen=True)
class SweepSettings:
    """The settings that a sweep has besides those of its workload."""

    vary: Annotated[dict[str, Any], mapping(SWEEP_AXES)]
    epoch: Annotated[int, whole(MAX_EPOCH)] = 0
    cost: Annotated[dict[str, Any] | None, mapping({*AXIS_OF_PART, "gpu_hour", "years"})] = None
