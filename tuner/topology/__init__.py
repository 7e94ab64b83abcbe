"""Model of a machine: nodes, switches, links, placements of ranks and the paths between them.

A `Topology` holds nodes, switches and directed links, with the devices and links inside a node
where they are known. A `Placement` maps ranks to nodes and devices. `find_paths` says which links
a message crosses and of which path class it is.
"""

from tuner.core.path_classes import (
    CROSS_SOCKET,
    CUDA,
    HOST,
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
from tuner.topology.machine import (
    CONFIGURED_CAPABILITIES,
    CPU,
    DEVICE_KINDS,
    GPU,
    GPU_LINK_KINDS,
    LINK_KINDS,
    MULTICAST,
    NIC,
    NVSWITCH_REDUCTION,
    SWITCH,
    SWITCH_REDUCTION,
    XGMI_LINK,
    Device,
    Link,
    NcclCosts,
    Node,
    NodeTopology,
    Topology,
)
from tuner.topology.paths import Paths, find_paths
from tuner.topology.placement import MAX_SIMULATED_RANKS, Placement

__all__ = [
    "CONFIGURED_CAPABILITIES",
    "CPU",
    "CROSS_SOCKET",
    "CUDA",
    "DEVICE_KINDS",
    "GPU",
    "GPU_LINK_KINDS",
    "HOST",
    "LINK_KINDS",
    "MAX_SIMULATED_RANKS",
    "MEMORY_BUS",
    "MULTICAST",
    "NETWORK",
    "NETWORK_BIDIRECTIONAL",
    "NETWORK_RING",
    "NIC",
    "NODE",
    "NODE_OVERSUBSCRIBED",
    "NVLINK",
    "NVSWITCH_REDUCTION",
    "PCIE",
    "SAME_GPU",
    "SWITCH",
    "SWITCH_REDUCTION",
    "XGMI_LINK",
    "Device",
    "Link",
    "NcclCosts",
    "Node",
    "NodeTopology",
    "Paths",
    "Placement",
    "Topology",
    "find_paths",
]
