"""Emulation of a cluster on this computer: network namespaces as hosts, and a software switch.

A real MPI library runs over the emulated hosts, and what the links between them carry is counted
exactly. Linux and root are needed.
"""

from tuner.emulation.cluster import (
    ClusterStatus,
    EmulatedCluster,
    cluster_id_for,
    missing_requirement,
    take_down,
)
from tuner.emulation.network import EmulatedNetwork, emulated_network

__all__ = [
    "ClusterStatus",
    "EmulatedCluster",
    "EmulatedNetwork",
    "cluster_id_for",
    "emulated_network",
    "missing_requirement",
    "take_down",
]
