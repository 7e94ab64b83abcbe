"""Machines that differ from a preset in one respect."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from tuner.base.errors import InputError
from tuner.machines.catalog import known_gpus, known_parts
from tuner.machines.fabric_shapes import LEAF_PORTS, ShapedNodes, shaped_fabric
from tuner.machines.gpus import GpuSpec, find_gpu
from tuner.machines.machine_spec import Machine, MachineSpec, PathKey, build_machine
from tuner.machines.node_parts import DeviceLink, LinkType, NodeSpec, with_nics_in_places
from tuner.machines.nvlink_domains import with_domain_of
from tuner.machines.provenance import SourcedPathCost, SourcedValue
from tuner.machines.sourced_fields import SourcedReader
from tuner.topology import (
    CONFIGURED_CAPABILITIES,
    CPU,
    CUDA,
    GPU_LINK_KINDS,
    NIC,
    NVLINK,
    NVSWITCH_REDUCTION,
    PCIE,
    SAME_GPU,
)
from tuner.topology import GPU as GPU_KIND
from tuner.topology.readers.fabrics import FatTree

NVSWITCH = "nvswitch"  # name of the device that joins all GPUs
MAX_NICS = 128
PCIE_RATES = {  # by generation, of 16 lanes
    3: SourcedValue(12e9, "B/s", "NCCL 2.30.7, src/graph/topo.h: PCIe 3.0 x16", "verified"),
    4: SourcedValue(26.3e9, "B/s", "PCIe 4.0 x16: host to device, A100, Azure guide", "published"),
    5: SourcedValue(51e9, "B/s", "PCIe 5.0 x16: host to device, H100, Azure guide", "published"),
    6: SourcedValue(96e9, "B/s", "NCCL 2.30.7, src/graph/topo.cc: PCIe 6.0 x16", "verified"),
}


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
    """Return the machine with `nics` NICs per node, distributed over the places of its own.

    A place is all links of a NIC: to its GPU, its CPU or its PCIe switch.
    """
    design = _require_spec(machine_)
    if not 1 <= nics <= MAX_NICS:
        raise InputError(f"a node has 1 to {MAX_NICS} NICs, not {nics}")
    own = len(design.node_spec.device_names(NIC))
    if not own:
        raise InputError(f"{design.name} has no NICs whose number could change: choose another")
    if nics == own:
        return machine_
    inside = with_nics_in_places(design.node_spec, nics)
    return _rebuild(machine_, replace(design, node_spec=inside, accuracy={}))


def with_fabric(machine_: Machine, shape: str) -> Machine:
    """Return the machine with a network of another shape, see `fabric_shapes.read_shape`.

    NICs and switch crossings stay as they are. Switches of a dragonfly or torus combine and
    replicate no messages: that is for trees.
    """
    design = _require_spec(machine_)
    own, nics = design.fabric, len(design.node_spec.device_names(NIC))
    ports = own.down[0] if isinstance(own, FatTree) else LEAF_PORTS
    around = ShapedNodes(
        len(machine_.topology.nodes),
        max(1, nics),
        own.node_cable,
        design.switch_latency.value,
        ports,
    )
    fabric = shaped_fabric(shape, around)
    offers = {
        name: origin
        for name, origin in design.capabilities.items()
        if isinstance(fabric, FatTree) or name not in CONFIGURED_CAPABILITIES
    }
    changed = replace(
        design,
        fabric=fabric,
        fabric_source=("the shape that is asked for", "assumed"),
        switch_link_rates={},
        capabilities=offers,
        accuracy={},
    )
    return _rebuild(machine_, changed)


def with_nvlink_domain(machine_: Machine, gpus: int) -> Machine:
    """Return the machine with nodes that are NVLink domains of `gpus` GPUs, see `nvlink_domains`.

    The rate of the host's memory grows with the number of GPUs.
    """
    design = _require_spec(machine_)
    own = len(design.node_spec.device_names(GPU_KIND))
    if gpus == own:
        return machine_
    try:
        inside = with_domain_of(design.node_spec, gpus)
    except InputError as reason:
        raise InputError(f"{design.name}: {reason}") from None
    memory = design.memory_bandwidth
    told = f"{memory.source}; for {gpus} instead of {own} GPUs"
    rate = SourcedValue(memory.value * gpus / own, memory.unit, told, "computed")
    changed = replace(design, node_spec=inside, memory_bandwidth=rate, accuracy={})
    return _rebuild(machine_, changed)


def with_pcie(machine_: Machine, generation: int) -> Machine:
    """Return the machine with PCIe of another generation, x16 where it has x16.

    Each PCIe link of the node, and messages over those of GPUs, change from the rate that they have
    as x16 does from the generation nearest to that rate: x8 counts as x16 of the one before. Links
    of the generation stay as they are.
    """
    design = _require_spec(machine_)
    if design.gpu is None:
        raise InputError(f"{design.name} has no GPUs whose PCIe could change: choose another")
    links = tuple(_with_generation(edge, generation) for edge in design.node_spec.device_links)
    if links == design.node_spec.device_links:
        return machine_
    new = replace(design.gpu, pcie_rate=_pcie_rate(design.gpu.pcie_rate, generation))
    changed = replace(
        design,
        gpu=new,
        node_spec=NodeSpec(design.node_spec.devices, links),
        paths=_scale_paths(design, new),
        accuracy={},
    )
    return _rebuild(machine_, changed)


def _with_generation(edge: DeviceLink, generation: int) -> DeviceLink:
    if edge.link_type.kind != PCIE:
        return edge
    rate = _pcie_rate(edge.link_type.rate, generation)
    return replace(edge, link_type=replace(edge.link_type, rate=rate))


def _pcie_rate(rate: SourcedValue, generation: int) -> SourcedValue:
    """Return the rate of a PCIe link of another generation than that nearest to its rate."""
    own = min(PCIE_RATES.values(), key=lambda one: abs(math.log(one.value / rate.value)))
    wanted = PCIE_RATES[generation]
    if own == wanted:
        return rate
    factor = wanted.value / own.value
    told = f"{rate.source}; times {factor:.3g}: {wanted.source}"
    return SourcedValue(rate.value * factor, "B/s", told, "computed")


def with_gpu(machine_: Machine, product: str) -> Machine:
    """Return the machine with other GPUs in the same places.

    Each has the new product's NVLinks or xGMI links, distributed as the old ones were, its PCIe
    rate and its memory. Measured rates that end at a GPU are scaled accordingly; latencies stay.
    """
    design = _require_spec(machine_)
    new, old = find_gpu(product, {**known_gpus(), **design.own_gpus}), design.gpu
    if old is None:
        raise InputError(f"{design.name} has no GPUs that could be replaced: choose another")
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
        paths=_scale_paths(design, new),
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
    links = (
        edge if _is_chip_to_chip(edge, inside) else _link(edge, gpus, old, new)
        for edge in inside.device_links
    )
    return NodeSpec(devices, tuple(links))


def _is_chip_to_chip(edge: DeviceLink, inside: NodeSpec) -> bool:
    """Return whether a link joins a GPU and a CPU by a link like that between GPUs."""
    return edge.link_type.kind in GPU_LINK_KINDS and not {edge.a, edge.b}.isdisjoint(
        inside.device_names(CPU)
    )


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


def _scale_paths(design: MachineSpec, new: GpuSpec) -> dict[PathKey, SourcedPathCost]:
    """Return the costs with the rates of paths that end at GPUs scaled by what limits them.

    Host memory is reached over PCIe, if not over links of GPUs to CPUs, which stay as they are.
    """
    old, inside = design.gpu, design.node_spec
    assert old is not None
    pcie = new.pcie_rate.value / old.pcie_rate.value
    links = (
        new.links * new.link_rate.value / (old.links * old.link_rate.value) if old.links else 1.0
    )
    memory = new.memory_rate.value / old.memory_rate.value
    beside_cpus = any(_is_chip_to_chip(edge, inside) for edge in inside.device_links)
    factors = {
        (NVLINK, CUDA): links,
        (PCIE, CUDA): pcie,
        ("staging", CUDA): 1.0 if beside_cpus else pcie,
        ("self", CUDA): memory,
        (SAME_GPU, CUDA): memory,
    }
    return {
        key: _scale_rates(costs, factors.get(key, 1.0), new) for key, costs in design.paths.items()
    }


def _scale_rates(costs: SourcedPathCost, factor: float, new: GpuSpec) -> SourcedPathCost:
    def grown(rate: SourcedValue) -> SourcedValue:
        told = f"{rate.source}; times {factor:.3g} for {new.product}"
        return SourcedValue(rate.value * factor, rate.unit, told, "computed")

    if factor == 1.0:
        return costs
    lines = tuple(replace(line, rate=grown(line.rate)) for line in costs.segments)
    return replace(costs, segments=lines)
