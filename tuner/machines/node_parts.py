"""Parts of a node's specification: devices, and links whose numbers have a source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.machines.provenance import INCLUDED_LATENCY, SourcedValue
from tuner.topology import CPU, GPU, NIC, SWITCH, Device, Link, NodeTopology

NVSWITCH = "nvswitch"


@dataclass(frozen=True)
class LinkType:
    """A kind of link: bytes per second of one cable in one direction, and seconds."""

    kind: str
    rate: SourcedValue
    latency: SourcedValue = INCLUDED_LATENCY


@dataclass(frozen=True)
class DeviceLink:
    """`count` parallel cables between two devices, in both directions."""

    a: str
    b: str
    link_type: LinkType
    count: int = 1

    def links(self) -> tuple[Link, Link]:
        """Return one link per direction."""
        capacity, latency = self.link_type.rate.value * self.count, self.link_type.latency.value
        return (
            Link(self.a, self.b, capacity, latency, self.link_type.kind, self.count),
            Link(self.b, self.a, capacity, latency, self.link_type.kind, self.count),
        )


@dataclass(frozen=True)
class NodeSpec:
    """The specification of a `NodeTopology`."""

    devices: tuple[Device, ...]
    device_links: tuple[DeviceLink, ...]

    def to_node_topology(self) -> NodeTopology:
        """Return the interior of a node."""
        return NodeTopology(
            self.devices, tuple(link for edge in self.device_links for link in edge.links())
        )

    def device_names(self, kind: str) -> list[str]:
        """Return the names of the devices of one kind."""
        return [device.name for device in self.devices if device.kind == kind]

    def with_links(
        self, device_links: Iterable[DeviceLink], devices: Iterable[Device] = ()
    ) -> NodeSpec:
        """Return a copy with further links and devices."""
        return NodeSpec((*self.devices, *devices), (*self.device_links, *device_links))


def pcie_tree(
    product: str,
    gpus: int,
    cpu: Device,
    sockets: int,
    nics: int,
    *,
    gpu_link: LinkType,
    pcie: LinkType,
    nic_link: LinkType,
    socket: LinkType,
    socket_links: int = 1,
    switch_fanout: Sequence[int] = (),
    nic_level: int = 0,
) -> NodeSpec:
    """Return CPUs, levels of PCIe switches below them, GPUs below these, and NICs at one level.

    product         product of the GPUs
    cpu             device of each socket; its name is replaced
    gpu_link        link above each GPU
    pcie            link above each PCIe switch
    nic_link        link above each NIC
    socket          link between CPUs
    socket_links    number of cables of each such link
    switch_fanout   number of GPUs per switch of the lowest level, of these switches per switch of
                    the next level, ...; the topmost are attached to the CPUs; empty: the GPUs are
    nic_level       level whose switches have the NICs, lowest first; beyond the last: the CPUs
    """
    cpus = [Device(f"cpu{i}", CPU, cpu.product, cpu.cores) for i in range(sockets)]
    below = [f"gpu{i}" for i in range(gpus)]
    devices, edges = [*cpus, *(Device(name, GPU, product) for name in below)], []
    levels, link = [], gpu_link
    for level, width in enumerate(switch_fanout):
        above = [f"pcie{level}.{i}" for i in range(len(below) // width)]
        devices += [Device(name, SWITCH, "PCIe switch") for name in above]
        edges += [DeviceLink(name, above[i // width], link) for i, name in enumerate(below)]
        levels.append(above)
        below, link = above, pcie
    levels.append([cpu.name for cpu in cpus])
    edges += distribute(below, levels[-1], link)
    edges += [
        DeviceLink(a.name, b.name, socket, socket_links)
        for i, a in enumerate(cpus)
        for b in cpus[i + 1 :]
    ]
    found = NodeSpec(tuple(devices), tuple(edges))
    return with_nics_at(found, levels[min(nic_level, len(switch_fanout))], nics, nic_link)


def distribute(what: Sequence[str], places: Sequence[str], cable: LinkType) -> list[DeviceLink]:
    """Return links that attach each of `message` to one of the places, in order and evenly."""
    return [
        DeviceLink(name, places[i * len(places) // len(what)], cable) for i, name in enumerate(what)
    ]


def with_nics_at(node_spec: NodeSpec, places: Sequence[str], nics: int, link: LinkType) -> NodeSpec:
    """Return a copy with `nics` NICs distributed over the places, in place of all NICs it has."""
    kept = tuple(device for device in node_spec.devices if device.kind != NIC)
    known = {device.name for device in kept}
    edges = tuple(edge for edge in node_spec.device_links if {edge.a, edge.b} <= known)
    names = [f"nic{i}" for i in range(nics)]
    return NodeSpec(kept, edges).with_links(
        distribute(names, places, link), [Device(name, NIC) for name in names]
    )


def with_nvlink_mesh(
    node_spec: NodeSpec, nvlink_counts: Mapping[tuple[int, int], int], cable: LinkType
) -> NodeSpec:
    """Return a copy with direct links between GPUs.

    nvlink_counts   pair of GPU numbers -> number of NVLinks
    """
    return node_spec.with_links(
        DeviceLink(f"gpu{a}", f"gpu{b}", cable, count) for (a, b), count in nvlink_counts.items()
    )


def with_nvswitch(
    node_spec: NodeSpec, nvlinks_per_gpu: int, cable: LinkType, product: str = "NVSwitch"
) -> NodeSpec:
    """Return a copy with all GPUs connected to one NVSwitch device.

    The NVLinks of a GPU go to different chips, over which its traffic is spread evenly: together
    they behave like one switch.
    """
    return node_spec.with_links(
        [
            DeviceLink(name, NVSWITCH, cable, nvlinks_per_gpu)
            for name in node_spec.device_names(GPU)
        ],
        [Device(NVSWITCH, SWITCH, product)],
    )
