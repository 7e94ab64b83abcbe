"""Frameworks: what each adds to a timeline for one iteration of training.

A framework is a dataclass of its settings whose method `add_iteration` adds the computation and the
communication of an iteration and returns, for each layer, the operation after which its parameters
can be used in the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.base.units import parse_bandwidth, parse_size, parse_time
from tuner.topology.readers.yaml_fields import parse_int, require_keys
from tuner.training.frameworks.caffe import (
    AVERAGES,
    BroadcastExchange,
    GatherAverage,
    OutOfCore,
    SCaffe,
)
from tuner.training.frameworks.framework import Framework
from tuner.training.frameworks.fusion import BUCKET_ORDERS, Ddp, Horovod
from tuner.training.frameworks.model_parallel import ModelParallel
from tuner.training.frameworks.parallel_settings import ORDERS
from tuner.training.frameworks.parameter_server import BEST, TRANSPORTS, ParameterServer
from tuner.training.frameworks.pipeline_schedule import SCHEDULES
from tuner.training.frameworks.sharded import Zero
from tuner.training.frameworks.stage_blocks import DEFAULT_BLOCKS

FRAMEWORKS: Mapping[str, Callable[..., Framework]] = {
    "horovod": Horovod,
    "ddp": Ddp,
    "zero": Zero,
    "fsdp": lambda **settings: Zero(**{"stage": 3, **settings}),
    "parameter-server": ParameterServer,
    "s-caffe": SCaffe,
    "caffe": lambda **settings: SCaffe(**{"overlapped": False, **settings}),
    "shm-learn-dist": GatherAverage,
    "oc-caffe": OutOfCore,
    "cntk": BroadcastExchange,
    "megatron": ModelParallel,
}
CLASSES = {**FRAMEWORKS, "fsdp": Zero, "caffe": SCaffe}


def _parse_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{shortened_repr(value)} is neither true nor false")
    return value


def _one_of(known: Sequence[str]) -> Callable[[object], str]:
    """Return a parser that takes one of some names."""

    def parse(value: object) -> str:
        if value not in known:
            raise InputError(f"{shortened_repr(value)} is none of {', '.join(known)}")
        return str(value)

    return parse


def _count(value: object) -> int:
    return parse_int("it", value)


def _parse_servers(value: object) -> int:
    return BEST if value == "best" else _count(value)


def _parse_blocks(value: object) -> int:
    return DEFAULT_BLOCKS if type(value) is int and value == DEFAULT_BLOCKS else _count(value)


CHOICES: Mapping[str, Sequence[str]] = {
    "order": BUCKET_ORDERS,
    "transport": TRANSPORTS,
    "averages": AVERAGES,
    "schedule": SCHEDULES,
    "rank_order": ORDERS,
}
PARSERS: Mapping[str, Callable[[Any], Any]] = {
    **{name: _one_of(known) for name, known in CHOICES.items()},
    "fusion_threshold": parse_size,
    "cycle_time": parse_time,
    "hierarchical": _parse_flag,
    "cache": _parse_flag,
    "blocking": _parse_flag,
    "round_trip": parse_time,
    "request": parse_time,
    "launch": parse_time,
    "bucket": parse_size,
    "first_bucket": parse_size,
    "stage": _count,
    "prefetch": _count,
    "servers": _parse_servers,
    "token": parse_time,
    "replicated": _parse_flag,
    "rate": parse_bandwidth,
    "worker_rate": parse_bandwidth,
    "shard": parse_size,
    "local_aggregation": _parse_flag,
    "overlapped": _parse_flag,
    "host_rate": parse_bandwidth,
    "average_rate": parse_bandwidth,
    "shares": _count,
    "tensor": _count,
    "pipeline": _count,
    "expert": _count,
    "interleaved": _count,
    "first_blocks": _parse_blocks,
    "last_blocks": _parse_blocks,
    "sequence_parallel": _parse_flag,
    "recompute": _parse_flag,
    "distributed": _parse_flag,
    "memory": parse_size,
    "link_rate": parse_bandwidth,
    "fault_rate": parse_bandwidth,
    "optimized": _parse_flag,
}

SETTING_KINDS = {  # by the function that reads a value
    parse_size: "size",
    parse_time: "time",
    parse_bandwidth: "rate",
    _parse_flag: "flag",
    _count: "number",
    _parse_servers: "number",
    _parse_blocks: "number",
}


def setting_kind(name: str) -> str:
    """Return how a setting is written: size, time, rate, flag, number or choice."""
    return "choice" if name in CHOICES else SETTING_KINDS[PARSERS[name]]


def framework_from_record(entry: Any) -> Framework:
    """Return the framework of a workload: its name, or a mapping of its name and settings.

    Raises InputError for an unknown name or setting and for an invalid value.
    """
    record = {"name": entry} if isinstance(entry, str) else entry
    name = record.get("name") if isinstance(record, dict) else entry
    if not isinstance(name, str) or name not in FRAMEWORKS:
        raise InputError(f"framework: {shortened_repr(name)} is none of {', '.join(FRAMEWORKS)}")
    known = [one.name for one in fields(CLASSES[name]) if one.name in PARSERS]  # type: ignore[arg-type]
    require_keys(f"framework {name}", record, {"name", *known}, {"name"})
    settings = {key: _setting(name, key, record[key]) for key in known if key in record}
    return FRAMEWORKS[name](**settings)


def _setting(name: str, key: str, value: Any) -> Any:
    try:
        return PARSERS[key](value)
    except InputError as reason:
        raise InputError(f"framework {name}: {key}: {reason}") from None
