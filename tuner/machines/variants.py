"""Machines that differ from a preset in one respect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tuner.base.errors import InputError
from tuner.machines.common import NVLS, reductions
from tuner.machines.gpus import GPU, GPUS, gpu
from tuner.machines.machine_spec import Design, Machine, PathKey, machine
from tuner.machines.node_parts import NVSWITCH, Cable, Edge, Inside, with_nics_at
from tuner.machines.provenance import Costs, Sourced
from tuner.topology import CUDA, NIC, NVLINK, NVSWITCH_REDUCTION, PCIE, SAME_GPU
from tuner.topology import GPU as GPU_KIND
from tuner.topology.readers.fabrics import FatTree

REDUCING = ("H100", "H200", "B200")  # whose NVSwitches reduce
MOST_NICS = 128


def with_nodes(machine_: Machine, nodes: int) -> Machine:
    """So many nodes; the fabric grows or shrinks with them. Raises InputError as all here do."""
    return machine(_design(machine_), nodes)


def with_taper(machine_: Machine, ratio: float) -> Machine:
    """Uplinks of the leaves = ports below / ratio; 1 is a full bisection. Fat trees alone."""
    design = _design(machine_)
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
    return _again(machine_, replace(design, fabric=fabric))


def with_nics(machine_: Machine, nics: int) -> Machine:
    """So many NICs per node, dealt to the places where the NICs were."""
    design = _design(machine_)
    if not 1 <= nics <= MOST_NICS:
        raise InputError(f"a node has 1 to {MOST_NICS} NICs, not {nics}")
    names = set(design.inside.named(NIC))
    old = [edge for edge in design.inside.edges if edge.a in names]
    places = list(dict.fromkeys(edge.b for edge in old))
    inside = with_nics_at(design.inside, places, nics, old[0].cable)
    return _again(machine_, replace(design, inside=inside))


def with_gpu(machine_: Machine, product: str) -> Machine:
    """Another generation of GPUs in the same places.

    Each has the new product's NVLink bricks, shared out as the old ones were, its PCIe rate and its
    memory. Measured rates that end at a GPU grow with these; latencies stay.
    """
    design = _design(machine_)
    new, old = gpu(product), GPUS[design.product]
    if not new.bricks and any(edge.cable.kind == "nvlink" for edge in design.inside.edges):
        raise InputError(f"{product} has no NVLink, which {design.name} needs; choose another GPU")
    offers = dict(design.offers)
    if NVSWITCH in design.inside.named("switch") and product in REDUCING:
        offers[NVSWITCH_REDUCTION] = NVLS
    else:
        offers.pop(NVSWITCH_REDUCTION, None)
    changed = replace(
        design,
        product=product,
        inside=_fitted(design.inside, old, new),
        offers=offers,
        paths=_scaled(design.paths, old, new),
        reduction={**reductions(new), "host": design.reduction["host"]},
    )
    return _again(machine_, changed)


def _design(machine_: Machine) -> Design:
    if machine_.design is None:
        raise InputError(
            f"{machine_.name} came from a file, which does not say how it would grow; use a preset"
        )
    return machine_.design


def _again(machine_: Machine, design: Design) -> Machine:
    return machine(design, len(machine_.topology.nodes))


def _fitted(inside: Inside, old: GPU, new: GPU) -> Inside:
    gpus = set(inside.named(GPU_KIND))
    devices = tuple(
        replace(device, product=new.product) if device.name in gpus else device
        for device in inside.devices
    )
    return Inside(devices, tuple(_link(edge, gpus, old, new) for edge in inside.edges))


def _link(edge: Edge, gpus: set[str], old: GPU, new: GPU) -> Edge:
    if not {edge.a, edge.b} & gpus:
        return edge
    if edge.cable.kind != "nvlink":
        return replace(edge, cable=Cable(edge.cable.kind, new.pcie, edge.cable.latency))
    share = edge.count * new.bricks / old.bricks
    count = max(1, round(share))
    told = f"{new.brick.source}; {share:g} bricks as {count}"
    rate = replace(new.brick, value=new.brick.value * share / count, source=told)
    return Edge(edge.a, edge.b, Cable("nvlink", rate, edge.cable.latency), count)


def _scaled(paths: Mapping[PathKey, Costs], old: GPU, new: GPU) -> dict[PathKey, Costs]:
    """The rates of paths that end at GPUs, by what limits them."""
    pcie = new.pcie.value / old.pcie.value
    nvlink = new.bricks * new.brick.value / (old.bricks * old.brick.value) if old.bricks else 1.0
    memory = new.memory.value / old.memory.value
    factors = {
        (NVLINK, CUDA): nvlink,
        (PCIE, CUDA): pcie,
        ("staging", CUDA): pcie,
        ("self", CUDA): memory,
        (SAME_GPU, CUDA): memory,
    }
    return {key: _faster(costs, factors.get(key, 1.0), new) for key, costs in paths.items()}


def _faster(costs: Costs, factor: float, new: GPU) -> Costs:
    def grown(rate: Sourced) -> Sourced:
        told = f"{rate.source}; times {factor:.3g} for {new.product}"
        return Sourced(rate.value * factor, rate.unit, told, "computed")

    if factor == 1.0:
        return costs
    lines = tuple(replace(line, rate=grown(line.rate)) for line in costs.lines)
    return replace(costs, lines=lines)
