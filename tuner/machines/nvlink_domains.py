"""Nodes whose GPUs are joined by NVSwitches, made larger or smaller: NVLink domains.

A domain is a node here. A larger one repeats all parts of the node around its NVSwitches; a smaller
one keeps some of the GPUs, what is beside them without crossing NVSwitches or other CPUs, and of
the NICs the nearest ones: as many for each GPU as the node has, at least one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from tuner.base.errors import InputError
from tuner.machines.node_parts import DeviceLink, LinkType, NodeSpec
from tuner.machines.provenance import SourcedValue
from tuner.topology import CPU, GPU, NIC, SWITCH

# GB200 reaches the memory of other CPUs through the GPUs; the rate is as assumed in its file.
CPU_RATE = SourcedValue(400e9, "B/s", "as assumed of the CPUs of a GB200 NVL72", "assumed")


def with_domain_of(node: NodeSpec, gpus: int) -> NodeSpec:
    """Return a node with so many GPUs in its NVLink domain.

    Raises InputError without NVSwitches, and for a number that neither divides that of the node's
    GPUs nor is a multiple of it.
    """
    joining = _nvswitches(node)
    own = node.device_names(GPU)
    if not joining:
        raise InputError("its GPUs are joined by no NVSwitch, so that it has one NVLink domain")
    if gpus % len(own) and len(own) % gpus:
        raise InputError(f"its NVLink domain of {len(own)} GPUs cannot be made one of {gpus}")
    if gpus < len(own):
        return _reduced(node, own[:gpus], joining)
    return _repeated(node, gpus // len(own), joining)


def _nvswitches(node: NodeSpec) -> set[str]:
    """Return the switches that NVLinks lead to."""
    switches = set(node.device_names(SWITCH))
    links = [edge for edge in node.device_links if edge.link_type.kind == "nvlink"]
    return switches & {end for edge in links for end in (edge.a, edge.b)}


def _repeated(node: NodeSpec, times: int, joining: set[str]) -> NodeSpec:
    """Return all parts several times, but for the switches that join them."""

    def renamed(name: str, copy: int) -> str:
        return name if name in joining or copy == 0 else f"{name}@{copy}"

    devices = list(node.devices)
    links = list(node.device_links)
    for copy in range(1, times):
        devices += [
            replace(device, name=renamed(device.name, copy))
            for device in node.devices
            if device.name not in joining
        ]
        links += [
            replace(edge, a=renamed(edge.a, copy), b=renamed(edge.b, copy))
            for edge in node.device_links
        ]
    ends = {edge.a for edge in links} | {edge.b for edge in links if edge.b in joining}
    known = {frozenset((edge.a, edge.b)) for edge in links}
    between = (
        DeviceLink(device.name, switch, LinkType("socket", CPU_RATE))
        for device in devices
        if device.kind == CPU and times > 1
        for switch in sorted(joining & ends)[:1]
        if frozenset((device.name, switch)) not in known
    )
    return NodeSpec(tuple(devices), (*links, *between))


def _reduced(node: NodeSpec, gpus: Sequence[str], joining: set[str]) -> NodeSpec:
    """Return some GPUs, and what is beside them, with their share of the NICs."""
    kept = dict.fromkeys(gpus)  # from near to far
    while more := [name for name in _beside(node, kept, joining) if name not in kept]:
        kept |= dict.fromkeys(more)
    own, nics = (node.device_names(kind) for kind in (GPU, NIC))
    share = -(-len(nics) * len(gpus) // len(own))
    dropped = {*own, *[name for name in kept if name in nics][share:]}.difference(gpus)
    names = {*kept, *joining} - dropped
    devices = tuple(one for one in node.devices if one.name in names)
    links = tuple(edge for edge in node.device_links if {edge.a, edge.b} <= names)
    return NodeSpec(devices, links)


def _beside(node: NodeSpec, kept: Collection[str], joining: set[str]) -> Iterator[str]:
    """Yield the neighbours of devices but for those across NVSwitches and between CPUs."""
    for edge in node.device_links:
        if edge.link_type.kind != "socket" and not {edge.a, edge.b} & joining:
            for here, there in ((edge.a, edge.b), (edge.b, edge.a)):
                if here in kept:
                    yield there
