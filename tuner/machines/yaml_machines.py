"""Machines in YAML: with costs and sources, a preset with changes, or a topology alone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.base.file_settings import parse_int, parse_name, parse_positive_float, require_keys
from tuner.machines import (
    Machine,
    build_machine,
    preset,
    with_gpu,
    with_nccl_costs,
    with_nics,
    with_taper,
)
from tuner.machines.catalog import apply_changes
from tuner.machines.spec_fields import SPEC_KEYS, spec_from_yaml
from tuner.topology.readers.probed_topology import nominal_calibration
from tuner.topology.readers.yaml_topology import topology_from_yaml

PRESET_PREFIX = "preset:"
MACHINE_KEYS = ("preset", "paths")  # a record with one of them has costs
VARIANT_KEYS = {"gpu", "nics", "taper"}


def has_costs(record: Any) -> bool:
    """Return whether parsed YAML is a machine with costs, and not a topology alone."""
    return isinstance(record, dict) and any(key in record for key in MACHINE_KEYS)


def machine_from_yaml(record: Any) -> Machine:
    """Return the machine of parsed YAML or JSON; raise InputError for an invalid record.

    A topology alone has nominal costs.
    """
    if not has_costs(record):
        topology = topology_from_yaml(record)
        return Machine(topology.name, topology, nominal_calibration(topology))
    changed = "preset" in record
    machine = _changed_preset(record) if changed else build_machine(spec_from_yaml(record))
    return replace(machine, record=json.loads(json.dumps(record)))  # keys of other types as text


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
    """Return a preset with other values of its keys, and then with other GPUs, NICs or taper."""
    require_keys("the topology", record, SPEC_KEYS | VARIANT_KEYS | {"preset"}, {"preset"})
    parse_name("preset", record["preset"])
    changes = {key: value for key, value in record.items() if key not in VARIANT_KEYS}
    nodes = None
    if "nodes" in changes and not isinstance(changes["nodes"], dict):
        nodes = parse_int("nodes", changes.pop("nodes"))
    spec = spec_from_yaml(apply_changes(changes))
    machine = build_machine(spec, nodes)
    if "gpu" in record:
        machine = with_gpu(machine, parse_name("gpu", record["gpu"]))
        if "nccl" in record:
            machine = with_nccl_costs(machine, spec.nccl)
    if "nics" in record:
        machine = with_nics(machine, parse_int("nics", record["nics"]))
    if "taper" in record:
        machine = with_taper(machine, parse_positive_float("taper", record["taper"]))
    return machine
