"""Emulation of a cluster on this computer: network namespaces as hosts, and a software switch.

A real MPI library runs over the hosts of the emulated topology (a lab), and what its links carry is
counted exactly. Linux and root are needed.
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
