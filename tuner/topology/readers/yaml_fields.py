"""Parts of a topology in YAML: links, and fabrics given by their shape.

The kinds of fabrics; `latency` and `bandwidth` are those of a cable between a node and its switch,
and of all other cables unless given:

    {kind: switch}
    {kind: fat_tree, per_leaf: 16, uplinks: 8, rails: true, trunk: {latency: 1us, bandwidth: 5GB/s}}
    {kind: fat_tree, per_leaf: [16, 8], uplinks: [16, 8]}     three levels; or `taper: 2`
    {kind: dragonfly, routers: [16, 6], per_router: 4, outward: 10, across: {latency, bandwidth}}
                                                 `local`: within a group; a list: by dimension
    {kind: torus, shape: [4, 4, 4], per_router: 1, link: {latency, bandwidth}}
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Annotated, Any

from tuner.base.errors import InputError, shortened_repr
from tuner.base.file_settings import (
    COUNT,
    POSITIVE,
    Count,
    Flag,
    Kind,
    Rate,
    Seconds,
    declared_settings,
    parse_int,
    parse_name,
    parse_names,
    read_record,
    read_settings,
    require_keys,
)
from tuner.topology import Link
from tuner.topology.readers.fabrics import (
    Dragonfly,
    Fabric,
    FatTree,
    NetworkCable,
    OneSwitch,
    Torus,
)

MAX_NODES = 1 << 16  # more would take gigabytes of memory
MAX_DEVICES = 256  # inside a node; the time to find all routes is cubic
MAX_DIMENSIONS = 8
END_KEYS = {"between", "from", "to"}


@dataclass(frozen=True, kw_only=True)
class LinkSettings:
    """The settings of a link beside its ends, whose keys are END_KEYS."""

    latency: Seconds
    bandwidth: Rate
    count: Count = 1


def parse_links(value: Any) -> list[Link]:
    """Return the links of a list; raise InputError naming the entry."""
    if not isinstance(value, list):
        raise InputError("links must be a list")
    return [link for number, entry in enumerate(value, start=1) for link in _link(number, entry)]


def _link(number: int, entry: Any) -> list[Link]:
    what = f"link {number}"
    own = LinkSettings(**read_settings(LinkSettings, entry, what, END_KEYS))
    return [
        Link(a, b, own.bandwidth * own.count, own.latency, "network", own.count)
        for a, b in parse_link_ends(what, entry, END_KEYS | declared_settings(LinkSettings).keys())
    ]


def parse_link_ends(what: str, entry: dict[str, Any], keys: Set[str]) -> list[tuple[str, str]]:
    """Return the ends of one link, or of both directions; raise InputError for another form.

    keys    keys that the entry may have
    """
    if "between" not in entry:
        require_keys(what, entry, keys, {"from", "to"})
        return [
            (parse_name(f"{what}: from", entry["from"]), parse_name(f"{what}: to", entry["to"]))
        ]
    ends = parse_names(f"{what}: between", entry["between"])
    if len(ends) != 2 or "from" in entry or "to" in entry:
        raise InputError(f"{what}: write `between: [a, b]`, or `from` and `to`")
    return [(ends[0], ends[1]), (ends[1], ends[0])]


def _read_cable(what: str, value: Any) -> NetworkCable:
    return read_record(SwitchSettings, value, what).cable


def _read_local_cables(what: str, value: Any) -> NetworkCable | list[NetworkCable]:
    """Return the cable of all dimensions, or those of each."""
    if isinstance(value, list):
        return [_read_cable(what, one) for one in value]
    return _read_cable(what, value)


def _read_counts(what: str, value: Any) -> tuple[int, ...]:
    """Return one integer or a list of integers as a tuple; raise InputError otherwise."""
    listed = value if isinstance(value, list) else [value]
    if not 1 <= len(listed) <= MAX_DIMENSIONS:
        raise InputError(f"{what} must be a list of 1 to {MAX_DIMENSIONS} numbers")
    return tuple(parse_int(what, one) for one in listed)


CABLE = Kind("cable", _read_cable)
LOCAL_CABLES = Kind("cables", _read_local_cables)
COUNTS = Kind("numbers", _read_counts)
Counts = Annotated[tuple[int, ...], COUNTS]
Cable = Annotated[NetworkCable | None, CABLE]


@dataclass(frozen=True, kw_only=True)
class SwitchSettings:
    """The settings of one switch: those of the cables between nodes and their switch."""

    latency: Seconds
    bandwidth: Rate

    @property
    def cable(self) -> NetworkCable:
        return NetworkCable(self.bandwidth, self.latency)

    def fabric(self) -> Fabric:
        """Return the fabric; raise InputError for settings that do not go together."""
        return OneSwitch(self.cable)


@dataclass(frozen=True, kw_only=True)
class FatTreeSettings(SwitchSettings):
    """The settings of a fat tree."""

    per_leaf: Counts
    uplinks: Annotated[tuple[int, ...] | None, COUNTS] = None
    taper: Annotated[float | None, POSITIVE] = None
    rails: Flag = False
    trunk: Cable = None

    def fabric(self) -> Fabric:
        down = self.per_leaf
        if self.uplinks and self.taper:
            raise InputError("fabric: write `uplinks` or `taper`, not both")
        up: tuple[float, ...] = self.uplinks or down
        if self.taper:
            if not 1.0 <= self.taper <= down[0]:
                raise InputError(
                    f"fabric: taper must be from 1 to per_leaf, {down[0]}, not {self.taper:g}"
                )
            up = (down[0] / self.taper, *down[1:])
        if len(up) != len(down):
            raise InputError("fabric: per_leaf and uplinks must have one number for each level")
        return FatTree(self.cable, down, up, self.rails, self.trunk)


@dataclass(frozen=True, kw_only=True)
class DragonflySettings(SwitchSettings):
    """The settings of a dragonfly."""

    routers: Counts
    per_router: Count = 1
    outward: Count = 1
    local: Annotated[Any, LOCAL_CABLES] = None
    across: Cable = None
    groups: Annotated[int | None, COUNT] = None

    def fabric(self) -> Fabric:
        dimensions = len(self.routers)
        local = self.local or []
        listed = local if isinstance(local, list) else [local] * dimensions
        if listed and len(listed) != dimensions:
            raise InputError(f"fabric: local must be one cable, or {dimensions}: one per dimension")
        return Dragonfly(
            self.cable,
            self.routers,
            self.per_router,
            self.outward,
            tuple(listed),
            self.across,
            self.groups,
        )


@dataclass(frozen=True, kw_only=True)
class TorusSettings(SwitchSettings):
    """The settings of a torus."""

    shape: Counts
    per_router: Count = 1
    link: Cable = None

    def fabric(self) -> Fabric:
        return Torus(self.cable, self.shape, self.per_router, self.link)


_FABRICS: dict[str, type[SwitchSettings]] = {
    "switch": SwitchSettings,
    "fat_tree": FatTreeSettings,
    "dragonfly": DragonflySettings,
    "torus": TorusSettings,
}


def parse_fabric(value: Any) -> Fabric:
    """Return a fabric given by its shape; raise InputError for an invalid one."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in _FABRICS:
        raise InputError(
            f"fabric: kind is one of {', '.join(_FABRICS)}, not {shortened_repr(kind)}; write"
            " it like fabric: {kind: fat_tree, ...}"
        )
    own = _FABRICS[kind]
    return own(**read_settings(own, value, "fabric", {"kind"})).fabric()
