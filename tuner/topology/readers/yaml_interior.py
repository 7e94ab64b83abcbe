"""The interior of a node in YAML.

`count` expands a device to a group: gpu0, gpu1, ...; without it the group has one device of that
name. With `rails` the devices are listed rail by rail: nic0, nic4, ..., nic1, nic5, ... for 4.

    interior:
      devices:
        - {name: cpu, kind: cpu, product: EPYC 7742, cores: 64, count: 2}
        - {name: gpu, kind: gpu, product: A100, count: 4}
        - {name: nic, kind: nic}
      links:
        - {attach: gpu, to: cpu, bandwidth: 26GB/s, latency: 0us, kind: pcie}
        - {between: [cpu0, nic], bandwidth: 26GB/s, latency: 0us, kind: pcie}
        - {among: cpu, bandwidth: 16GB/s, latency: 0us, kind: socket}
        - {among: gpu, pairs: [[0, 1], [2, 3]], bandwidth: 23GB/s, latency: 0us, kind: nvlink}

`attach` links each device of a group to one of another group, evenly and in order; `among` links
all pairs of a group, or those that `pairs` lists; `between` links two devices by name. Each stands
for both directions; `from` and `to` name one direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Any

from tuner.base.errors import InputError, shortened_repr
from tuner.base.file_settings import (
    NAME,
    Count,
    declared_settings,
    one_of,
    parse_name,
    read_record,
    read_settings,
    require_keys,
    whole,
)
from tuner.topology import DEVICE_KINDS, LINK_KINDS, Device, Link, NodeTopology
from tuner.topology.readers.yaml_fields import END_KEYS, MAX_DEVICES, LinkSettings, parse_link_ends

MAX_INTERIOR_LINKS = 1 << 16  # in one direction: more than all pairs of the devices
INTERIOR_END_KEYS = END_KEYS | {"attach", "among", "pairs"}
DeviceGroups = Mapping[str, Sequence[str]]  # name in YAML -> names of the devices
Ends = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class InteriorLink(LinkSettings):
    """The settings of a link inside a node beside its ends."""

    kind: Annotated[str, one_of(LINK_KINDS)] = "network"


INTERIOR_LINK_KEYS = INTERIOR_END_KEYS | declared_settings(InteriorLink).keys()


@dataclass(frozen=True, kw_only=True)
class DeviceSettings:
    """The settings of a device or a group of devices; `count` is None without a group."""

    name: Annotated[str, NAME]
    kind: Annotated[str, one_of(DEVICE_KINDS)]
    product: Annotated[str, NAME] = ""
    cores: Count = 0
    count: Annotated[int | None, whole(MAX_DEVICES)] = None
    rails: Annotated[int, whole(MAX_DEVICES)] = 1


def parse_node_topology(value: Any) -> NodeTopology:
    """Return the interior of a node; raise InputError for an invalid one."""
    devices, groups = parse_devices(value)
    links: list[Link] = []
    for number, entry in enumerate(value["links"], start=1):
        what = f"link {number}"
        own = InteriorLink(**read_settings(InteriorLink, entry, what, INTERIOR_END_KEYS))
        links += [
            Link(a, b, own.bandwidth * own.count, own.latency, own.kind, own.count)
            for a, b in parse_interior_ends(what, entry, groups)
        ]
        require_few_links(len(links) // 2)
    return NodeTopology(tuple(devices), tuple(links))


def parse_devices(value: Any) -> tuple[list[Device], DeviceGroups]:
    """Return the devices of an interior, and their names by group.

    Raises InputError for an invalid list of devices, and for links that are not a list.
    """
    require_keys("interior", value, {"devices", "links"}, {"devices", "links"})
    if not isinstance(value["devices"], list) or not value["devices"]:
        raise InputError("interior: devices must be a list of at least one device")
    if not isinstance(value["links"], list):
        raise InputError("interior: links must be a list")
    devices: list[Device] = []
    groups: dict[str, list[str]] = {}
    for number, entry in enumerate(value["devices"], start=1):
        own = read_record(DeviceSettings, entry, f"device {number}")
        if own.name in groups:
            raise InputError(f"device {number}: the name {shortened_repr(own.name)} is taken")
        group = _device_group(own)
        groups[own.name] = [device.name for device in group]
        devices += [device for rail in range(own.rails) for device in group[rail :: own.rails]]
        if len(devices) > MAX_DEVICES:
            raise InputError(f"interior: there are more than {MAX_DEVICES} devices in a node")
    return devices, groups


def _device_group(own: DeviceSettings) -> list[Device]:
    if own.count is None:
        return [Device(own.name, own.kind, own.product, own.cores)]
    names = (f"{own.name}{number}" for number in range(own.count))
    return [Device(name, own.kind, own.product, own.cores) for name in names]


def require_few_links(number: int) -> None:
    """Raise InputError for more links than any interior can have."""
    if number > MAX_INTERIOR_LINKS:
        raise InputError(f"interior: there are more than {MAX_INTERIOR_LINKS} links in a node")


def parse_interior_ends(what: str, entry: dict[str, Any], groups: DeviceGroups) -> list[Ends]:
    """Return the ends of the links of an entry, each pair followed by its reverse.

    Raises InputError for an entry of another form and for an unknown group.
    """
    if "attach" in entry:
        pairs = _attached(what, entry, groups)
    elif "among" in entry:
        pairs = _among(what, entry, groups)
    else:
        return parse_link_ends(what, entry, INTERIOR_LINK_KEYS - {"attach", "among", "pairs"})
    return [ends for a, b in pairs for ends in ((a, b), (b, a))]


def _attached(what: str, entry: dict[str, Any], groups: DeviceGroups) -> list[Ends]:
    require_keys(what, entry, INTERIOR_LINK_KEYS - {"between", "from", "among", "pairs"}, {"to"})
    names, places = (_group(f"{what}: {key}", entry[key], groups) for key in ("attach", "to"))
    return attach_evenly(names, places)


def attach_evenly(names: Sequence[str], places: Sequence[str]) -> list[Ends]:
    """Return each name with one of the places, in order and evenly."""
    return [(name, places[i * len(places) // len(names)]) for i, name in enumerate(names)]


def _among(what: str, entry: dict[str, Any], groups: DeviceGroups) -> list[Ends]:
    require_keys(what, entry, INTERIOR_LINK_KEYS - {"between", "from", "to"}, set())
    names = _group(f"{what}: among", entry["among"], groups)
    if "pairs" not in entry:
        return list(combinations(names, 2))
    if not isinstance(entry["pairs"], list):
        raise InputError(f"{what}: pairs must be a list such as [[0, 1], [2, 3]]")
    return [_pair(what, pair, names) for pair in entry["pairs"]]


def _pair(what: str, pair: Any, names: Sequence[str]) -> Ends:
    """Return the names of a pair of numbers."""
    known = range(len(names))
    if (
        not isinstance(pair, list)
        or len(pair) != 2
        or not all(isinstance(number, int) and number in known for number in pair)
    ):
        raise InputError(
            f"{what}: each of pairs is two numbers from 0 to {len(names) - 1}, not"
            f" {shortened_repr(pair)}"
        )
    return names[pair[0]], names[pair[1]]


def _group(what: str, value: Any, groups: DeviceGroups) -> Sequence[str]:
    name = parse_name(what, value)
    if name not in groups:
        raise InputError(
            f"{what}: there is no device {shortened_repr(name)}; give the name of an entry of"
            " devices"
        )
    return groups[name]
