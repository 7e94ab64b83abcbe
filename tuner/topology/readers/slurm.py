"""Reads a fabric from Slurm: the nodes and switches below each switch.

In `topology.conf`, or as `scontrol show topology` prints it:

    SwitchName=leaf1 Nodes=n[001-018]
    SwitchName=top   Switches=leaf[1-4]

In `topology.yaml`, which may hold several topologies, it is the first one with `cluster_default`:

    - topology: main
      cluster_default: true
      tree:
        switches:
          - {switch: leaf1, nodes: "n[001-018]"}
          - {switch: top, children: "leaf[1-4]"}

Neither has cables, rates or latencies (LinkSpeed has no effect in Slurm either). They are
assumed: a node has one cable of 100 Gb/s, and a switch has as many cables upwards as nodes below
it, divided evenly among the switches above. Lines of the topology/block plugin, `BlockName=b1
Nodes=...`, become leaves below one additional switch. Blocks without nodes, which keep numbers
free, and what blocks Slurm joins (BlockSizes, AggregatedBlock) say nothing about the network.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.base.file_settings import parse_name, require_keys
from tuner.base.hostlist import expand_hostlist
from tuner.topology import Link, Node, Topology
from tuner.topology.readers.safe_yaml import parse_yaml
from tuner.topology.readers.yaml_fields import MAX_NODES

CABLE_BANDWIDTH = 12.5e9  # bytes per second
ASSUMED_RATES = (
    f"Slurm's files state no rates: each cable is taken to have {CABLE_BANDWIDTH / 1e9:g} GB/s"
)
KEY_VALUE = re.compile(r"([A-Za-z]+)\s*=\s*(?![A-Za-z]+\s*=)(\S*)")
KNOWN_KEYS = {
    key.lower(): key
    for key in (
        *("SwitchName", "Nodes", "Switches", "LinkSpeed", "Level"),
        *("BlockName", "BlockSizes", "BlockSize", "BlockIndex", "AggregatedBlock"),
    )
}
JOINED_BLOCKS = {"blocksizes", "aggregatedblock"}
YAML_ENTRY = re.compile(r"^[ \t]*-[ \t]+[\"']?topology[\"']?[ \t]*:", re.M)
# the kinds of topology.yaml(5): where their entries are, and what topology.conf calls their keys
YAML_KINDS = {
    "tree": ("switches", {"switch": "switchname", "nodes": "nodes", "children": "switches"}),
    "block": ("blocks", {"block": "blockname", "nodes": "nodes"}),
}
YAML_SIZES = "block_sizes"
BLOCK_ROOT_SWITCH = "all"  # the switch above the leaves of topology/block


@dataclass
class _Switch:
    """A switch of the file, where it is there, and the names of what is below and above it."""

    name: str
    place: str
    nodes: list[str]
    switches: list[str]
    parents: list[str] = field(default_factory=list)


def parse_slurm(text: str) -> Topology:
    """Return a topology of nodes and switches; raise InputError naming the place."""
    if YAML_ENTRY.search(text):
        return _parse_yaml(text)
    return _topology("slurm", _lines(text))


def _parse_yaml(text: str) -> Topology:
    """Return the first topology that is the cluster's default, or the only one."""
    listed = parse_yaml(text, as_text=True)
    for number, entry in enumerate(listed, 1):
        known = {"topology", "cluster_default", "flat", *YAML_KINDS}
        require_keys(f"topology {number}", entry, known, {"topology"})
    names = [parse_name("topology", entry["topology"]) for entry in listed]
    flags = [str(entry.get("cluster_default")).lower() == "true" for entry in listed]
    if True not in flags and len(listed) > 1:
        raise InputError(
            f"none of the topologies {', '.join(map(shortened_repr, names))} has cluster_default:"
            " true; write it in the one to read"
        )
    chosen = flags.index(True) if True in flags else 0
    found = _topology(names[chosen], _yaml_entries(names[chosen], listed[chosen]))
    others = ", ".join(name for number, name in enumerate(names) if number != chosen)
    caution = (
        f"of Slurm's topologies {names[chosen]}, the cluster's default, is read; to read another"
        f" one ({others}), move cluster_default: true there"
    )
    return replace(found, cautions=(*found.cautions, caution)) if others else found


def _yaml_entries(name: str, entry: dict[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the place of each switch or block, and its values by their keys in topology.conf."""
    what = f"topology {shortened_repr(name)}"
    kinds = [kind for kind in YAML_KINDS if kind in entry]
    if len(kinds) != 1 or "flat" in entry:
        raise InputError(
            f"{what} names no switches, as {' or '.join(YAML_KINDS)} would: describe it in YAML"
            " with name, nodes, latency and bandwidth"
        )
    where, keys = YAML_KINDS[kinds[0]]
    inner = f"{what}: {kinds[0]}"
    require_keys(inner, entry[kinds[0]], {where, YAML_SIZES}, {where})
    for number, one in enumerate(entry[kinds[0]][where] or [], 1):
        place = f"{inner}: {where}: {number}"
        require_keys(place, one, keys.keys(), set())
        yield place, {keys[key]: parse_name(f"{place}: {key}", one[key]) for key in one}


def _topology(topology_name: str, entries: Iterable[tuple[str, dict[str, str]]]) -> Topology:
    """Return the topology of entries: places in the file with keys and values."""
    switches = {switch.name: switch for switch in _switches(entries)}
    nodes = [name for switch in switches.values() for name in switch.nodes]
    if not nodes:
        raise InputError("expected a switch or a block that names nodes")
    _connect_switches(switches)
    up = _cables_up(switches)
    links = [
        link
        for switch in switches.values()
        for name in switch.nodes
        for link in _links_both_ways(name, switch.name, 1)
    ]
    links += [
        link
        for switch in switches.values()
        for upper in switch.parents
        for link in _links_both_ways(switch.name, upper, up[switch.name])
    ]
    return Topology(
        topology_name,
        tuple(map(Node, nodes)),
        tuple(switches),
        tuple(links),
        cautions=(ASSUMED_RATES,),
    )


def _links_both_ways(lower: str, upper: str, cables: int) -> list[Link]:
    return [
        Link(a, b, cables * CABLE_BANDWIDTH, 0.0, count=cables)
        for a, b in ((lower, upper), (upper, lower))
    ]


def _switches(entries: Iterable[tuple[str, dict[str, str]]]) -> list[_Switch]:
    """Return one switch per entry, without blocks that have no nodes.

    Raises InputError unless the names of all switches and nodes differ.
    """
    switches: list[_Switch] = []
    seen: dict[str, str] = {}
    leaves: list[str] = []
    for place, words in entries:
        try:
            _require_known(words)
            if JOINED_BLOCKS & words.keys():
                continue
            switch = _switch(place, words)
            _check_unique(switch, seen)
        except InputError as reason:
            raise InputError(f"{place}: {reason}") from None
        if switch.nodes or switch.switches:
            switches.append(switch)
            leaves += [switch.name] if "blockname" in words else []
    if leaves:
        switches.append(_Switch(BLOCK_ROOT_SWITCH, switches[-1].place, [], leaves))
        _check_unique(switches[-1], seen)
    return switches


def _lines(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield places and keys (in lower case) with values; a backslash continues a line."""
    held: list[str] = []
    begun = 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        written = line.partition("#")[0].rstrip()
        begun = begun if held else number
        held.append(written.removesuffix("\\"))
        if written.endswith("\\"):
            continue
        whole = "".join(held).strip()
        held = []
        if whole:
            yield f"line {begun}", _parse_pairs(begun, whole)


def _parse_pairs(line: int, text: str) -> dict[str, str]:
    pairs = [(match[1].lower(), match[2]) for match in KEY_VALUE.finditer(text)]
    words = dict(pairs)
    if KEY_VALUE.sub("", text).strip() or len(words) < len(pairs):
        raise InputError(f"line {line}: a line is KEY=VALUE, each once, not {shortened_repr(text)}")
    return words


def _require_known(words: dict[str, str]) -> None:
    for key in sorted(words.keys() - KNOWN_KEYS.keys()):
        raise InputError(
            f"the key {shortened_repr(key)} is unknown; known: {', '.join(KNOWN_KEYS.values())}"
        )


def _switch(place: str, words: dict[str, str]) -> _Switch:
    """Return the switch that an entry describes.

    Where Slurm itself printed the levels, the nodes of an upper switch repeat those below and are
    left out.
    """
    name = words.get("switchname") or words.get("blockname") or ""
    if not name or not {"[", ","}.isdisjoint(name) or {"switchname", "blockname"} <= words.keys():
        raise InputError("the SwitchName or the BlockName of one switch is missing")
    nodes, switches = (
        expand_hostlist(words[key], MAX_NODES) if words.get(key) else []
        for key in ("nodes", "switches")
    )
    if not nodes and not switches and "blockname" not in words:
        raise InputError(f"switch {shortened_repr(name)} needs Nodes or Switches")
    return _Switch(name, place, [] if switches and "level" in words else nodes, switches)


def _check_unique(switch: _Switch, seen: dict[str, str]) -> None:
    for name in (switch.name, *switch.nodes):
        if name in seen:
            raise InputError(f"{shortened_repr(name)} is already at {seen[name]}")
        seen[name] = switch.place
    if len(seen) > 2 * MAX_NODES:
        raise InputError(f"so far {len(seen)} nodes and switches, more than {2 * MAX_NODES}")


def _connect_switches(switches: dict[str, _Switch]) -> None:
    for switch in switches.values():
        for name in switch.switches:
            if name not in switches:
                raise InputError(
                    f"{switch.place}: there is no switch {shortened_repr(name)}; add it, or take"
                    " the name out here"
                )
            if switches[name].parents[-1:] == [switch.name]:
                raise InputError(f"{switch.place}: {shortened_repr(name)} is there twice")
            switches[name].parents.append(switch.name)


def _cables_up(switches: dict[str, _Switch]) -> dict[str, int]:
    """Return the number of cables from each switch to each of its parents.

    Together they are as many as come from below, rounded up. Raises InputError for a switch below
    itself.
    """
    cables: dict[str, int] = {}
    missing = {name: len(switch.switches) for name, switch in switches.items()}
    ready = [name for name, number in missing.items() if number == 0]
    while ready:
        switch = switches[ready.pop()]
        down = len(switch.nodes) + sum(cables[name] for name in switch.switches)
        cables[switch.name] = max(1, -(-down // max(1, len(switch.parents))))
        for name in switch.parents:
            missing[name] -= 1
            ready += [name] if missing[name] == 0 else []
    for name in switches.keys() - cables.keys():
        raise InputError(f"{switches[name].place}: switch {shortened_repr(name)} is below itself")
    return cables
