"""GPUs by their product or architecture, and the rates of their links to each other."""

from __future__ import annotations

import re
from dataclasses import replace

from tuner.base.errors import InputError
from tuner.base.spelling import unknown_name
from tuner.topology import GPU, GPU_LINK_KINDS, NodeTopology, Topology

COMPUTE_CAPABILITIES = {
    "K80": 37,
    "P100": 60,
    "V100": 70,
    "A100": 80,
    "A800": 80,
    "L40S": 89,
    "H100": 90,
    "H200": 90,
    "H800": 90,
    "GH200": 90,
    "B200": 100,
    "GB200": 100,
    "B300": 103,
    "RTX PRO 6000": 120,
}
# from the list of accelerators in AMD's documentation of ROCm
AMD_ARCHITECTURES = {
    "MI50": "gfx906",
    "MI60": "gfx906",
    "MI100": "gfx908",
    "MI210": "gfx90a",
    "MI250": "gfx90a",
    "MI250X": "gfx90a",
    "MI300A": "gfx942",
    "MI300X": "gfx942",
    "MI325X": "gfx942",
    "MI350X": "gfx950",
    "MI355X": "gfx950",
}
# Bytes per second and direction of one link, from src/graph/topo.h of NCCL 2.30 and of RCCL: NVLink
# by compute capability, xGMI by architecture.
NVLINK_BANDWIDTHS = {60: 18e9, 70: 20e9, 80: 20e9, 86: 12e9, 87: 20e9, 90: 20.6e9, 100: 40.1e9}
XGMI_BANDWIDTHS = {
    "gfx906": 24e9,
    "gfx908": 24e9,
    "gfx90a": 36e9,
    "gfx940": 48e9,
    "gfx941": 48e9,
    "gfx942": 48e9,
    "gfx950": 48e9,
}
DEFAULT_XGMI_BANDWIDTH = 24e9  # RCCL's for all others
UNNAMED_GPUS = (
    "the file does not say which GPUs these are, and the rates of NVLink and xGMI depend on it:"
    " name them in a YAML file with `combine: {fabric: FILE, gpu: PRODUCT}`"
)


def compute_capability(product: str) -> int | None:
    """Return the CUDA compute capability of a product (80 for 8.0), None for an unknown one."""
    found = [number for name, number in COMPUTE_CAPABILITIES.items() if name in product]
    found += [int(digits) for digits in re.findall(r"^sm_?([0-9]{2,3})$", product)]
    return max(found, default=None)


def amd_architecture(product: str) -> str:
    """Return the architecture of one of AMD's GPUs, such as `gfx942`; "" for others."""
    found = AMD_ARCHITECTURES.get(product, product)
    return found if found in XGMI_BANDWIDTHS else ""


def nvlink_bandwidth(capability: int) -> float:
    """Return bytes per second of one NVLink for a CUDA compute capability (80 for 8.0)."""
    known = [version for version in NVLINK_BANDWIDTHS if version <= capability]
    return NVLINK_BANDWIDTHS[max(known, default=60)]


def _link_bandwidth(product: str) -> float | None:
    """Return bytes per second of one link between such GPUs, None for an unknown product."""
    capability = compute_capability(product)
    if capability is not None:
        return nvlink_bandwidth(capability)
    return XGMI_BANDWIDTHS.get(amd_architecture(product))


def with_gpu(topology: Topology, product: str) -> Topology:
    """Return the topology with this product as its GPUs, where the file says no known one.

    Links between GPUs that the file does not name have the product's rate. Raises InputError for an
    unknown product, and for a topology without GPUs or with known ones.
    """
    rate = _link_bandwidth(product)
    if rate is None:
        raise InputError(unknown_name("GPU", product, (*COMPUTE_CAPABILITIES, *AMD_ARCHITECTURES)))
    interiors = [inside for inside, _ in topology.node_topologies]
    named = {device.product for one in interiors for device in one.devices if device.kind == GPU}
    if not named:
        raise InputError(f"{topology.name} has no GPUs that could be {product}: choose another")
    for known in sorted(named):
        if _link_bandwidth(known) is not None:
            raise InputError(
                f"{topology.name} says itself that its GPUs are {known}, not {product}"
            )
    changed = {id(one): _with_product(one, product, rate) for one in interiors}
    nodes = (
        replace(node, node_topology=changed.get(id(node.node_topology))) for node in topology.nodes
    )
    cautions = tuple(one for one in topology.cautions if one != UNNAMED_GPUS)
    return replace(topology, nodes=tuple(nodes), cautions=cautions)


def _with_product(interior: NodeTopology, product: str, rate: float) -> NodeTopology:
    unnamed = {each.name for each in interior.devices if each.kind == GPU and not each.product}
    devices = (
        replace(each, product=product) if each.kind == GPU else each for each in interior.devices
    )
    links = (
        replace(link, capacity=link.count * rate)
        if link.kind in GPU_LINK_KINDS and unnamed & {link.source, link.target}
        else link
        for link in interior.links
    )
    return NodeTopology(tuple(devices), tuple(links))
