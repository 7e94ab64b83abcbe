"""Parsing of the lists in a study: axes with their values, sizes.

Each function raises InputError for a malformed list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.base.file_settings import SIZE, Kind
from tuner.base.units import is_line_rate
from tuner.machines import Machine
from tuner.topology import CUDA, GPU, HOST, Topology
from tuner.whatif.axes import AXES, BANDWIDTH_AXES, AxisValue, LineRate, line_rate_efficiency


def parse_axes(vary: Mapping[str, Any], machine: Machine) -> dict[str, tuple[AxisValue, ...]]:
    """Return the values of every axis given, and of nodes, ppn and memory also if not given.

    Line rates, which are written in bits per second, become what the NICs of the machine reach of
    them.
    """
    topology = machine.topology
    gpus = gpus_per_node(topology)
    left_out = {
        "nodes": [len(topology.nodes)],
        "ppn": [gpus or 1],
        "memory": [CUDA if gpus else HOST],
    }
    given = {**left_out, **vary}
    efficiency = line_rate_efficiency(machine)
    return {name: _parse_values(name, given[name], efficiency) for name in AXES if name in given}


def gpus_per_node(topology: Topology) -> int:
    """Return how many GPUs every node has at least."""
    if any(node.node_topology is None for node in topology.nodes):
        return 0
    return min(len(interior.device_indices(GPU)) for interior, _ in topology.node_topologies)


def _parse_values(name: str, entry: Any, efficiency: float) -> tuple[AxisValue, ...]:
    if not isinstance(entry, list) or not entry:
        raise InputError(f"vary: {name} must be a list of values, not {shortened_repr(entry)}")
    values = dict.fromkeys(parse_value(f"vary: {name}", name, one, efficiency) for one in entry)
    return tuple(sorted(values, key=lambda value: 0.0 if isinstance(value, str) else value))


def parse_value(what: str, name: str, value: object, efficiency: float) -> AxisValue:
    """Return a value of an axis; raise InputError for an invalid one.

    what            place of the value, for messages
    name            name of the axis
    efficiency      share of its line rate that a NIC reaches
    """
    parsed: AxisValue = AXES[name].kind.read(what, value)
    if name in BANDWIDTH_AXES and is_line_rate(value) and efficiency < 1.0:
        return LineRate(float(parsed) * efficiency, str(value))
    return parsed


def parse_sizes(what: str, entry: Any) -> tuple[int, ...]:
    """Return the sizes in bytes, ascending."""
    from tuner.sim.transfers import MAX_MESSAGE_BYTES  # slow to import, and no machine needs it

    if not isinstance(entry, list) or not entry:
        raise InputError(f"{what} must be a list such as [1KiB, 1MiB], not {shortened_repr(entry)}")
    sizes = sorted({SIZE.read(what, value) for value in entry})
    if sizes[-1] > MAX_MESSAGE_BYTES:
        raise InputError(f"{what}: a message has 0 to {MAX_MESSAGE_BYTES} bytes, not {sizes[-1]}")
    return tuple(sizes)


SIZES = Kind("sizes", parse_sizes)
