"""Costs of messages on machines whose file has no latencies: those measured on other machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tuner.core.calibration import Calibration, Estimate, PathCost, ReductionCost
from tuner.core.path_classes import CROSS_SOCKET, CUDA, HOST, NETWORK, NODE, NVLINK, PCIE, SAME_GPU
from tuner.topology import Link, Topology

ASSUMED_KEY = "assumed"  # in the provenance of such costs
V100_MEMORY_RATE = 0.8 * 900e9  # bytes per second that a kernel reaches


@dataclass(frozen=True)
class AssumedCost:
    """The cost of a message or copy: seconds, and seconds per byte beyond those of the links."""

    alpha: float
    beta: float
    source: str


HOST_COPIES = "shared-memory copies on servers; no measurement was found"
KERNELS = "launch of a kernel, and the memory of a V100"

BETWEEN_NODES = {
    (NETWORK, HOST): AssumedCost(1.5e-6, 0.0, "Summit, EDR"),
    (NETWORK, CUDA): AssumedCost(3.29e-6, 0.0, "ABCI 2.0, A100, Open MPI with UCX"),
}
INSIDE_NODES = {
    (NVLINK, CUDA): AssumedCost(3.2e-6, 0.0, "ABCI 2.0, A100, GPU-timed peer latency"),
    (PCIE, CUDA): AssumedCost(9.7e-6, 0.0, "adjacent GPUs of a DGX-1 with P100 (Tartan)"),
    (SAME_GPU, CUDA): AssumedCost(9.7e-6, 2 / V100_MEMORY_RATE, "as over PCIe"),
    (NODE, HOST): AssumedCost(0.5e-6, 1 / 10e9, HOST_COPIES),
    (CROSS_SOCKET, HOST): AssumedCost(0.8e-6, 1 / 8e9, HOST_COPIES),
    ("self", HOST): AssumedCost(0.1e-6, 1 / 10e9, HOST_COPIES),
    ("self", CUDA): AssumedCost(3e-6, 2 / V100_MEMORY_RATE, KERNELS),
    ("staging", CUDA): AssumedCost(6.5e-6, 1 / 12e9, "GDRCopy README: cudaMemcpy; PCIe 3.0 x16"),
}
REDUCTIONS = {
    HOST: AssumedCost(0.05e-6, 1 / 8e9, "one core that adds floats; no measurement was found"),
    CUDA: AssumedCost(3e-6, 3 / V100_MEMORY_RATE, KERNELS),
}


def assumed_costs(topology: Topology) -> dict[tuple[str, str], AssumedCost]:
    """Return the costs to assume, by path class and memory.

    Those between nodes where no link between them has a latency, those inside nodes where no link
    there has one.
    """
    inside = [link for node, _ in topology.node_topologies for link in node.links]
    return {
        **(BETWEEN_NODES if _lack_latencies(topology.links) else {}),
        **(INSIDE_NODES if _lack_latencies(inside) else {}),
    }


def _lack_latencies(links: Sequence[Link]) -> bool:
    return len(links) > 0 and not any(link.latency for link in links)


def with_assumed_costs(costs: Calibration, topology: Topology) -> Calibration:
    """Return costs with those to assume of messages, local copies and reductions."""
    assumed = assumed_costs(topology)
    if not assumed:
        return costs
    return replace(
        costs,
        paths={key: PathCost.from_alpha_beta(one.alpha, one.beta) for key, one in assumed.items()},
        reduction={
            memory: ReductionCost(Estimate.exact(one.alpha), Estimate.exact(one.beta))
            for memory, one in REDUCTIONS.items()
        },
        provenance={ASSUMED_KEY: True},
    )
