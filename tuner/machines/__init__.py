"""Machines by name, with a source for every number; a `MachineSpec` holds what a preset states."""

from __future__ import annotations

from tuner.base.errors import InputError, shortened_repr
from tuner.machines.ac922 import sierra, summit
from tuner.machines.commodity_clusters import comet, kesch, piz_daint, ri2
from tuner.machines.dgx import dgx_1p, dgx_1v
from tuner.machines.gpus import GPUS, GpuSpec
from tuner.machines.machine_spec import MAX_MACHINE_NODES, Machine, MachineSpec, build_machine
from tuner.machines.nvl72 import gb200_nvl72
from tuner.machines.provenance import CERTAINTIES, SourcedValue
from tuner.machines.switched import dgx_2, dgx_a100, dgx_h100, hgx_h200
from tuner.machines.variants import with_gpu, with_nics, with_nodes, with_taper

_DESIGNS = {
    "dgx-1p": dgx_1p,
    "dgx-1v": dgx_1v,
    "dgx-2": dgx_2,
    "dgx-a100": dgx_a100,
    "dgx-h100": dgx_h100,
    "hgx-h200": hgx_h200,
    "gb200-nvl72": gb200_nvl72,
    "summit": summit,
    "sierra": sierra,
    "ri2": ri2,
    "kesch": kesch,
    "piz-daint": piz_daint,
    "comet": comet,
}
PRESETS = tuple(_DESIGNS)


def preset_spec(name: str) -> MachineSpec:
    """Return the specification of a preset; raise InputError for an unknown name."""
    if name not in _DESIGNS:
        raise InputError(f"there is no preset {shortened_repr(name)}; known: {', '.join(PRESETS)}")
    return _DESIGNS[name]()


def preset(name: str, nodes: int | None = None) -> Machine:
    """Return a preset machine with its real number of nodes, or with `nodes` nodes.

    Raises InputError for an unknown name and for a number of nodes below 1 or above
    `MAX_MACHINE_NODES`.
    """
    return build_machine(preset_spec(name), nodes)


__all__ = [
    "CERTAINTIES",
    "GPUS",
    "MAX_MACHINE_NODES",
    "PRESETS",
    "GpuSpec",
    "Machine",
    "MachineSpec",
    "SourcedValue",
    "build_machine",
    "preset",
    "preset_spec",
    "with_gpu",
    "with_nics",
    "with_nodes",
    "with_taper",
]
