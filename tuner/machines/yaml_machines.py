"""Machines in YAML: a preset, possibly with changes, or a topology with nominal costs."""

from __future__ import annotations

from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.machines import Machine, preset, with_gpu, with_nics, with_taper
from tuner.topology.readers.probed_topology import nominal_calibration
from tuner.topology.readers.yaml_fields import (
    parse_int,
    parse_name,
    parse_positive_float,
    require_keys,
)
from tuner.topology.readers.yaml_topology import topology_from_yaml

PRESET_PREFIX = "preset:"
PRESET_KEYS = {"name", "preset", "nodes", "gpu", "nics", "taper"}


def machine_from_yaml(record: Any) -> Machine:
    """Return the machine of parsed YAML or JSON; raise InputError for an invalid record.

    A preset has its own costs; every other topology has nominal costs.
    """
    if isinstance(record, dict) and "preset" in record:
        return _changed_preset(record)
    topology = topology_from_yaml(record)
    return Machine(topology.name, topology, nominal_calibration(topology))


def machine_from_preset_reference(text: str) -> Machine:
    """Return the machine of `preset:NAME` or `preset:NAME:NODES`; raise InputError for others."""
    name, colon, nodes = text.removeprefix(PRESET_PREFIX).partition(":")
    if colon and not (nodes.isascii() and nodes.isdigit() and len(nodes) < 10):
        raise InputError(
            f"{shortened_repr(text)}: the number of nodes must be a whole number; write it like"
            f" {PRESET_PREFIX}{name}:16"
        )
    return preset(name, int(nodes) if colon else None)


def _changed_preset(record: dict[str, Any]) -> Machine:
    require_keys("the topology", record, PRESET_KEYS, {"preset"})
    nodes = parse_int("nodes", record["nodes"]) if "nodes" in record else None
    machine = preset(parse_name("preset", record["preset"]), nodes)
    if "gpu" in record:
        machine = with_gpu(machine, parse_name("gpu", record["gpu"]))
    if "nics" in record:
        machine = with_nics(machine, parse_int("nics", record["nics"]))
    if "taper" in record:
        machine = with_taper(machine, parse_positive_float("taper", record["taper"]))
    return machine
