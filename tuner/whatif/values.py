"""The lists of a study: axes with their values, collectives, sizes. Each raises InputError."""

from __future__ import annotations

from typing import Any

from tuner.base.errors import InputError, quoted
from tuner.base.units import parse_size
from tuner.core.collective import Collective
from tuner.sim.transfers import LARGEST
from tuner.topology import CUDA, GPU, HOST, Topology
from tuner.topology.readers.yaml_fields import require_keys
from tuner.whatif.axes import AXES, Value


def axes_from(vary: Any, topology: Topology) -> dict[str, tuple[Value, ...]]:
    """Every axis that is given, and those that always are with what the machine has."""
    require_keys("vary", vary, set(AXES), set())
    gpus = _gpus(topology)
    left_out = {
        "nodes": [len(topology.nodes)],
        "ppn": [gpus or 1],
        "memory": [CUDA if gpus else HOST],
    }
    given = {**left_out, **vary}
    return {name: _values(name, given[name]) for name in AXES if name in given}


def _gpus(topology: Topology) -> int:
    """GPUs that every node has."""
    if any(node.interior is None for node in topology.nodes):
        return 0
    return min(len(interior.numbers(GPU)) for interior, _ in topology.interiors)


def _values(name: str, entry: Any) -> tuple[Value, ...]:
    if not isinstance(entry, list) or not entry:
        raise InputError(f"vary: {name} must be a list of values, not {quoted(entry)}")
    try:
        values = dict.fromkeys(AXES[name].parse(value) for value in entry)
    except InputError as reason:
        raise InputError(f"vary: {name}: {reason}") from None
    return tuple(sorted(values, key=lambda value: 0.0 if isinstance(value, str) else value))


def names_from(what: str, entry: Any) -> tuple[str, ...]:
    """Each one once, in the order in which they were written."""
    if not isinstance(entry, list) or not entry or not all(isinstance(e, str) for e in entry):
        raise InputError(f"{what} must be a list of names, not {quoted(entry)}")
    return tuple(dict.fromkeys(entry))


def collectives_from(entry: Any) -> tuple[Collective, ...]:
    """Likewise, by their names."""
    names = names_from("collectives", entry)
    unknown = [name for name in names if name not in list(Collective)]
    if unknown:
        raise InputError(
            f"there is no collective {quoted(unknown[0])}; known: {', '.join(Collective)}"
        )
    return tuple(Collective(name) for name in names)


def sizes_from(entry: Any) -> tuple[int, ...]:
    """Bytes, ascending."""
    if not isinstance(entry, list) or not entry:
        raise InputError(f"sizes must be a list such as [1KiB, 1MiB], not {quoted(entry)}")
    sizes = sorted({parse_size(value) for value in entry})
    if sizes[-1] > LARGEST:
        raise InputError(f"a message has 0 to {LARGEST} bytes, not {sizes[-1]}")
    return tuple(sizes)
