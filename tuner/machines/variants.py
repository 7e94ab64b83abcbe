"""Machines that differ from a preset in one respect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tuner.base.errors import InputError
from tuner.machines.catalog import known_gpus, known_parts
from tuner.machines.gpus import GpuSpec, find_gpu
from tuner.machines.machine_spec import Machine, MachineSpec, PathKey, build_machine
from tuner.machines.node_parts import DeviceLink, LinkType, NodeSpec, with_nics_at
from tuner.machines.provenance import SourcedPathCost, SourcedValue
from tuner.machines.sourced_fields import SourcedReader
from tuner.topology import CUDA, GPU_LINK_KINDS, NIC, NVLINK, NVSWITCH_REDUCTION, PCIE, SAME_GPU
from tuner.topology import GPU as GPU_KIND
from tuner.topology.readers.fabrics import FatTree

NVSWITCH = "nvswitch"  # name of the device that joins all GPUs
MAX_NICS = 128


def with_nodes(machine_: Machine, nodes: int) -> Machine:
    """Return the machine with another number of nodes; the fabric adapts to it.

    Raises InputError, as all functions here do, for a machine from a file or an invalid value.
    """
    return build_machine(_require_spec(machine_), nodes)


def with_taper(machine_: Machine, ratio: float) -> Machine:
    """Return the machine with another taper: leaf uplinks = ports below / ratio.

    A ratio of 1 is full bisection bandwidth. Only fat trees have a taper.
    """
    design = _require_spec(machine_)
    if not isinstance(design.fabric, FatTree):
        raise InputError(
            f"{design.name} has {design.fabric.summary}: a taper belongs to a fat tree"
        )
    if not 1.0 <= ratio <= design.fabric.down[0]:
        raise InputError(
            f"a taper is a number from 1 to {design.fabric.down[0]}, the ports below a leaf of"
            f" {design.name}, not {ratio:g}"
        )
    up = (design.fabric.down[0] / ratio, *design.fabric.up[1:])
    fabric = replace(design.fabric, up=up)
    return _rebuild(machine_, replace(design, fabric=fabric, accuracy={}))


def with_nics(machine_: Machine, nics: int) -> Machine:
    """Return the machine with `nics` NICs per node, distributed over the places of the old NICs."""
    design = _require_spec(machine_)
    if not 1 <= nics <= MAX_NICS:
        raise InputError(f"a node has 1 to {MAX_NICS} NICs, not {nics}")
    names = set(design.node_spec.device_names(NIC))
    old = [edge for edge in design.node_spec.device_links if edge.a in names]
    if not old:
        raise InputError(f"{design.name} has no NICs whose places others could take")
    places = list(dict.fromkeys(edge.b for edge in old))
    inside = with_nics_at(design.node_spec, places, nics, old[0].link_type)
    return _rebuild(machine_, replace(design, node_spec=inside, accuracy={}))


def with_gpu(machine_: Machine, product: str) -> Machine:
    """Return the machine with other GPUs in the same places.

    Each has the new product's NVLinks or xGMI links, distributed as the old ones were, its PCIe
    rate and its memory. Measured rates that end at a GPU are scaled accordingly; latencies stay.
    """
    design = _require_spec(machine_)
    new, old = find_gpu(product, {**known_gpus(), **design.own_gpus}), design.gpu
    if old is None:
        raise InputError(f"{design.name} has no GPUs that could be replaced")
    kinds = {edge.link_type.kind for edge in design.node_spec.device_links} - {new.link_kind}
    for missing in kinds & GPU_LINK_KINDS.keys():
        raise InputError(
            f"{product} has no {GPU_LINK_KINDS[missing]}, which {design.name} needs; choose"
            " another GPU"
        )
    offers = dict(design.capabilities)
    if NVSWITCH in design.node_spec.device_names("switch") and new.nvlink_sharp:
        offers[NVSWITCH_REDUCTION] = SourcedReader(known_parts()).origin("offers", "nvls")
    else:
        offers.pop(NVSWITCH_REDUCTION, None)
    changed = replace(
        design,
        gpu=new,
        node_spec=_replace_gpus(design.node_spec, old, new),
        capabilities=offers,
        paths=_scale_paths(design.paths, old, new),
        reduction={**design.reduction, "cuda": new.reduction},
        accuracy={},
        nccl={},
    )
    return _rebuild(machine_, changed)


def with_nccl_costs(machine_: Machine, costs: Mapping[str, SourcedValue]) -> Machine:
    """Return the machine on whose GPUs NCCL takes this, the fields of `NcclCosts` by name."""
    return _rebuild(machine_, replace(_require_spec(machine_), nccl=costs, accuracy={}))


def _require_spec(machine_: Machine) -> MachineSpec:
    if machine_.spec is None:
        raise InputError(
            f"{machine_.name} came from a file without costs, which does not say how it would grow;"
            " use a preset"
        )
    return machine_.spec


def _rebuild(machine_: Machine, design: MachineSpec) -> Machine:
    return build_machine(design, len(machine_.topology.nodes))


def _replace_gpus(inside: NodeSpec, old: GpuSpec, new: GpuSpec) -> NodeSpec:
    gpus = set(inside.device_names(GPU_KIND))
    devices = tuple(
        replace(device, product=new.product) if device.name in gpus else device
        for device in inside.devices
    )
    return NodeSpec(devices, tuple(_link(edge, gpus, old, new) for edge in inside.device_links))


def _link(edge: DeviceLink, gpus: set[str], old: GpuSpec, new: GpuSpec) -> DeviceLink:
    if not {edge.a, edge.b} & gpus:
        return edge
    if edge.link_type.kind not in GPU_LINK_KINDS:
        return replace(
            edge, link_type=LinkType(edge.link_type.kind, new.pcie_rate, edge.link_type.latency)
        )
    share = edge.count * new.links / old.links
    count = max(1, round(share))
    told = f"{new.link_rate.source}; {share:g} bricks as {count}"
    rate = replace(new.link_rate, value=new.link_rate.value * share / count, source=told)
    return DeviceLink(edge.a, edge.b, replace(edge.link_type, rate=rate), count)


def _scale_paths(
    paths: Mapping[PathKey, SourcedPathCost], old: GpuSpec, new: GpuSpec
) -> dict[PathKey, SourcedPathCost]:
    """Return the costs with the rates of paths that end at GPUs scaled by what limits them."""
    pcie = new.pcie_rate.value / old.pcie_rate.value
    links = (
        new.links * new.link_rate.value / (old.links * old.link_rate.value) if old.links else 1.0
    )
    memory = new.memory_rate.value / old.memory_rate.value
    factors = {
        (NVLINK, CUDA): links,
        (PCIE, CUDA): pcie,
        ("staging", CUDA): pcie,
        ("self", CUDA): memory,
        (SAME_GPU, CUDA): memory,
    }
    return {key: _scale_rates(costs, factors.get(key, 1.0), new) for key, costs in paths.items()}


def _scale_rates(costs: SourcedPathCost, factor: float, new: GpuSpec) -> SourcedPathCost:
    def grown(rate: SourcedValue) -> SourcedValue:
        told = f"{rate.source}; times {factor:.3g} for {new.product}"
        return SourcedValue(rate.value * factor, rate.unit, told, "computed")

    if factor == 1.0:
        return costs
    lines = tuple(replace(line, rate=grown(line.rate)) for line in costs.segments)
    return replace(costs, segments=lines)
