"""Parts of a node's specification: devices, and links whose numbers have a source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tuner.machines.provenance import INCLUDED_LATENCY, SourcedValue
from tuner.topology import NIC, Device, Link, NodeTopology
from tuner.topology.readers.yaml_interior import attach_evenly


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
        return NodeTopology(
            self.devices, tuple(link for edge in self.device_links for link in edge.links())
        )

    def device_names(self, kind: str) -> list[str]:
        return [device.name for device in self.devices if device.kind == kind]

    def with_links(
        self, device_links: Iterable[DeviceLink], devices: Iterable[Device] = ()
    ) -> NodeSpec:
        return NodeSpec((*self.devices, *devices), (*self.device_links, *device_links))


def with_nics_at(node_spec: NodeSpec, places: Sequence[str], nics: int, link: LinkType) -> NodeSpec:
    """Return a copy with `nics` NICs distributed over the places, in place of all NICs it has."""
    kept = tuple(device for device in node_spec.devices if device.kind != NIC)
    known = {device.name for device in kept}
    edges = tuple(edge for edge in node_spec.device_links if {edge.a, edge.b} <= known)
    names = [f"nic{i}" for i in range(nics)]
    return NodeSpec(kept, edges).with_links(
        [DeviceLink(*ends, link) for ends in attach_evenly(names, places)],
        [Device(name, NIC) for name in names],
    )
