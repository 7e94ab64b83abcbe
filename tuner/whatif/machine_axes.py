"""Axes along which a study can change a machine, and the machine's own values on them."""

from __future__ import annotations

from typing import Any

from tuner.machines import Machine, known_gpus
from tuner.machines.variants import NVSWITCH
from tuner.mpi_libraries import nccl
from tuner.mpi_libraries.nccl import nominal_nic_rate
from tuner.mpi_libraries.nccl.channels import amd_architecture
from tuner.topology import CONFIGURED_CAPABILITIES, CUDA, HOST, NETWORK, NIC, SWITCH, Topology
from tuner.topology.readers.fabrics import FatTree
from tuner.whatif.axes import AXES, MAX_STUDY_NODES, NCCL_AXIS, NODE_LINK_AXES, UPLINK_AXES
from tuner.whatif.values import gpus_per_node


def describe_axes(machine: Machine) -> dict[str, Any]:
    """Return a machine's axes and own values as JSON data.

    latency     between two nodes on one switch, in seconds, with what the ends add to it; None
                without links at the nodes
    bandwidth   of a link at a node, in bytes per second; line_rate is that of its port
    configured  what it offers and administrators have to configure
    nccl_versions   those that choose differently, the newest first; none where NCCL does not run
    taper       None where the network is no fat tree of a machine with costs
    """
    topology, spec = machine.topology, machine.spec
    gpus = gpus_per_node(topology)
    rate = _node_rate(topology)
    inside = topology.nodes[0].node_topology
    return {
        "name": machine.name,
        "title": spec.title if spec else "",
        "fabric": spec.fabric.summary if spec else "",
        "nodes": len(topology.nodes),
        "max_nodes": MAX_STUDY_NODES if _can_grow(machine) else len(topology.nodes),
        "cores": min(node.cores for node in topology.nodes),
        "gpus": gpus,
        "gpu": spec.product if spec else "",
        "ppn": gpus or 1,
        "memory": CUDA if gpus else HOST,
        "nics": len(inside.device_indices(NIC)) if inside else len(topology.nodes[0].ports),
        "bandwidth": rate,
        "line_rate": nominal_nic_rate(rate) if spec and rate else None,
        "latency": _node_latency(machine),
        "taper": spec.fabric.taper if spec and isinstance(spec.fabric, FatTree) else None,
        "configured": sorted(CONFIGURED_CAPABILITIES.intersection(topology.capabilities)),
        "axes": [name for name in AXES if _has_axis(machine, name)],
        "nccl_versions": [*nccl.RELEASES][::-1] if _has_axis(machine, NCCL_AXIS) else [],
        "known_gpus": sorted(known_gpus()) if spec and spec.gpu else [],
    }


def _can_grow(machine: Machine) -> bool:
    """Return whether more nodes can be added: to presets, and to nodes on one switch."""
    return machine.spec is not None or len(machine.topology.switches) == 1


def _has_axis(machine: Machine, name: str) -> bool:
    topology, spec = machine.topology, machine.spec
    ports = set(topology.ports)
    at_nodes = any({link.source, link.target} & ports for link in topology.links)
    if name in NODE_LINK_AXES:
        return at_nodes
    if name in UPLINK_AXES:
        return any(not {link.source, link.target} & ports for link in topology.links)
    if name == "taper":
        return spec is not None and isinstance(spec.fabric, FatTree)
    if name == "nvlink_domain":
        return spec is not None and NVSWITCH in spec.node_spec.device_names(SWITCH)
    if name == NCCL_AXIS:
        inside = topology.nodes[0].node_topology
        return inside is not None and gpus_per_node(topology) > 0 and not amd_architecture(inside)
    if name in ("gpu", "pcie", "memory"):
        return gpus_per_node(topology) > 0 and (name == "memory" or spec is not None)
    return name not in ("nics", "fabric") or (spec is not None and at_nodes)


def _node_rate(topology: Topology) -> float | None:
    """Return the bytes per second of the first link at a node."""
    ports = set(topology.ports)
    link = next((one for one in topology.links if one.source in ports), None)
    return link.capacity / link.count if link else None


def _node_latency(machine: Machine) -> float | None:
    """Return the seconds of a short message between two nodes on one switch."""
    topology = machine.topology
    ports = set(topology.ports)
    link = next((one for one in topology.links if one.source in ports), None)
    if link is None:
        return None
    own = link.latency * (1 if link.target in ports else 2)
    memory = CUDA if gpus_per_node(topology) else HOST
    costs = machine.calibration.paths.get((NETWORK, memory))
    return own + (costs.segments[0].alpha.value if costs else 0.0)
