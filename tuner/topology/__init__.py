"""Where ranks live and what lies between them.

A `Topology` is nodes, switches and directed links, with the devices and links inside a node where
they are known; a `Placement` maps ranks to nodes and devices; `paths` says what messages cross.
"""

from tuner.core.path_classes import (
    CROSS_SOCKET,
    CUDA,
    EXCHANGE,
    HOST,
    MEMORY_BUS,
    NETWORK,
    NODE,
    NODE_OVERSUBSCRIBED,
    NVLINK,
    PCIE,
    RING,
    SAME_GPU,
)
from tuner.topology.machine import (
    CPU,
    GPU,
    KINDS_OF_DEVICES,
    KINDS_OF_LINKS,
    MULTICAST,
    NIC,
    NVSWITCH_REDUCTION,
    SWITCH,
    SWITCH_REDUCTION,
    Device,
    Interior,
    Link,
    Node,
    Topology,
)
from tuner.topology.paths import Paths, paths
from tuner.topology.placement import MOST_RANKS, Placement

__all__ = [
    "CPU",
    "CROSS_SOCKET",
    "CUDA",
    "EXCHANGE",
    "GPU",
    "HOST",
    "KINDS_OF_DEVICES",
    "KINDS_OF_LINKS",
    "MEMORY_BUS",
    "MOST_RANKS",
    "MULTICAST",
    "NETWORK",
    "NIC",
    "NODE",
    "NODE_OVERSUBSCRIBED",
    "NVLINK",
    "NVSWITCH_REDUCTION",
    "PCIE",
    "RING",
    "SAME_GPU",
    "SWITCH",
    "SWITCH_REDUCTION",
    "Device",
    "Interior",
    "Link",
    "Node",
    "Paths",
    "Placement",
    "Topology",
    "paths",
]
