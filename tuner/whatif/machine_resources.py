"""The resources of a machine that can bound a collective, and machines in which one is faster.

How much faster a call becomes when one resource is doubled is its sensitivity to that resource. The
share of the time that a resource takes is by how much longer the call takes when it becomes a
little slower; the one with the largest share limits the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tuner.core.calibration import Calibration, CostSegment, Estimate, PathCost, ReductionCost
from tuner.core.path_classes import (
    CROSS_SOCKET,
    MEMORY_BUS,
    NETWORK,
    NETWORK_BIDIRECTIONAL,
    NETWORK_RING,
    NODE,
    NODE_OVERSUBSCRIBED,
    NVLINK,
    PCIE,
    SAME_GPU,
)
from tuner.machines import Machine
from tuner.mpi_libraries import nccl
from tuner.topology import GPU_LINK_KINDS, NIC, Link, Topology

NICS = "nics"
SWITCH_LINKS = "switch_links"
NVLINKS = "nvlink"
PCIE_LINKS = "pcie"
CPU_BUS = "cpu_bus"
MEMORY = "memory"
LATENCY = "latency"
OVERHEAD = "overhead"
REDUCTION = "reduction"
NCCL_RATES = "nccl_rates"  # constants of NCCL, which no hardware changes
RESOURCE_NAMES: Mapping[str, str] = {  # for people
    NICS: "NICs",
    SWITCH_LINKS: "switch links",
    NVLINKS: "links between GPUs",
    PCIE_LINKS: "PCIe",
    CPU_BUS: "CPU bus",
    MEMORY: "memory",
    LATENCY: "latency",
    OVERHEAD: "overhead",
    REDUCTION: "reduction",
    NCCL_RATES: "NCCL's channels",
}
MIN_SENSITIVITY = 1.05  # below it a gain is not worth a word
MIN_SHARE = 0.05  # of the time, below which nothing limits a call
SAME_SHARE = 0.98  # of the largest share, which limits a call as much
IMPROVEMENT = 2.0  # factor by which a resource becomes faster
SLOWING = 0.98  # factor by which a resource becomes slower, to find its share of the time
RESOURCE_OF_PATH_CLASS: Mapping[str, str] = {  # what the bytes of a path class cross
    NETWORK: NICS,
    NETWORK_BIDIRECTIONAL: NICS,
    NETWORK_RING: NICS,
    NVLINK: NVLINKS,
    PCIE: PCIE_LINKS,
    "staging": PCIE_LINKS,
    CROSS_SOCKET: CPU_BUS,
    NODE: MEMORY,
    NODE_OVERSUBSCRIBED: MEMORY,
    SAME_GPU: MEMORY,
    "self": MEMORY,
}
RESOURCE_OF_LINK_KIND = {
    **dict.fromkeys(GPU_LINK_KINDS, NVLINKS),
    "pcie": PCIE_LINKS,
    "socket": CPU_BUS,
}
RESOURCE_OF_NCCL_PART: Mapping[str, str] = {  # what NCCL's predictor says that limits a call
    **RESOURCE_OF_LINK_KIND,
    NIC: NICS,
    nccl.SWITCH_LINKS: SWITCH_LINKS,
    nccl.NCCL_CHANNELS: NCCL_RATES,
    nccl.LATENCY_PART: LATENCY,
    nccl.COPY_PART: MEMORY,
}


def limiting_resources(shares: Mapping[str, float]) -> tuple[str, ...]:
    """Return the resources with the largest share of the time, in the order of `RESOURCE_NAMES`.

    Several have it where they bound a call to the same rate; none has it below `MIN_SHARE`.
    """
    most = max(shares.values(), default=0.0)
    if most < MIN_SHARE:
        return ()
    return tuple(name for name in RESOURCE_NAMES if shares.get(name, 0.0) >= SAME_SHARE * most)


def share_of_time(seconds: float, slowed: float) -> float:
    """Return a resource's share of a time, given the time with it `SLOWING` times as fast."""
    return max(0.0, (slowed / seconds - 1.0) / (1.0 / SLOWING - 1.0))


def resources_of_nccl(parts: Mapping[str, float]) -> dict[str, float]:
    """Return numbers by the resources that NCCL's predictor names in its own words."""
    return {RESOURCE_OF_NCCL_PART[part]: number for part, number in parts.items()}


def studied_resources(machine: Machine, of_nccl: bool) -> tuple[str, ...]:
    """Return the resources of which a study finds out what they gain.

    of_nccl     times of NCCL's own algorithms are predicted from its cost model
    """
    return (*present_resources(machine), *([NCCL_RATES] if of_nccl else []))


def nccl_factors(resource: str, factor: float = IMPROVEMENT) -> tuple[float, float]:
    """Return the factors of NCCL's latencies and of its rates where a resource is faster."""
    return (1 / factor if resource == LATENCY else 1.0, factor if resource == NCCL_RATES else 1.0)


def present_resources(machine: Machine) -> tuple[str, ...]:
    """Return the resources that a machine has, in the order of `RESOURCE_NAMES`."""
    topology, costs = machine.topology, machine.calibration
    of_link = _resource_of_network_link(topology)
    inside = {link.kind for interior, _ in topology.node_topologies for link in interior.links}
    there = {
        *map(of_link, topology.links),
        *(resource for kind, resource in RESOURCE_OF_LINK_KIND.items() if kind in inside),
        MEMORY,
        LATENCY,
        *([OVERHEAD] if _has_overhead(costs) else []),
        *([REDUCTION] if costs.reduction else []),
    }
    return tuple(name for name in RESOURCE_NAMES if name in there)


def _has_overhead(costs: Calibration) -> bool:
    per_message = any(cost.overhead.value > 0.0 for cost in costs.paths.values())
    return per_message or costs.pointer_query_seconds > 0.0


def with_faster(machine: Machine, resource: str, factor: float = IMPROVEMENT) -> Machine:
    """Return the machine with one resource `factor` times as fast.

    Rates are multiplied and times divided by it: those of links and those that a calibration has
    for messages whose bytes cross them. There are so many times as many links of GPUs, as NCCL
    knows the rate of one. Costs that were measured for paths of a certain latency and rate hold
    for no others: without them simulations on the result raise MissingCostError.
    """
    return replace(
        machine,
        topology=_faster_topology(machine.topology, resource, factor),
        calibration=_faster_calibration(machine.calibration, resource, factor),
    )


def _resource_of_network_link(topology: Topology) -> Callable[[Link], str]:
    ports = set(topology.ports)
    return lambda link: NICS if {link.source, link.target} & ports else SWITCH_LINKS


def _faster_topology(topology: Topology, resource: str, factor: float) -> Topology:
    of_link = _resource_of_network_link(topology)
    bus = factor if resource == MEMORY else 1.0
    near = factor if resource == LATENCY else 1.0
    latency, bandwidth = topology.local_latency, topology.local_bandwidth
    inside = {
        id(one): replace(
            one,
            links=_faster_links(
                one.links, lambda link: RESOURCE_OF_LINK_KIND.get(link.kind), resource, factor
            ),
        )
        for one, _ in topology.node_topologies
    }
    return replace(
        topology,
        links=_faster_links(topology.links, of_link, resource, factor),
        nodes=tuple(
            replace(node, node_topology=inside.get(id(node.node_topology)))
            for node in topology.nodes
        ),
        memory_bandwidth=topology.memory_bandwidth * bus,
        local_bandwidth=None if bandwidth is None else bandwidth * bus,
        local_latency=None if latency is None else latency / near,
    )


def _faster_links(
    links: tuple[Link, ...], of_link: Callable[[Link], str | None], resource: str, factor: float
) -> tuple[Link, ...]:
    if resource == LATENCY:
        return tuple(replace(link, latency=link.latency / factor) for link in links)
    more = factor if resource == NVLINKS else 1.0
    return tuple(
        replace(link, capacity=link.capacity * factor, count=round(link.count * more))
        if of_link(link) == resource
        else link
        for link in links
    )


def _faster_calibration(costs: Calibration, resource: str, factor: float) -> Calibration:
    capacities, reduction = dict(costs.capacities), dict(costs.reduction)
    query = costs.pointer_query_seconds
    if resource == MEMORY and MEMORY_BUS in capacities:
        capacities[MEMORY_BUS] = _times(capacities[MEMORY_BUS], factor)
    if resource == REDUCTION:
        reduction = {
            name: ReductionCost(_times(one.launch, 1 / factor), _times(one.gamma, 1 / factor))
            for name, one in reduction.items()
        }
    return replace(
        costs,
        nominal=costs.nominal and not _is_of_certain_paths(costs),
        paths={
            key: _faster_path(*key, cost, resource, factor) for key, cost in costs.paths.items()
        },
        capacities=capacities,
        reduction=reduction,
        pointer_query_seconds=query / factor if resource == OVERHEAD else query,
    )


def _is_of_certain_paths(costs: Calibration) -> bool:
    """Return whether costs between nodes are of paths with a certain latency and rate."""
    return any(path_class not in RESOURCE_OF_PATH_CLASS for path_class, _ in costs.paths)


def _faster_path(
    path_class: str, _memory: str, cost: PathCost, resource: str, factor: float
) -> PathCost:
    """Return the cost of a path class, of which unknown ones are paths between nodes."""
    if resource == OVERHEAD:
        return replace(cost, overhead=_times(cost.overhead, 1 / factor))
    alpha = 1 / factor if resource == LATENCY else 1.0
    beta = 1 / factor if resource == RESOURCE_OF_PATH_CLASS.get(path_class, NICS) else 1.0
    return replace(cost, segments=tuple(_scaled(one, alpha, beta) for one in cost.segments))


def _scaled(segment: CostSegment, alpha: float, beta: float) -> CostSegment:
    return replace(
        segment,
        alpha=_times(segment.alpha, alpha),
        beta=_times(segment.beta, beta),
        latency_per_byte=_times(segment.latency_per_byte, beta),
    )


def _times(estimate: Estimate, factor: float) -> Estimate:
    return Estimate(estimate.value * factor, estimate.low * factor, estimate.high * factor)
