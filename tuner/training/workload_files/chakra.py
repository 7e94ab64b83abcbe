"""Execution traces of MLCommons Chakra (`.et`): what one rank does, with its dependencies.

A file has a `GlobalMetadata` and then a `Node` per operation, each after its length. Read are of a
node its type, its dependencies, `duration_micros`, and the attributes `comm_type`, `comm_size` (or
`tensor_size`), `comm_src`, `comm_dst` and `pg_name` (or `comm_group`). A COMP_NODE computes, as do
MEM_LOAD_NODE, MEM_STORE_NODE, and a collective of the host without `comm_type`, which launches one
of the GPU; a METADATA_NODE only passes its dependencies on. As in Chakra's feeder and ASTRA-sim,
dependencies are `data_deps`: `ctrl_deps` name the caller, which may be left out or come later, and
what `is_cpu_op` marks runs beside the GPU. `involved_dim` names a group by the dimensions of the
simulated network; a call without `comm_size` is left out. The size of an allgather or a gather is
what one rank gives. A message from rank 0 to rank s counts as one between all pairs of ranks at
distance s. A trace does not say which ranks are in its groups; those written here do, by attributes
`group NAME` of the metadata with size and stride.

The schema is small and stable, so that the format is read without the package `mlc-chakra`.

Source: schema/protobuf/et_def.proto and src/feeder/et_feeder.cpp of github.com/mlcommons/chakra
(mlc-chakra 1.0.0)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuner.base.atomic_io import write_atomically
from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective, Held
from tuner.training.recorded import (
    BARRIER_BYTES,
    COMMUNICATION,
    COMPUTE,
    HOST,
    SEND,
    WORLD,
    RecordedStep,
    RecordedWorkload,
    operation_of,
)
from tuner.training.workload_files import wire_format as wire
from tuner.training.workload_files.dependency_order import dependency_order
from tuner.training.workload_files.trace_calls import call_names

SUFFIX = ".et"
SCHEMA_VERSION = "0.0.4"
MAX_NODES = 1_000_000
MAX_DEPENDENCIES = 10_000_000  # of all steps together
MAX_NBYTES = 1 << 60
MICROSECONDS = 1e6  # in a second
METADATA, MEM_LOAD, MEM_STORE, COMP, COMM_SEND, COMM_RECV, COMM_COLL = range(1, 8)  # NodeType
COMM_TYPES = (  # names of CollectiveCommType, by number
    "ALL_REDUCE",
    "REDUCE",
    "ALL_GATHER",
    "GATHER",
    "SCATTER",
    "BROADCAST",
    "ALL_TO_ALL",
    "REDUCE_SCATTER",
    "REDUCE_SCATTER_BLOCK",
    "BARRIER",
)
_OPERATIONS = tuple(map(operation_of, COMM_TYPES))
_INTEGERS = {5, 7, 9, 11, 13, 27}  # fields of an attribute with a varint; 15 and 17 are zigzag
_ZIGZAG = {15, 17}
_STRING = 29
_UINT64_LIST = 14
_BOOL_LIST = 28
_GROUP = "group "
_PAIRS = "pairs at distance "


@dataclass
class TraceNode:
    """A node of a trace."""

    number: int = 0
    name: str = ""
    kind: int = 0
    duration: float = 0.0
    dependencies: list[int] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    dimensions: list[int] = field(default_factory=list)  # `involved_dim`: 1 for those that are


def parse_chakra_trace(data: bytes, name: str) -> RecordedWorkload:
    """Return the steps of a trace; raise InputError for a malformed one."""
    messages = wire.decode_messages(data)
    groups = {WORLD: (0, 1)} | dict(_metadata_groups(next(messages, b"")))
    nodes: dict[int, TraceNode] = {}
    for message in messages:
        node = _node(message)
        if node.number in nodes:
            raise InputError(f"node {node.number} is in the file twice")
        if len(nodes) == MAX_NODES:
            raise InputError(f"more than {MAX_NODES} nodes: record fewer iterations")
        nodes[node.number] = node
    steps: list[RecordedStep] = []
    unsized = Counter[str]()
    ended: dict[int, frozenset[int]] = {}  # node -> steps after which it has ended
    dependencies = 0
    for node in _ordered(nodes):
        after = frozenset[int]().union(*(ended[one] for one in node.dependencies))
        dependencies += len(after)
        if dependencies > MAX_DEPENDENCIES:
            raise InputError(f"more than {MAX_DEPENDENCIES} dependencies: record fewer iterations")
        lacking = _unsized_call(node)
        if node.kind == METADATA or lacking:
            ended[node.number] = after
            unsized[lacking] += 1
            continue
        ended[node.number] = frozenset({len(steps)})
        step = _step(node, tuple(sorted(after)))
        if step.group.startswith(_PAIRS):
            groups[step.group] = (2, int(step.group.removeprefix(_PAIRS)))
        steps.append(step)
    computing = "" if any(one.collective for one in steps) else (one.name for one in steps)
    lacks = (f"{n} of {call} without comm_size" for call, n in unsized.items() if call)
    unread = (*call_names(computing), *lacks)
    return RecordedWorkload(name, _beside_host(steps), groups, unread=unread)


def _beside_host(steps: Sequence[RecordedStep]) -> tuple[RecordedStep, ...]:
    """Return the steps with those of the host as computations where no GPU computes."""
    if any(one.stream == COMPUTE for one in steps):
        return tuple(steps)
    return tuple(replace(one, stream=COMPUTE) if one.stream == HOST else one for one in steps)


def _unsized_call(node: TraceNode) -> str:
    """Return the kind of a call whose bytes are not told, "" for all other nodes."""
    kind = node.numbers.get("comm_type", -1)
    has_size = not {"comm_size", "tensor_size"}.isdisjoint(node.numbers)
    if not has_size and node.kind in (COMM_SEND, COMM_RECV):
        return "SEND"
    is_call = node.kind == COMM_COLL and 0 <= kind < len(COMM_TYPES)
    return COMM_TYPES[kind] if is_call and not has_size and COMM_TYPES[kind] != "BARRIER" else ""


def _metadata_groups(message: bytes) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the groups that the metadata have, and their size and stride."""
    for number, kind, value in wire.decode_fields(message):
        if number != 2 or kind != wire.BYTES or not isinstance(value, bytes):
            continue
        name, found = "", list[int]()
        for field_number, _, content in wire.decode_fields(value):
            if field_number == 1 and isinstance(content, bytes):
                name = _text(content)
            elif field_number == _UINT64_LIST and isinstance(content, bytes):
                found = [one for _, _, part in wire.decode_fields(content) for one in _packed(part)]
        if name.startswith(_GROUP) and len(found) == 2 and 0 < min(found) <= max(found) < 1 << 24:
            yield name.removeprefix(_GROUP), (found[0], found[1])


def _packed(value: int | bytes) -> Iterator[int]:
    """Yield the numbers of a repeated field, one by one or packed."""
    if isinstance(value, int):
        yield value
        return
    at = 0
    while at < len(value):
        number, at = wire.decode_varint(value, at)
        yield number


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _node(message: bytes) -> TraceNode:
    node = TraceNode()
    for number, _, value in wire.decode_fields(message):
        if number == 5:
            node.dependencies += _packed(value)
        elif isinstance(value, int):
            if number == 1:
                node.number = value
            elif number == 3:
                node.kind = value
            elif number == 7:
                node.duration = value / MICROSECONDS
        elif number == 2:
            node.name = _text(value)
        elif number == 10:
            _add_attribute(node, value)
    return node


def _add_attribute(node: TraceNode, message: bytes) -> None:
    name, integer, text, flags = "", None, None, list[int]()
    for number, _, value in wire.decode_fields(message):
        if isinstance(value, int) and number in _INTEGERS:
            integer = value - (1 << 64) if value >> 63 else value
        elif isinstance(value, int) and number in _ZIGZAG:
            integer = (value >> 1) ^ -(value & 1)
        elif isinstance(value, bytes) and number == 1:
            name = _text(value)
        elif isinstance(value, bytes) and number == _STRING:
            text = _text(value)
        elif isinstance(value, bytes) and number == _BOOL_LIST:
            flags = [one for _, _, part in wire.decode_fields(value) for one in _packed(part)]
    if integer is not None:
        node.numbers[name] = integer
    if text is not None:
        node.texts[name] = text
    if name == "involved_dim":
        node.dimensions = flags


def _ordered(nodes: dict[int, TraceNode]) -> list[TraceNode]:
    """Return the nodes so that each follows those that it depends on; raises InputError."""
    edges = [(other, node.number) for node in nodes.values() for other in node.dependencies]
    for other, number in edges:
        if other not in nodes:
            raise InputError(f"node {number} depends on node {other}: expected that, too")
    ordered = dependency_order(nodes, edges)
    if len(ordered) < len(nodes):
        raise InputError("the dependencies of the nodes form a cycle")
    return [nodes[number] for number in ordered]


def _step(node: TraceNode, after: tuple[int, ...]) -> RecordedStep:
    name = node.name or f"node {node.number}"
    kind = node.numbers.get("comm_type", -1)
    launches = node.kind == COMM_COLL and kind < 0 and node.numbers.get("is_cpu_op")
    if node.kind in (COMP, MEM_LOAD, MEM_STORE) or launches:
        if not node.duration and node.numbers.get("num_ops"):
            raise InputError(
                f"node {node.number} has a number of operations and no duration: record its time"
            )
        stream = HOST if node.numbers.get("is_cpu_op") else COMPUTE
        return RecordedStep(name, stream, node.duration, after=after)
    if node.kind not in (COMM_SEND, COMM_RECV, COMM_COLL):
        raise InputError(f"node {node.number}: the type must be 1 to {COMM_COLL}, not {node.kind}")
    nbytes = node.numbers.get("comm_size", node.numbers.get("tensor_size", 0))
    if not 0 <= nbytes <= MAX_NBYTES:
        raise InputError(f"node {node.number}: the size cannot be {shortened_repr(nbytes)}")
    group = node.texts.get("pg_name") or node.texts.get("comm_group") or _dimensions(node)
    if node.kind != COMM_COLL:
        distance = abs(node.numbers.get("comm_dst", 0) - node.numbers.get("comm_src", 0))
        if 0 < distance < 1 << 24 and group == WORLD:
            group = f"{_PAIRS}{distance}"
        return RecordedStep(name, COMMUNICATION, 0.0, SEND, nbytes, group, after)
    if not 0 <= kind < len(COMM_TYPES):
        raise InputError(f"node {node.number}: comm_type must be that of a collective")
    operation = _OPERATIONS[kind]
    if COMM_TYPES[kind] == "BARRIER":
        nbytes = BARRIER_BYTES
    return RecordedStep(
        name, COMMUNICATION, 0.0, operation, nbytes, group, after, _gathers(operation)
    )


def _dimensions(node: TraceNode) -> str:
    """Return the group of ranks along some dimensions of the network, WORLD for all of them."""
    if all(node.dimensions):
        return WORLD
    involved = [str(number) for number, is_in in enumerate(node.dimensions) if is_in]
    if not involved:
        raise InputError(f"node {node.number}: involved_dim leaves no dimension to the call")
    return f"dimension {' and '.join(involved)}"


def check_other_form(data: bytes) -> None:
    """Raise InputError for JSON that is a trace of Chakra, or what one is made from."""
    try:
        record, _ = json.JSONDecoder().raw_decode(
            data.decode("utf-8", "replace").lstrip("\ufeff \n")
        )
    except (ValueError, RecursionError):
        return
    keys = record.keys() if isinstance(record, dict) else set()
    if "workload_graph" in keys or ("version" in keys and keys <= {"version", "attr"}):
        raise InputError("a trace of Chakra as JSON, which is not read: give it as .et")
    if {"schema", "nodes"} <= keys:
        raise InputError(
            "PyTorch's execution trace (ExecutionTraceObserver), which has no times of a GPU: give"
            " the profiler's trace, or the .et into which chakra_converter turns both"
        )


def write_chakra_trace(path: Path, workload: RecordedWorkload) -> None:
    """Write the steps of a workload as a trace, whole or not at all.

    Times are rounded to microseconds. Raises InputError for an allgather or a gather of a group
    whose number of ranks is not known.
    """
    metadata = wire.encode_bytes(1, SCHEMA_VERSION.encode())
    for name, shape in workload.groups.items():
        if all(shape) and not name.startswith(_PAIRS):
            values = wire.encode_bytes(1, b"".join(map(wire.encode_varint, shape)))
            content = wire.encode_bytes(1, f"{_GROUP}{name}".encode())
            metadata += wire.encode_bytes(2, content + wire.encode_bytes(_UINT64_LIST, values))
    nodes = [_encoded_node(number, step, workload) for number, step in enumerate(workload.steps)]
    write_atomically(path, _with_lengths([metadata, *nodes]))


def _with_lengths(messages: Sequence[bytes]) -> bytes:
    return b"".join(wire.encode_varint(len(one)) + one for one in messages)


def _encoded_node(number: int, step: RecordedStep, workload: RecordedWorkload) -> bytes:
    calls = step.stream == COMMUNICATION
    kind = COMP if not calls else COMM_SEND if step.collective == SEND else COMM_COLL
    node = wire.encode_number(1, number) + wire.encode_bytes(2, step.name.encode())
    node += wire.encode_number(3, kind)
    if step.after:
        node += wire.encode_bytes(5, b"".join(map(wire.encode_varint, step.after)))
    node += wire.encode_number(7, round(step.seconds * MICROSECONDS))
    attributes = {"is_cpu_op": wire.encode_number(27, int(step.stream == HOST))}
    if calls:
        attributes["comm_size"] = wire.encode_number(9, _comm_size(step, workload))
    if kind == COMM_COLL:
        attributes["comm_type"] = wire.encode_number(9, _OPERATIONS.index(step.collective))
    if kind == COMM_SEND:
        distance = workload.groups.get(step.group, (0, 1))[1]
        attributes["comm_src"] = wire.encode_number(9, 0)
        attributes["comm_dst"] = wire.encode_number(9, distance)
    if calls and step.group != WORLD and not step.group.startswith(_PAIRS):
        attributes["pg_name"] = wire.encode_bytes(_STRING, step.group.encode())
    return node + b"".join(
        wire.encode_bytes(10, wire.encode_bytes(1, name.encode()) + value)
        for name, value in attributes.items()
    )


def _gathers(operation: str) -> bool:
    """Return whether Chakra has the size of one rank of an operation."""
    collective = Collective.spelled(operation)
    return collective is not None and collective.spec.before is Held.BLOCK


def _comm_size(step: RecordedStep, workload: RecordedWorkload) -> int:
    """Return the size as Chakra has it, of an allgather or a gather that of one rank."""
    if step.per_rank or not _gathers(step.collective):
        return step.nbytes
    size = len(workload.uneven.get(step.group, ()))
    if step.group in workload.groups:
        size = workload.groups[step.group][0] or workload.ranks
    if not size:
        raise InputError(
            f"{workload.name}: how many ranks are in group {step.group} is not known: add `groups`"
        )
    return step.nbytes // size
