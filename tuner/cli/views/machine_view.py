"""Printing of a machine: its nodes, its network, its costs, and their sources."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from tuner.base.atomic_io import encode_infinities
from tuner.base.units import format_size, format_time, humanize
from tuner.cli.terminal.output import print_table, print_text
from tuner.machines import Machine, MachineSpec, SourcedValue
from tuner.machines.assumed_costs import ASSUMED_KEY, LINK_RATE, assumed_costs
from tuner.topology import HOST, Link, NodeTopology, Topology

COSTS_FROM_TOPOLOGY = "as the topology says"
RATE_FROM_FILE = "as the file says, or nominal"
SOURCE_COLUMN = "source of the rate"
MAX_NAMES = 4  # of links that a row names
TextRow = tuple[str, ...]


def machine_record(machine: Machine) -> dict[str, Any]:
    """Return everything about a machine; network links are summed up by rate and latency."""
    topology, known = machine.topology, machine.spec
    interior = topology.nodes[0].node_topology
    return dict(
        encode_infinities(
            {
                "name": machine.name,
                "title": known.title if known else "",
                "source": known.source if known else "",
                "nodes": len(topology.nodes),
                "cores": topology.nodes[0].cores,
                "fabric": {
                    "summary": known.fabric.summary if known else "",
                    "shape": dict(zip(("source", "certainty"), known.fabric_source, strict=True))
                    if known
                    else {},
                    "switches": len(topology.switches),
                    "routing": topology.routing,
                    "offers": sorted(topology.capabilities),
                    "links": _summed(topology.links),
                },
                "devices": [asdict(device) for device in interior.devices] if interior else [],
                "links": _sourced_links(interior, known) if interior else [],
                "paths": [
                    {"path_class": path_class, "memory": memory, **asdict(cost)}
                    for (path_class, memory), cost in machine.calibration.paths.items()
                ],
                "numbers": {
                    name: asdict(number)
                    for name, number in (known.sourced_values() if known else {}).items()
                },
            }
        )
    )


def _summed(links: Iterable[Link]) -> list[dict[str, Any]]:
    """Return the cables by rate and latency; both directions of a link are the same cables."""
    joined = {frozenset((link.source, link.target)): link for link in links}
    cables: Counter[tuple[float, float]] = Counter()
    for link in joined.values():
        cables[link.capacity / link.count, link.latency] += link.count
    return [
        {"cables": number, "capacity": capacity, "latency": latency}
        for (capacity, latency), number in sorted(cables.items())
    ]


def _sourced_links(interior: NodeTopology, known: MachineSpec | None) -> list[dict[str, Any]]:
    rates = _rates(known)
    return [
        {**asdict(link), "rate": asdict(rates[ends]) if ends in rates else {}}
        for link in interior.links
        if (ends := frozenset((link.source, link.target)))
    ]


def _rates(known: MachineSpec | None) -> dict[frozenset[str], SourcedValue]:
    """Return the rate of one cable, by the devices that it joins."""
    edges = known.node_spec.device_links if known else ()
    return {frozenset((edge.a, edge.b)): edge.link_type.rate for edge in edges}


def print_machine(machine: Machine) -> None:
    """Print a machine: its network, devices, links and costs."""
    topology, known = machine.topology, machine.spec
    print_text(f"{machine.name}: {known.title}" if known else machine.name, style="bold")
    if known:
        print_text(f"  sources: {known.source}")
    _print_network(topology, known)
    interior = topology.nodes[0].node_topology
    if interior is not None:
        _print_devices(interior)
        _print_links(interior, known)
    if ASSUMED_KEY in machine.calibration.provenance:
        _print_assumed_costs(topology)
    elif known is None:
        print_text(f"costs: {COSTS_FROM_TOPOLOGY}")
    else:
        _print_paths(known)
        _print_numbers(known)


def _print_network(topology: Topology, known: MachineSpec | None) -> None:
    nodes, switches = len(topology.nodes), len(topology.switches)
    print_text(
        f"  {_count_text(nodes, 'node')} of {_count_text(topology.nodes[0].cores, 'core')},"
        f" {_count_text(switches, 'switch', 'es')}"
    )
    if known:
        source, certainty = known.fabric_source
        print_text(f"  {known.fabric.summary} ({certainty}: {source})")
    if topology.capabilities:
        print_text(f"  the network offers {', '.join(sorted(topology.capabilities))}")
    print_text("")
    rows = [
        (f"{entry['cables']:,}", _rate(entry["capacity"]), format_time(entry["latency"]))
        for entry in _summed(topology.links)
    ]
    if rows:
        columns = ("cables", "each", "latency")
        print_table("network, cables by rate", columns, rows, right=columns)


def _count_text(number: int, what: str, plural: str = "s") -> str:
    return f"{number:,} {what}{'' if number == 1 else plural}"


def _print_devices(interior: NodeTopology) -> None:
    alike = Counter((device.kind, device.product, device.cores) for device in interior.devices)
    rows = [
        (kind, product, str(cores or ""), str(number))
        for (kind, product, cores), number in alike.items()
    ]
    columns = ("device", "product", "cores", "number")
    print_table(
        "inside each node",
        columns,
        rows,
        right=("cores", "number"),
        wrappable=("device", "product"),
    )


def _print_links(interior: NodeTopology, known: MachineSpec | None) -> None:
    """Print both directions of a link as one, and equal links as one row."""
    rates = _rates(known)
    joined = {frozenset((link.source, link.target)): link for link in interior.links}
    alike: dict[TextRow, list[str]] = {}
    for ends, link in joined.items():
        rate = rates.get(ends)
        source = f"{rate.certainty}: {rate.source}" if rate else RATE_FROM_FILE
        row = (link.kind, str(link.count), _rate(link.capacity), source)
        alike.setdefault(row, []).append(f"{link.target}-{link.source}")
    rows = [
        (kind, count, together, _abbreviate(ends), source)
        for (kind, count, together, source), ends in alike.items()
    ]
    columns = ("kind", "cables", "together", "between", SOURCE_COLUMN)
    print_table(
        "links inside",
        columns,
        rows,
        right=("cables", "together"),
        droppable=(SOURCE_COLUMN,),
        wrappable=("between", SOURCE_COLUMN),
    )


def _abbreviate(names: list[str]) -> str:
    rest = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def _print_assumed_costs(topology: Topology) -> None:
    """Print the costs that are assumed where a file has none."""
    rows = [
        (
            _path_title(path_class, memory),
            format_time(line.alpha.value),
            line.rate.source if line.rate is LINK_RATE else _rate(line.rate.value),
            humanize(line.alpha.source),
        )
        for (path_class, memory), cost in assumed_costs(topology).items()
        for line in cost.segments
    ]
    columns = ("path class", "alpha", "rate", "source of alpha")
    print_table("assumed costs of messages", columns, rows, right=("alpha",), wrappable=columns[3:])


def _path_title(path_class: str, memory: str) -> str:
    return path_class if memory == HOST else f"{path_class} ({memory})"


def _print_paths(known: MachineSpec) -> None:
    """Print the cost of every path class by segment: first size, alpha and rate."""
    rows = []
    for (path_class, memory), costs in known.paths.items():
        for line in costs.segments:
            rows.append(
                (
                    _path_title(path_class, memory),
                    format_size(line.min_bytes),
                    format_time(line.alpha.value),
                    _rate(line.rate.value),
                    "staged" if line.staged else "",
                    f"{line.rate.certainty}: {humanize(line.rate.source)}",
                )
            )
    columns = ("path class", "from", "alpha", "rate", "", SOURCE_COLUMN)
    print_table(
        "costs of messages",
        columns,
        rows,
        right=("from", "alpha", "rate"),
        droppable=(SOURCE_COLUMN,),
        wrappable=("path class", SOURCE_COLUMN),
    )


def _print_numbers(known: MachineSpec) -> None:
    """Print the numbers that the tables above leave out."""
    eager = {
        name: number
        for name, number in known.path_values().items()
        if name.endswith("eager below") and number.value
    }
    rows = [
        (name, _number(number), f"{number.certainty}: {humanize(number.source)}")
        for name, number in (known.general_values() | eager).items()
    ]
    print_table(
        "other numbers",
        ("what", "value", "source"),
        rows,
        right=("value",),
        droppable=("source",),
        wrappable=("what", "source"),
    )


def _number(number: SourcedValue) -> str:
    if math.isinf(number.value):
        return "never"
    if number.unit == "s":
        return format_time(number.value)
    if number.unit == "B/s":
        return _rate(number.value)
    return format_size(number.value) if number.unit == "B" else f"{number.value:,.0f}"


def _rate(bandwidth: float) -> str:
    return "inf" if math.isinf(bandwidth) else f"{bandwidth / 1e9:,.4g} GB/s"
