"""NCCL 2.4: a ring or a tree, by one threshold; before 2.4 there were rings only.

Source: NCCL 2.4.8 (src/enqueue.cc and src/init.cc); the numbers are the library's own.
"""

from __future__ import annotations

from tuner.core.collective import Collective
from tuner.mpi_libraries.nccl.constants import RING, SIMPLE, TREE, US, AlgoProto
from tuner.mpi_libraries.nccl.model_v2_30 import LatencyBandwidth
from tuner.mpi_libraries.nccl.system import NcclSystem

CHANNEL_BANDWIDTH = 5000 / US  # B/s that a ring's channel is taken to carry


def ring_bandwidth(channels: int, nvlink: bool) -> float:
    """B/s of all rings; without NVLink the number of channels does not count."""
    return CHANNEL_BANDWIDTH * (channels if nvlink else 1)


def tree_bandwidth(nodes: int, channels: int, nvlink: bool) -> float:
    """B/s of the trees: three quarters of the rings', two thirds without NVLink."""
    share = (1.5 if nodes == 2 else 0.75) if nvlink else 2 / 3
    return share * ring_bandwidth(channels, nvlink)


def ring_latency(p: int) -> float:
    """Seconds."""
    return 6 * US * (p - 1)


def tree_latency(nodes: int, ppn: int) -> float:
    """Seconds: levels between nodes, then the chain inside each."""
    return (15 * (nodes.bit_length() - 1) + 4 * (ppn - 1)) * US


def crossover_bytes(nodes: int, ppn: int, channels: int, nvlink: bool = True) -> float:
    """The largest allreduce, in bytes, that takes the tree: 0 on one node, possibly infinite."""
    if nodes == 1:
        return 0.0
    ring, tree = ring_bandwidth(channels, nvlink), tree_bandwidth(nodes, channels, nvlink)
    saved = ring_latency(nodes * ppn) - tree_latency(nodes, ppn)
    if tree >= ring:
        return float("inf") if saved > 0 else 0.0
    return max(0.0, ring * tree / (ring - tree) * saved)


def cost_models(system: NcclSystem, collective: Collective) -> dict[AlgoProto, LatencyBandwidth]:
    """Ring and, for allreduces between nodes, tree: the two lines that meet at the threshold.

    2.4.8 compares sizes, not times; these are what its threshold is made of.
    """
    ring = ring_bandwidth(system.ring.channels, system.has_nvlink)
    found = {AlgoProto(RING, SIMPLE): LatencyBandwidth(ring_latency(system.p), ring)}
    if system.nodes > 1 and collective is Collective.ALLREDUCE:
        tree = tree_bandwidth(system.nodes, system.ring.channels, system.has_nvlink)
        found[AlgoProto(TREE, SIMPLE)] = LatencyBandwidth(
            tree_latency(system.nodes, system.ppn), tree
        )
    return found
