"""Machines, with a source for every number; those that have a name are YAML files in `presets`."""

from __future__ import annotations

from functools import cache

from tuner.base.errors import InputError
from tuner.machines.catalog import PRESETS, known_gpus, preset_path, preset_record
from tuner.machines.gpus import GpuSpec
from tuner.machines.machine_spec import MAX_MACHINE_NODES, Machine, MachineSpec, build_machine
from tuner.machines.provenance import CERTAINTIES, SourcedValue
from tuner.machines.spec_fields import spec_from_yaml
from tuner.machines.variants import (
    PCIE_RATES,
    with_fabric,
    with_gpu,
    with_nccl_costs,
    with_nics,
    with_nodes,
    with_nvlink_domain,
    with_pcie,
    with_taper,
)


@cache
def preset_spec(name: str) -> MachineSpec:
    """Return the specification of a preset; raise InputError for an unknown name or a bad file."""
    record = preset_record(name)
    try:
        return spec_from_yaml(record)
    except InputError as reason:
        raise InputError(f"{preset_path(name)}: {reason}") from None


def preset(name: str, nodes: int | None = None) -> Machine:
    """Return a preset machine with its real number of nodes, or with `nodes` nodes.

    Raises InputError for an unknown name and for a number of nodes below 1 or above
    `MAX_MACHINE_NODES`.
    """
    return build_machine(preset_spec(name), nodes)


__all__ = [
    "CERTAINTIES",
    "MAX_MACHINE_NODES",
    "PCIE_RATES",
    "PRESETS",
    "GpuSpec",
    "Machine",
    "MachineSpec",
    "SourcedValue",
    "build_machine",
    "known_gpus",
    "preset",
    "preset_spec",
    "with_fabric",
    "with_gpu",
    "with_nccl_costs",
    "with_nics",
    "with_nodes",
    "with_nvlink_domain",
    "with_pcie",
    "with_taper",
]
