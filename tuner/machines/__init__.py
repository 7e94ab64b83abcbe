"""Machines by name, each number with its source. What a preset says is in its `Design`."""

from __future__ import annotations

from tuner.base.errors import InputError, quoted
from tuner.machines.ac922 import sierra, summit
from tuner.machines.clusters import comet, kesch, piz_daint, ri2
from tuner.machines.dgx import dgx_1p, dgx_1v
from tuner.machines.gpus import GPU, GPUS
from tuner.machines.machine_spec import MOST_NODES, Design, Machine, machine
from tuner.machines.nvl72 import gb200_nvl72
from tuner.machines.provenance import CERTAINTIES, Sourced
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


def design(name: str) -> Design:
    """What a preset says. Raises InputError for an unknown name."""
    if name not in _DESIGNS:
        raise InputError(f"there is no preset {quoted(name)}; known: {', '.join(PRESETS)}")
    return _DESIGNS[name]()


def preset(name: str, nodes: int | None = None) -> Machine:
    """A machine by name, with as many nodes as it really has or with so many.

    Raises InputError for an unknown name and for a number of nodes below 1 or above MOST_NODES.
    """
    return machine(design(name), nodes)


__all__ = [
    "CERTAINTIES",
    "GPU",
    "GPUS",
    "MOST_NODES",
    "PRESETS",
    "Design",
    "Machine",
    "Sourced",
    "design",
    "machine",
    "preset",
    "with_gpu",
    "with_nics",
    "with_nodes",
    "with_taper",
]
