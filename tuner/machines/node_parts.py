"""What nodes are made of: devices, and cables between them that know their source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.machines.provenance import FREE, Sourced
from tuner.topology import CPU, GPU, NIC, SWITCH, Device, Interior, Link

NVSWITCH = "nvswitch"


@dataclass(frozen=True)
class Cable:
    """A kind of link: bytes per second of one cable and direction."""

    kind: str
    rate: Sourced
    latency: Sourced = FREE


@dataclass(frozen=True)
class Edge:
    """`count` cables side by side between two devices, in both directions."""

    a: str
    b: str
    cable: Cable
    count: int = 1

    def links(self) -> tuple[Link, Link]:
        """One link per direction."""
        capacity, latency = self.cable.rate.value * self.count, self.cable.latency.value
        return (
            Link(self.a, self.b, capacity, latency, self.cable.kind, self.count),
            Link(self.b, self.a, capacity, latency, self.cable.kind, self.count),
        )


@dataclass(frozen=True)
class Inside:
    """The plan of an `Interior`."""

    devices: tuple[Device, ...]
    edges: tuple[Edge, ...]

    def interior(self) -> Interior:
        """What a `Node` holds."""
        return Interior(self.devices, tuple(link for edge in self.edges for link in edge.links()))

    def named(self, kind: str) -> list[str]:
        """The names of the devices of one kind."""
        return [device.name for device in self.devices if device.kind == kind]

    def with_edges(self, edges: Iterable[Edge], devices: Iterable[Device] = ()) -> Inside:
        """The same with more in it."""
        return Inside((*self.devices, *devices), (*self.edges, *edges))


def tree(
    product: str,
    gpus: int,
    cpu: Device,
    sockets: int,
    nics: int,
    *,
    gpu_link: Cable,
    pcie: Cable,
    nic_link: Cable,
    socket: Cable,
    socket_links: int = 1,
    fan: Sequence[int] = (),
    nics_at: int = 0,
) -> Inside:
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
    for level, width in enumerate(fan):
        above = [f"pcie{level}.{i}" for i in range(len(below) // width)]
        devices += [Device(name, SWITCH, "PCIe switch") for name in above]
        edges += [Edge(name, above[i // width], link) for i, name in enumerate(below)]
        levels.append(above)
        below, link = above, pcie
    levels.append([cpu.name for cpu in cpus])
    edges += dealt(below, levels[-1], link)
    edges += [
        Edge(a.name, b.name, socket, socket_links)
        for i, a in enumerate(cpus)
        for b in cpus[i + 1 :]
    ]
    found = Inside(tuple(devices), tuple(edges))
    return with_nics_at(found, levels[min(nics_at, len(fan))], nics, nic_link)


def dealt(what: Sequence[str], places: Sequence[str], cable: Cable) -> list[Edge]:
    """Each of `what` on one of the places, in order and evenly."""
    return [Edge(name, places[i * len(places) // len(what)], cable) for i, name in enumerate(what)]


def with_nics_at(inside: Inside, places: Sequence[str], nics: int, link: Cable) -> Inside:
    """The same with so many NICs dealt to the places, and no others."""
    kept = tuple(device for device in inside.devices if device.kind != NIC)
    known = {device.name for device in kept}
    edges = tuple(edge for edge in inside.edges if {edge.a, edge.b} <= known)
    names = [f"nic{i}" for i in range(nics)]
    return Inside(kept, edges).with_edges(
        dealt(names, places, link), [Device(name, NIC) for name in names]
    )


def nvlink_mesh(inside: Inside, bricks: Mapping[tuple[int, int], int], cable: Cable) -> Inside:
    """GPUs joined directly: pair -> bricks."""
    return inside.with_edges(
        Edge(f"gpu{a}", f"gpu{b}", cable, count) for (a, b), count in bricks.items()
    )


def nvswitched(inside: Inside, bricks: int, cable: Cable, product: str = "NVSwitch") -> Inside:
    """All GPUs at one NVSwitch device.

    The bricks of a GPU go to different chips, over which its traffic is spread evenly: together
    they behave as one.
    """
    return inside.with_edges(
        [Edge(name, NVSWITCH, cable, bricks) for name in inside.named(GPU)],
        [Device(NVSWITCH, SWITCH, product)],
    )
