"""What nodes are made of: devices, and cables between them that know their source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.machines.provenance import INCLUDED_LATENCY, SourcedValue
from tuner.topology import CPU, GPU, NIC, SWITCH, Device, Link, NodeTopology

NVSWITCH = "nvswitch"


@dataclass(frozen=True)
class LinkType:
    """A kind of link: bytes per second of one cable and direction."""

    kind: str
    rate: SourcedValue
    latency: SourcedValue = INCLUDED_LATENCY


@dataclass(frozen=True)
class DeviceLink:
    """`count` cables side by side between two devices, in both directions."""

    a: str
    b: str
    link_type: LinkType
    count: int = 1

    def links(self) -> tuple[Link, Link]:
        """One link per direction."""
        capacity, latency = self.link_type.rate.value * self.count, self.link_type.latency.value
        return (
            Link(self.a, self.b, capacity, latency, self.link_type.kind, self.count),
            Link(self.b, self.a, capacity, latency, self.link_type.kind, self.count),
        )


@dataclass(frozen=True)
class NodeSpec:
    """The plan of an `NodeTopology`."""

    devices: tuple[Device, ...]
    device_links: tuple[DeviceLink, ...]

    def to_node_topology(self) -> NodeTopology:
        """What a `Node` holds."""
        return NodeTopology(
            self.devices, tuple(link for edge in self.device_links for link in edge.links())
        )

    def device_names(self, kind: str) -> list[str]:
        """The names of the devices of one kind."""
        return [device.name for device in self.devices if device.kind == kind]

    def with_links(
        self, device_links: Iterable[DeviceLink], devices: Iterable[Device] = ()
    ) -> NodeSpec:
        """The same with more in it."""
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
    """CPUs, levels of PCIe switches below them, GPUs below these, NICs at one of the levels.

    fan         how many GPUs share a switch of the lowest level, how many of these share one of the
                next, ...; the topmost hang on the CPUs, and without any level the GPUs do
    nics_at     the level whose switches have the NICs, lowest first; beyond the last: the CPUs
    cpu         what each socket is; its name is replaced
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
    """Each of `what` on one of the places, in order and evenly."""
    return [
        DeviceLink(name, places[i * len(places) // len(what)], cable) for i, name in enumerate(what)
    ]


def with_nics_at(node_spec: NodeSpec, places: Sequence[str], nics: int, link: LinkType) -> NodeSpec:
    """The same with so many NICs dealt to the places, and no others."""
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
    """GPUs joined directly: pair -> bricks."""
    return node_spec.with_links(
        DeviceLink(f"gpu{a}", f"gpu{b}", cable, count) for (a, b), count in nvlink_counts.items()
    )


def with_nvswitch(
    node_spec: NodeSpec, nvlinks_per_gpu: int, cable: LinkType, product: str = "NVSwitch"
) -> NodeSpec:
    """All GPUs at one NVSwitch device.

    The bricks of a GPU go to different chips, over which its traffic is spread evenly: together
    they behave as one.
    """
    return node_spec.with_links(
        [
            DeviceLink(name, NVSWITCH, cable, nvlinks_per_gpu)
            for name in node_spec.device_names(GPU)
        ],
        [Device(NVSWITCH, SWITCH, product)],
    )
