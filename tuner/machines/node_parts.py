"""Parts of a node's specification: devices, and links whose numbers have a source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

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


def with_nics_in_places(node_spec: NodeSpec, nics: int) -> NodeSpec:
    """Return a copy with `nics` NICs, each with all links of one of the present ones.

    They take their places evenly, in the order of their links. NICs of one place are not neighbours
    in the list of devices, which gives each its leaf: all first ones precede all second ones.
    """
    own = node_spec.device_names(NIC)
    ends = (end for edge in node_spec.device_links for end in (edge.a, edge.b))
    in_order = [end for end in dict.fromkeys(ends) if end in own]
    taken = attach_evenly([f"nic{number}" for number in range(nics)], in_order)
    places = [place for _, place in taken]
    turns = [places[:number].count(place) for number, place in enumerate(places)]
    ranked = sorted(zip(turns, map(own.index, places), taken, strict=True))
    kept = tuple(device for device in node_spec.devices if device.kind != NIC)
    others = tuple(edge for edge in node_spec.device_links if not {edge.a, edge.b} & set(own))
    links = [
        replace(edge, a=name if edge.a == place else edge.a, b=name if edge.b == place else edge.b)
        for name, place in taken
        for edge in node_spec.device_links
        if place in (edge.a, edge.b)
    ]
    return NodeSpec(kept, others).with_links(links, [Device(one[0], NIC) for *_, one in ranked])
