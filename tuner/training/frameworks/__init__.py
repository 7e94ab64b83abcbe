"""Frameworks: what each adds to a timeline for one iteration of training.

A framework is a dataclass of its settings whose method `add_iteration` adds the computation and the
communication of an iteration and returns, for each layer, the operation after which its parameters
can be used in the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.base.file_settings import read_settings
from tuner.training.frameworks.caffe import BroadcastExchange, GatherAverage, OutOfCore, SCaffe
from tuner.training.frameworks.framework import Framework
from tuner.training.frameworks.fusion import Ddp, Horovod
from tuner.training.frameworks.model_parallel import ModelParallel
from tuner.training.frameworks.parameter_server import ParameterServer
from tuner.training.frameworks.sharded import Zero

FRAMEWORKS: Mapping[str, Framework] = {  # with their default settings
    "horovod": Horovod(),
    "ddp": Ddp(),
    "zero": Zero(),
    "fsdp": Zero(stage=3),
    "parameter-server": ParameterServer(),
    "s-caffe": SCaffe(),
    "caffe": SCaffe(overlapped=False),
    "shm-learn-dist": GatherAverage(),
    "oc-caffe": OutOfCore(),
    "cntk": BroadcastExchange(),
    "megatron": ModelParallel(),
}


def framework_from_record(entry: Any) -> Framework:
    """Return the framework of a workload: its name, or a mapping of its name and settings.

    Raises InputError for an unknown name or setting and for an invalid value.
    """
    record = {"name": entry} if isinstance(entry, str) else entry
    name = record.get("name") if isinstance(record, dict) else entry
    if not isinstance(name, str) or name not in FRAMEWORKS:
        raise InputError(f"framework: {shortened_repr(name)} is none of {', '.join(FRAMEWORKS)}")
    default = FRAMEWORKS[name]
    given = read_settings(type(default), record, f"framework {name}", {"name"})
    return type(default)(**{**default.settings, **given})
