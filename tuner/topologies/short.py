"""Topologies written by hand in YAML.

One switch, full duplex, the latency end to end:

    name: flat64
    nodes: 64
    latency: 2us
    bandwidth: 12.5GB/s

Or nodes, switches and links by name; `between` is both directions, `from`/`to` one:

    name: pair
    nodes: [a, b]
    switches: [s]
    links:
      - {between: [a, s], latency: 1us, bandwidth: 12.5GB/s, count: 2}
      - {between: [b, s], latency: 1us, bandwidth: 12.5GB/s}

Both may add `cores` per node and `local: {latency, bandwidth, memory_bandwidth}` inside a node.
"""

from __future__ import annotations

import math
from typing import Any

from tuner.errors import InputError, quoted
from tuner.topologies.safe_yaml import parse_yaml
from tuner.topology import Link, Node, Topology
from tuner.units import parse_bandwidth, parse_time

MOST_NODES = 1 << 16  # more would take gigabytes, however short the text
FLAT_KEYS = {"name", "nodes", "latency", "bandwidth", "cores", "local"}
LINKED_KEYS = {"name", "nodes", "switches", "links", "cores", "local"}
LINK_KEYS = {"between", "from", "to", "latency", "bandwidth", "count"}
LOCAL_KEYS = {"latency", "bandwidth", "memory_bandwidth"}


def parse_short(text: str) -> Topology:
    """A topology from YAML text. Raises InputError that names place and remedy."""
    return topology_from(parse_yaml(text))


def topology_from(record: Any) -> Topology:
    """A topology from parsed YAML or JSON; raises InputError."""
    linked = isinstance(record, dict) and "links" in record
    require_keys("the topology", record, LINKED_KEYS if linked else FLAT_KEYS,
                  {"name", "nodes"} | (set() if linked else {"latency", "bandwidth"}))  # fmt: skip
    name = _name("name", record["name"])
    nodes = _nodes(record["nodes"], _whole("cores", record.get("cores", 1)))
    local = record.get("local", {})
    require_keys("local", local, LOCAL_KEYS, set())
    if linked:
        switches = _names("switches", record.get("switches", []))
        links = _listed_links(record["links"])
    else:
        switches = ["switch"]
        links = _star(nodes, parse_time(record["latency"]), parse_bandwidth(record["bandwidth"]))
    return Topology(
        name, tuple(nodes), tuple(switches), tuple(links),
        local_latency=parse_time(local["latency"]) if "latency" in local else None,
        local_bandwidth=parse_bandwidth(local["bandwidth"]) if "bandwidth" in local else None,
        memory_bandwidth=parse_bandwidth(local["memory_bandwidth"])
        if "memory_bandwidth" in local else math.inf,
    )  # fmt: skip


def require_keys(what: str, record: Any, known: set[str], needed: set[str]) -> None:
    """InputError unless `record` is a mapping with all `needed` and only `known` keys."""
    if not isinstance(record, dict):
        raise InputError(f"{what} must be a mapping with {', '.join(sorted(needed or known))}")
    for key in record:
        if key not in known:
            raise InputError(
                f"{what} has an unknown key {quoted(key)}; known: {', '.join(sorted(known))}"
            )
    for key in sorted(needed):
        if key not in record:
            raise InputError(f"{what} lacks {key!r}")


def _whole(what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_NODES:
        raise InputError(
            f"{what} must be a whole number from 1 to {MOST_NODES}, not {quoted(value)}"
        )
    return value


def _name(what: str, value: Any) -> str:
    """YAML reads a bare `no` as false; a name like that must be quoted."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(f"{what} must be a name, not {quoted(value)}; put quotes round it")
    return str(value)


def _names(what: str, value: Any) -> list[str]:
    if not isinstance(value, list):
        raise InputError(f"{what} must be a list of names, not {quoted(value)}")
    return [_name(f"each of {what}", name) for name in value]


def _nodes(value: Any, cores: int) -> list[Node]:
    if isinstance(value, list) and value:
        return [Node(name, cores) for name in _names("nodes", value)]
    return [Node(f"node{number}", cores) for number in range(_whole("nodes", value))]


def _star(nodes: list[Node], latency: float, bandwidth: float) -> list[Link]:
    """Half of the end-to-end latency on the way to the switch, half on the way from it."""
    up = [Link(node.name, "switch", bandwidth, latency / 2) for node in nodes]
    down = [Link("switch", node.name, bandwidth, latency / 2) for node in nodes]
    return up + down


def _listed_links(value: Any) -> list[Link]:
    if not isinstance(value, list):
        raise InputError("links must be a list")
    return [link for number, entry in enumerate(value, start=1) for link in _link(number, entry)]


def _link(number: int, entry: Any) -> list[Link]:
    what = f"link {number}"
    require_keys(what, entry, LINK_KEYS, {"latency", "bandwidth"})
    if "between" in entry:
        ends = _names(f"{what}: between", entry["between"])
        if len(ends) != 2 or "from" in entry or "to" in entry:
            raise InputError(f"{what}: write `between: [a, b]`, or `from` and `to`")
        directions = [ends, ends[::-1]]
    else:
        require_keys(what, entry, LINK_KEYS, {"from", "to"})
        directions = [[_name(f"{what}: {end}", entry[end]) for end in ("from", "to")]]
    capacity = parse_bandwidth(entry["bandwidth"]) * _whole(f"{what}: count", entry.get("count", 1))
    return [Link(a, b, capacity, parse_time(entry["latency"])) for a, b in directions]
