"""NCCL 2.4: a ring or a tree, by one threshold; before 2.4 there were rings only.

Source: NCCL 2.4.8 (src/enqueue.cc and src/init.cc); the numbers are the library's own.
"""

from __future__ import annotations

from tuner.core.collective import Collective
from tuner.mpi_libraries.nccl.constants import RING, SIMPLE, TREE, US, AlgoProto
from tuner.mpi_libraries.nccl.model_v2_30 import LatencyBandwidth
from tuner.mpi_libraries.nccl.system import NcclSystem

CHANNEL_BANDWIDTH = 5000 / US  # assumed bandwidth of a ring's channel, B/s


def ring_bandwidth(channels: int, nvlink: bool) -> float:
    """Return the bandwidth (B/s) of all rings; without NVLink channels do not add up."""
    return CHANNEL_BANDWIDTH * (channels if nvlink else 1)


def tree_bandwidth(nodes: int, channels: int, nvlink: bool) -> float:
    """Return the bandwidth (B/s) of the trees, as a share of that of the rings.

    The share is 3/4, 3/2 on two nodes, and 2/3 without NVLink.
    """
    share = (1.5 if nodes == 2 else 0.75) if nvlink else 2 / 3
    return share * ring_bandwidth(channels, nvlink)


def ring_latency(p: int) -> float:
    """Return the latency of a ring in seconds."""
    return 6 * US * (p - 1)


def tree_latency(nodes: int, ppn: int) -> float:
    """Return the latency of a tree in seconds: levels between nodes, then the chain in each."""
    return (15 * (nodes.bit_length() - 1) + 4 * (ppn - 1)) * US


def crossover_bytes(nodes: int, ppn: int, channels: int, nvlink: bool = True) -> float:
    """Return the largest allreduce, in bytes, that takes the tree.

    It is 0 on one node, and infinite where the tree always wins.
    """
    if nodes == 1:
        return 0.0
    ring, tree = ring_bandwidth(channels, nvlink), tree_bandwidth(nodes, channels, nvlink)
    saved = ring_latency(nodes * ppn) - tree_latency(nodes, ppn)
    if tree >= ring:
        return float("inf") if saved > 0 else 0.0
    return max(0.0, ring * tree / (ring - tree) * saved)


def cost_models(system: NcclSystem, collective: Collective) -> dict[AlgoProto, LatencyBandwidth]:
    """Return models of the ring and, for allreduces between nodes, of the tree.

    2.4.8 compares sizes, not times; these two models cross at its threshold.
    """
    ring = ring_bandwidth(system.ring.channels, system.has_nvlink)
    found = {AlgoProto(RING, SIMPLE): LatencyBandwidth(ring_latency(system.p), ring)}
    if system.nodes > 1 and collective is Collective.ALLREDUCE:
        tree = tree_bandwidth(system.nodes, system.ring.channels, system.has_nvlink)
        found[AlgoProto(TREE, SIMPLE)] = LatencyBandwidth(
            tree_latency(system.nodes, system.ppn), tree
        )
    return found
