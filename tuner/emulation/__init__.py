"""A cluster emulated on this computer: network namespaces as hosts, and a switch of our own.

A topology goes in; out comes a network on which a real MPI library runs over several hosts, and of
which it is known exactly what its links carry. Linux and root are needed.
"""

from tuner.emulation.emulation import EmulatedNetwork, emulated_network
from tuner.emulation.lab import (
    ClusterStatus,
    EmulatedCluster,
    cluster_id_for,
    missing_requirement,
    take_down,
)

__all__ = [
    "ClusterStatus",
    "EmulatedCluster",
    "EmulatedNetwork",
    "cluster_id_for",
    "emulated_network",
    "missing_requirement",
    "take_down",
]
