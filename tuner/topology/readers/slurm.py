"""Reads a fabric from Slurm's `topology.conf`: the nodes and switches below each switch.

    SwitchName=leaf1 Nodes=n[001-018]
    SwitchName=top   Switches=leaf[1-4]

The file has no cables, rates or latencies (LinkSpeed has no effect in Slurm either). They are
assumed: a node has one cable of 100 Gb/s, and a switch has as many cables upwards as nodes below
it, divided evenly among the switches above. Lines of the topology/block plugin, `BlockName=b1
Nodes=...`, become leaves below one additional switch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tuner.base.errors import InputError, shortened_repr
from tuner.base.hostlist import expand_hostlist
from tuner.topology import Link, Node, Topology
from tuner.topology.readers.yaml_fields import MAX_NODES

CABLE_BANDWIDTH = 12.5e9  # bytes per second
KEY_VALUE = re.compile(r"([A-Za-z]+)\s*=\s*(\S*)")
KNOWN_KEYS = {"switchname", "blockname", "nodes", "switches", "linkspeed", "level"}
BLOCK_ROOT_SWITCH = "all"  # the switch above the leaves of topology/block


@dataclass
class _Switch:
    """A switch of the file, with the names of what is below and above it."""

    name: str
    line: int
    nodes: list[str]
    switches: list[str]
    parents: list[str] = field(default_factory=list)


def parse_slurm(text: str) -> Topology:
    """Return a topology of nodes and switches; raise InputError naming the line."""
    switches = {switch.name: switch for switch in _switches(text)}
    nodes = [name for switch in switches.values() for name in switch.nodes]
    if not nodes:
        raise InputError("line 1: no SwitchName or BlockName line names a node")
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
    return Topology("slurm", tuple(map(Node, nodes)), tuple(switches), tuple(links))


def _links_both_ways(lower: str, upper: str, cables: int) -> list[Link]:
    return [
        Link(a, b, cables * CABLE_BANDWIDTH, 0.0, count=cables)
        for a, b in ((lower, upper), (upper, lower))
    ]


def _switches(text: str) -> list[_Switch]:
    """Return one switch per line.

    Raises InputError unless the names of all switches and nodes differ.
    """
    switches: list[_Switch] = []
    seen: dict[str, int] = {}
    leaves: list[str] = []
    for line, words in _lines(text):
        if words.keys() == {"blocksizes"}:
            continue
        try:
            switch = _switch(line, words)
            _check_unique(switch, seen)
        except InputError as reason:
            raise InputError(f"line {line}: {reason}") from None
        switches.append(switch)
        leaves += [switch.name] if "blockname" in words else []
    if leaves:
        switches.append(_Switch(BLOCK_ROOT_SWITCH, switches[-1].line, [], leaves))
        _check_unique(switches[-1], seen)
    return switches


def _lines(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line numbers and keys (in lower case) with values; a backslash continues a line."""
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
            yield begun, _parse_pairs(begun, whole)


def _parse_pairs(line: int, text: str) -> dict[str, str]:
    pairs = [(match[1].lower(), match[2]) for match in KEY_VALUE.finditer(text)]
    words = dict(pairs)
    if KEY_VALUE.sub("", text).strip() or len(words) < len(pairs):
        raise InputError(f"line {line}: a line is KEY=VALUE, each once, not {shortened_repr(text)}")
    return words


def _switch(line: int, words: dict[str, str]) -> _Switch:
    """Return the switch that a line describes.

    Where Slurm itself printed the levels, the nodes of an upper switch repeat those below and are
    left out.
    """
    for key in sorted(words.keys() - KNOWN_KEYS):
        raise InputError(
            f"the key {shortened_repr(key)} is unknown; known: SwitchName, Nodes, Switches,"
            " LinkSpeed, Level, BlockName, BlockSizes"
        )
    name = words.get("switchname") or words.get("blockname") or ""
    if not name or not {"[", ","}.isdisjoint(name) or {"switchname", "blockname"} <= words.keys():
        raise InputError("a line begins with the SwitchName or the BlockName of one switch")
    nodes, switches = (
        expand_hostlist(words[key], MAX_NODES) if words.get(key) else []
        for key in ("nodes", "switches")
    )
    if not nodes and not switches:
        raise InputError(f"switch {shortened_repr(name)} has neither Nodes nor Switches")
    return _Switch(name, line, [] if switches and "level" in words else nodes, switches)


def _check_unique(switch: _Switch, seen: dict[str, int]) -> None:
    for name in (switch.name, *switch.nodes):
        if name in seen:
            raise InputError(f"{shortened_repr(name)} is already on line {seen[name]}")
        seen[name] = switch.line
    if len(seen) > 2 * MAX_NODES:
        raise InputError(f"so far {len(seen)} nodes and switches, more than {2 * MAX_NODES}")


def _connect_switches(switches: dict[str, _Switch]) -> None:
    for switch in switches.values():
        for name in switch.switches:
            if name not in switches:
                raise InputError(
                    f"line {switch.line}: there is no line SwitchName={name[:80]}; add it, or take"
                    " the name out here"
                )
            if switches[name].parents[-1:] == [switch.name]:
                raise InputError(f"line {switch.line}: {shortened_repr(name)} is there twice")
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
        raise InputError(
            f"line {switches[name].line}: switch {shortened_repr(name)} is below itself"
        )
    return cables
