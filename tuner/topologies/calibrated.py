"""A topology for a calibration, and a calibration for a topology."""

import math

from tuner.cost import Calibration
from tuner.measurement import Cluster
from tuner.topology import MEMORY_BUS, Node, Topology


def single_node(cluster: Cluster, calibration: Calibration) -> Topology:
    """The one computer that was calibrated: its ranks share the measured memory bus."""
    bus = calibration.capacities.get(MEMORY_BUS)
    return Topology(
        cluster.name, (Node(cluster.name, cluster.cores),), (), (),
        memory_bandwidth=math.inf if bus is None else bus.value,
    )  # fmt: skip


def given_calibration(topology: Topology) -> Calibration:
    """Costs exactly as the topology states them: rendezvous, FIFO ports, no overheads."""
    return Calibration(topology.name, "none", {}, given=True)
