"""Collective calls as events of PyTorch's profiler describe them.

NCCL's kernels have the fields `Collective name`, `In msg nelems`, `Out msg nelems`, `dtype`, `In
split size`, `Out split size`, `Group size`, `Process Group Name` and `Process Group Ranks`
themselves; in older traces the event `record_param_comms` around their launch has them. Annotations
of gloo are named `gloo:all_reduce` and have `Input Dims` and `Input type`, but no group. Those of
other backends are named alike; where `record_param_comms` has no fields either, as in the oldest
traces, they are read instead.

Source: torch/csrc/distributed/c10d/ParamCommsUtils.hpp and torch/csrc/profiler/util.cpp
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.base.spelling import unknown_name
from tuner.core.collective import Collective, Held, plain_name
from tuner.training.recorded import BARRIER, BARRIER_BYTES, WORLD, operation_of

MAX_ELEMENTS = 1 << 50
PARAMETERS, NAME = "record_param_comms", "Collective name"
_TYPE_BYTES = {
    1: ("bool", "byte", "char", "uint8", "int8", "unsigned char", "signed char", "float8"),
    2: ("half", "bfloat16", "short", "float16", "int16"),
    4: ("float", "int", "float32", "int32"),
    8: ("double", "long", "long int", "float64", "int64", "complexfloat"),
}
# Names of calls: annotations of PyTorch's backends, operators, parameters, kernels of NCCL and RCCL
_CALLS = re.compile(
    r"(\w*ccl|gloo|mpi|ucc):(?!:)|_?c10d\w*::|record_param_comms|[nr]ccl\w*kernel", re.IGNORECASE
)
_BYTES_OF_TYPE = {name: size for size, names in _TYPE_BYTES.items() for name in names}


@dataclass(frozen=True)
class TracedCall:
    """What a call does; fields as of a `RecordedStep`.

    largest     length of the longest block over the mean, of an exchange of unequal blocks
    """

    operation: str
    nbytes: int
    group: str = WORLD
    per_rank: bool = False
    largest: float = 1.0


@dataclass(frozen=True)
class ProcessGroups:
    """The groups of processes of a trace.

    world       number of ranks of the job, 0 where the trace does not say
    ranks_of    ranks of each group by its name
    """

    world: int
    ranks_of: Mapping[str, tuple[int, ...]]

    def shape(self, name: str) -> tuple[int, int] | None:
        """Return size and stride of a group; None without ranks or at unequal distances."""
        ranks = self.ranks_of.get(name, ())
        strides = {b - a for a, b in pairwise(ranks)} or {1}
        return (len(ranks), strides.pop()) if ranks and len(strides) == 1 else None

    def uneven_ranks(self, name: str) -> tuple[int, ...]:
        """Return the ranks of a group without a shape, none where they are unknown."""
        return () if self.shape(name) else self.ranks_of.get(name, ())


def operation_of_event(name: str) -> str:
    """Return the operation of a collective by PyTorch's name, "" for what does not communicate."""
    return operation_of(_without_backend(name))


def call_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return those names of events that are names of calls, once and without their arguments."""
    plain = {re.split(r"[ (<]", name, maxsplit=1)[0] for name in names if _CALLS.match(name)}
    return tuple(sorted(one for one in plain if ":" not in one or operation_of_event(one)))


def _is_barrier(name: str) -> bool:
    return plain_name(_without_backend(name)).startswith(BARRIER)


def _without_backend(name: str) -> str:
    """Return `allreduce` for `gloo:allreduce`."""
    return name.rpartition(":")[2]


def group_ranks(value: Any) -> tuple[int, ...]:
    """Return the ranks of a list, which may be text, in ascending order.

    There are none where it is abbreviated or malformed.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return ()
    if not isinstance(value, list) or not all(type(one) is int and one >= 0 for one in value):
        return ()
    return tuple(sorted(value)) if len(set(value)) == len(value) else ()


def call_of_fields(fields: Mapping[str, Any]) -> TracedCall | None:
    """Return the call that the fields of an event describe, None if it does not communicate.

    Raises InputError for malformed fields.
    """
    name = str(fields[NAME])
    operation = operation_of_event(name)
    if not operation:
        return None
    group = str(fields.get("Process Group Name", WORLD))
    if _is_barrier(name):
        return TracedCall(operation, BARRIER_BYTES, group)
    sent, received = (_elements(fields, way) for way in ("In", "Out"))
    size = fields.get("Group size", 0)
    size = size if type(size) is int and 0 < size < 1 << 24 else 0
    elements, per_rank = sent, False
    collective = Collective.spelled(operation)
    if collective is not None and collective.has_blocks:
        elements = max(sent, received)
        if collective.is_rooted:  # of one rank, as the root also gives or gets the whole
            elements = (sent if collective.gives(at_root=False) else received) * max(size, 1)
            per_rank = not size
    nbytes = elements * _type_bytes(str(fields.get("dtype", "float")))
    largest = max(_largest(fields.get(f"{way} split size")) for way in ("In", "Out"))
    return TracedCall(operation, nbytes, group, per_rank, largest)


def _largest(splits: Any) -> float:
    """Return the longest block over the mean of those that a field names, which may abbreviate."""
    lengths = [int(one) for one in re.findall(r"[0-9]{1,18}", str(splits or ""))]
    return max(lengths) * len(lengths) / sum(lengths) if any(lengths) else 1.0


def call_of_annotation(name: str, fields: Mapping[str, Any]) -> TracedCall | None:
    """Return the call of an annotation, such as `gloo:all_reduce`, None if it does not communicate.

    Raises InputError for malformed fields.
    """
    operation = operation_of_event(name)
    if not operation:
        return None
    if _is_barrier(name):
        return TracedCall(operation, BARRIER_BYTES)
    shapes, types = fields.get("Input Dims"), fields.get("Input type")
    if not isinstance(shapes, list) or not isinstance(types, list):
        raise InputError(f"{name} has no sizes: record it with profile(..., record_shapes=True)")
    elements = sum(_volume(shape) for shape in shapes)
    if elements > MAX_ELEMENTS:
        raise InputError(f"{name} has {shortened_repr(elements)} elements")
    nbytes = elements * _type_bytes(str(types[0]) if types else "float")
    collective = Collective.spelled(operation)
    gathers = collective is not None and collective.spec.before is Held.BLOCK
    return TracedCall(operation, nbytes, WORLD, per_rank=gathers)


def _volume(shape: Any) -> int:
    """Return the elements of a tensor, or of all tensors of a list."""
    if not isinstance(shape, list) or not shape:
        return 0
    if all(type(one) is int and 0 <= one <= MAX_ELEMENTS for one in shape):
        return prod(shape)
    return sum(_volume(one) for one in shape)


def _elements(fields: Mapping[str, Any], way: str) -> int:
    value = fields.get(f"{way} msg nelems", 0)
    if type(value) is not int or not 0 <= value <= MAX_ELEMENTS:
        raise InputError(f"{way} msg nelems cannot be {shortened_repr(value)}")
    return value


def _type_bytes(name: str) -> int:
    """Return the bytes of an element; raise InputError for an unknown type."""
    plain = name.lower().removeprefix("c10::").removeprefix("torch.").partition("_")[0]
    if plain not in _BYTES_OF_TYPE:
        raise InputError(unknown_name("type of elements", name, _BYTES_OF_TYPE))
    return _BYTES_OF_TYPE[plain]
