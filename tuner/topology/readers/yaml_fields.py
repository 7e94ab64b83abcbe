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

from collections.abc import Callable, Set
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.base.file_settings import (
    parse_int,
    parse_name,
    parse_names,
    parse_positive_float,
    require_keys,
)
from tuner.base.units import parse_bandwidth, parse_time
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
LINK_KEYS = {"between", "from", "to", "latency", "bandwidth", "count"}
CABLE_KEYS = {"latency", "bandwidth"}


def parse_links(value: Any) -> list[Link]:
    """Return the links of a list; raise InputError naming the entry."""
    if not isinstance(value, list):
        raise InputError("links must be a list")
    return [link for number, entry in enumerate(value, start=1) for link in _link(number, entry)]


def _link(number: int, entry: Any) -> list[Link]:
    what = f"link {number}"
    require_keys(what, entry, LINK_KEYS, {"latency", "bandwidth"})
    count = parse_int(f"{what}: count", entry.get("count", 1))
    capacity, latency = parse_bandwidth(entry["bandwidth"]) * count, parse_time(entry["latency"])
    return [
        Link(a, b, capacity, latency, "network", count)
        for a, b in parse_link_ends(what, entry, LINK_KEYS)
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


def parse_fabric(value: Any) -> Fabric:
    """Return a fabric given by its shape; raise InputError for an invalid one."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in _FABRICS:
        raise InputError(
            f"fabric: kind is one of {', '.join(_FABRICS)}, not {shortened_repr(kind)}; write"
            " it like fabric: {kind: fat_tree, ...}"
        )
    keys, read = _FABRICS[kind]
    require_keys("fabric", value, keys | CABLE_KEYS | {"kind"}, CABLE_KEYS)
    return read(_parse_cable(value), value)


def _parse_cable(value: dict[str, Any]) -> NetworkCable:
    return NetworkCable(parse_bandwidth(value["bandwidth"]), parse_time(value["latency"]))


def _parse_optional_cable(value: dict[str, Any], key: str) -> NetworkCable | None:
    return _parse_named_cable(key, value[key]) if key in value else None


def _parse_named_cable(key: str, value: Any) -> NetworkCable:
    require_keys(f"fabric: {key}", value, CABLE_KEYS, CABLE_KEYS)
    return _parse_cable(value)


def _parse_ints(value: dict[str, Any], key: str) -> tuple[int, ...]:
    """Return one integer or a list of integers as a tuple; raise InputError otherwise."""
    given = value.get(key)
    listed = given if isinstance(given, list) else [given]
    if not 1 <= len(listed) <= MAX_DIMENSIONS:
        raise InputError(f"fabric: {key} must be a list of 1 to {MAX_DIMENSIONS} numbers")
    return tuple(parse_int(f"fabric: {key}", one) for one in listed)


def _one_switch(port: NetworkCable, _value: dict[str, Any]) -> Fabric:
    return OneSwitch(port)


def _fat_tree(port: NetworkCable, value: dict[str, Any]) -> Fabric:
    down = _parse_ints(value, "per_leaf")
    if "uplinks" in value and "taper" in value:
        raise InputError("fabric: write `uplinks` or `taper`, not both")
    up: tuple[float, ...] = _parse_ints(value, "uplinks") if "uplinks" in value else down
    if "taper" in value:
        taper = parse_positive_float("fabric: taper", value["taper"])
        if not 1.0 <= taper <= down[0]:
            raise InputError(f"fabric: taper must be from 1 to per_leaf, {down[0]}, not {taper:g}")
        up = (down[0] / taper, *down[1:])
    if len(up) != len(down):
        raise InputError("fabric: per_leaf and uplinks must have one number for each level")
    rails = value.get("rails", False)
    if not isinstance(rails, bool):
        raise InputError(f"fabric: rails must be true or false, not {shortened_repr(rails)}")
    return FatTree(port, down, up, rails, _parse_optional_cable(value, "trunk"))


def _dragonfly(port: NetworkCable, value: dict[str, Any]) -> Fabric:
    routers = _parse_ints(value, "routers")
    return Dragonfly(
        port,
        routers,
        parse_int("fabric: per_router", value.get("per_router", 1)),
        parse_int("fabric: outward", value.get("outward", 1)),
        _parse_local_cables(value, len(routers)),
        _parse_optional_cable(value, "across"),
        parse_int("fabric: groups", value["groups"]) if "groups" in value else None,
    )


def _parse_local_cables(value: dict[str, Any], dimensions: int) -> tuple[NetworkCable, ...]:
    """Return the cables within a group, one per dimension; none where they are not given."""
    given = value.get("local", [])
    listed = given if isinstance(given, list) else [given] * dimensions
    if listed and len(listed) != dimensions:
        raise InputError(f"fabric: local must be one cable, or {dimensions}: one per dimension")
    return tuple(_parse_named_cable("local", cable) for cable in listed)


def _torus(port: NetworkCable, value: dict[str, Any]) -> Fabric:
    per_router = parse_int("fabric: per_router", value.get("per_router", 1))
    return Torus(
        port, _parse_ints(value, "shape"), per_router, _parse_optional_cable(value, "link")
    )


_FABRICS: dict[str, tuple[set[str], Callable[[NetworkCable, dict[str, Any]], Fabric]]] = {
    "switch": (set(), _one_switch),
    "fat_tree": ({"per_leaf", "uplinks", "taper", "rails", "trunk"}, _fat_tree),
    "dragonfly": ({"routers", "per_router", "outward", "local", "across", "groups"}, _dragonfly),
    "torus": ({"shape", "per_router", "link"}, _torus),
}
