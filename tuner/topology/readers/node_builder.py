"""Builder for the interior of a node, and link bandwidths; used by all readers of one computer.

A rate that a file states is kept. Where a file only gives kind and number of links, the rates are
the effective ones that NCCL and RCCL assume. Latencies are 0, as no format contains any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from tuner.base.errors import InputError
from tuner.topology import GPU, NVSWITCH_REDUCTION, SWITCH, Device, Link, NodeTopology
from tuner.topology.readers.yaml_fields import MAX_DEVICES

UNNAMED_NODE = "computer"  # name of a node whose file has no name
NVSWITCH_PRODUCT = "NVSwitch"

# Bytes per second and direction of a PCIe lane by its gigatransfers per second, from
# src/graph/topo.cc of NCCL 2.30.
PCIE_LANE_BANDWIDTHS = {
    2.5: 15e9 / 80,
    5.0: 30e9 / 80,
    8.0: 60e9 / 80,
    16.0: 120e9 / 80,
    32.0: 240e9 / 80,
    64.0: 480e9 / 80,
}
DEFAULT_PCIE_BANDWIDTH = 16 * PCIE_LANE_BANDWIDTHS[8.0]  # of a link without a stated speed
MIN_SHARP_LINKS = 18  # per GPU: NVSwitches with this many (since H100) also reduce

# The bus between CPUs, in bytes per second. These are nominal values; no file says how many links a
# board has.
SOCKET_BANDWIDTH = 41.6e9  # two UPI links of 10.4 GT/s
SOCKET_BANDWIDTH_AMD = 96e9  # three xGMI-2 links of 16 lanes at 16 GT/s
SOCKET_BANDWIDTH_POWER = 64e9  # the X-bus of POWER9


def socket_bandwidth(processor: str) -> float:
    """Return bytes per second of the bus between two CPUs.

    processor   what a file says of architecture, vendor or product
    """
    if "AMD" in processor:
        return SOCKET_BANDWIDTH_AMD
    return (
        SOCKET_BANDWIDTH_POWER if "POWER" in processor or "ppc64" in processor else SOCKET_BANDWIDTH
    )


def nvlink_count(capacity: float) -> int:
    """Return how many NVLinks make up a capacity in bytes per second.

    Returns 1 if no known rate divides it.
    """
    fits = (round(capacity / rate) for rate in (25e9, 20e9) if capacity % rate == 0)
    return max(1, next(fits, 1))


@dataclass(frozen=True)
class PciBranch:
    """A PCI function: the bandwidth of the link above it, its device name, and what is below.

    The name of a bridge is empty.
    """

    bandwidth: float
    name: str = ""
    children: list[PciBranch] = field(default_factory=list)


class NodeBuilder:
    """Collects devices, named by kind and number, and links in both directions."""

    def __init__(self) -> None:
        self.devices: list[Device] = []
        self.links: dict[tuple[str, str], Link] = {}

    def add_device(self, kind: str, product: str = "", cores: int = 0) -> str:
        """Add a device and return its name; raise InputError when there are too many."""
        if len(self.devices) == MAX_DEVICES:
            raise InputError(f"more than {MAX_DEVICES} GPUs, NICs, CPUs and switches in one node")
        name = f"{kind}{sum(device.kind == kind for device in self.devices)}"
        self.devices.append(Device(name, kind, product, cores))
        return name

    def connect(self, a: str, b: str, capacity: float, kind: str, count: int = 1) -> None:
        """Link two devices in both directions; of several links between them the widest is kept."""
        if (a, b) not in self.links or self.links[a, b].capacity < capacity:
            self.links[a, b] = Link(a, b, capacity, 0.0, kind, count)
            self.links[b, a] = Link(b, a, capacity, 0.0, kind, count)

    def connect_cpus(self, cpus: Sequence[str], capacity: float) -> None:
        for number, a in enumerate(cpus):
            for b in cpus[:number]:
                self.connect(b, a, capacity, "socket")

    def attach(self, above: str, branch: PciBranch, bottleneck: float = inf) -> None:
        """Attach a tree of PCI functions to a device.

        A chain of bridges becomes one link with the smallest bandwidth in the chain; a bridge above
        several devices becomes a PCIe switch.
        """
        width = min(bottleneck, branch.bandwidth)
        if branch.name:
            self.connect(above, branch.name, width, "pcie")
        elif len(branch.children) == 1:
            self.attach(above, branch.children[0], width)
        elif branch.children:
            switch = self.add_device(SWITCH, "PCIe")
            self.connect(above, switch, width, "pcie")
            for each in branch.children:
                self.attach(switch, each)

    def add_nvswitch(self, capacity: Mapping[str, float], count: Mapping[str, int]) -> str:
        """Add the NVSwitches that these GPUs share as one device and return its name.

        They are one device because the hardware sends a message over all of them at once, while a
        route uses only one.

        capacity    bytes per second between each GPU and the NVSwitches
        count       number of links of each GPU
        """
        name = self.add_device(SWITCH, NVSWITCH_PRODUCT)
        for gpu in capacity:
            self.connect(gpu, name, capacity[gpu], "nvlink", count[gpu])
        return name

    def build(self) -> NodeTopology:
        """Return the interior; raise InputError when a device cannot reach another."""
        return NodeTopology(tuple(self.devices), tuple(self.links.values()))

    @property
    def capabilities(self) -> frozenset[str]:
        """Return what the NVSwitches can do besides moving messages."""
        product = {device.name: device.product or device.kind for device in self.devices}
        capable = any(
            link.count >= MIN_SHARP_LINKS
            and product[link.target] == NVSWITCH_PRODUCT
            and link.source.startswith(GPU)
            for link in self.links.values()
        )
        return frozenset({NVSWITCH_REDUCTION} if capable else ())
