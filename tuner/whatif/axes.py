"""The axes of a study: what may vary, how its values are written, what they make of a machine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from tuner.base.errors import InputError, quoted
from tuner.base.units import format_size, format_time, parse_bandwidth, parse_time
from tuner.core.calibration import Calibration, Estimate, PathCost
from tuner.core.path_classes import CONSECUTIVE, PLACEMENTS
from tuner.machines import GPUS, Machine, with_gpu, with_nics, with_nodes, with_taper
from tuner.topology import CUDA, HOST, NETWORK, Link, Placement, Topology

MOST_RANKS = 1 << 17  # of one machine of a study
MOST_NODES = 1 << 14  # likewise

Value = float | str
Place = Mapping[str, Value]  # axis -> value: seconds, bytes per second, a number, or a word


@dataclass(frozen=True)
class Axis:
    """How a value of this axis is read from a study file and printed; `write` loses nothing."""

    parse: Callable[[object], Value]
    format: Callable[[Value], str]
    write: Callable[[Value], Value]


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_RANKS:
        raise InputError(f"{quoted(value)} is not a whole number from 1 to {MOST_RANKS}")
    return value


def _ratio(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 64:
        raise InputError(f"{quoted(value)} is not a number from 1 (no taper) to 64")
    return float(value)


def _one_of(known: Collection[str]) -> Axis:
    def parse(value: object) -> str:
        if not isinstance(value, str) or value not in known:
            raise InputError(f"{quoted(value)} is none of {', '.join(known)}")
        return value

    return Axis(parse, str, str)


def _format_bandwidth(rate: Value) -> str:
    return f"{float(rate) / 1e9:.4g}GB/s"


_NUMBER = Axis(_whole, lambda value: str(int(value)), int)
_LATENCY = Axis(parse_time, lambda value: format_time(float(value)), "{!r}s".format)
_BANDWIDTH = Axis(parse_bandwidth, _format_bandwidth, "{!r}B/s".format)

AXES: Mapping[str, Axis] = {
    "nodes": _NUMBER,  # a preset and a one-switch topology also grow
    "ppn": _NUMBER,
    "nics": _NUMBER,  # per node
    "latency": _LATENCY,  # between two nodes of one switch, or joined by one link
    "bandwidth": _BANDWIDTH,  # of the links at nodes, all cables of one together
    "uplink_latency": _LATENCY,  # of each link between switches
    "uplink_bandwidth": _BANDWIDTH,
    "taper": Axis(_ratio, lambda value: f"{value:g}", float),  # down over up, of a fat tree
    "gpu": _one_of(GPUS),
    "placement": _one_of(PLACEMENTS),
    "memory": _one_of((HOST, CUDA)),  # where the buffers of the ranks lie
}
UPLINK = ("uplink_latency", "uplink_bandwidth")
AT_NODES = ("latency", "bandwidth")
NBYTES = "nbytes"  # the message size, which a choice depends on as it does on the axes
FORMATS: Mapping[str, Callable[[Value], str]] = {
    **{name: axis.format for name, axis in AXES.items()},
    NBYTES: lambda value: format_size(float(value)),
}
_REMADE: Mapping[str, Callable[[Machine, Value], Machine]] = {
    "gpu": lambda machine, value: with_gpu(machine, str(value)),
    "nics": lambda machine, value: with_nics(machine, int(value)),
    "taper": lambda machine, value: with_taper(machine, float(value)),
}


def varied(machine: Machine, at: Place) -> Machine:
    """The machine at one place of the axes.

    Raises InputError for more nodes than a topology that cannot grow has, and for an axis of what
    the machine does not have.
    """
    machine = _with_nodes(machine, int(at["nodes"]))
    for name, remade in _REMADE.items():
        if name in at:
            if machine.design is None:
                raise InputError(
                    f"topology {machine.name} is no preset: {name} can be varied in presets"
                )
            machine = remade(machine, at[name])
    if not {*UPLINK, *AT_NODES} & at.keys():
        return machine
    return replace(
        machine, topology=_with_links(machine.topology, at), calibration=_with_network(machine, at)
    )


def placed(machine: Machine, at: Place) -> Placement:
    """The ranks on a machine that was `varied`."""
    kind = str(at.get("placement", CONSECUTIVE))
    return Placement.of(kind, machine.topology, int(at["ppn"]))


def _with_links(topology: Topology, at: Place) -> Topology:
    ports = set(topology.ports)
    inner = {link for link in topology.links if not {link.source, link.target} & ports}
    if not inner and set(UPLINK) & at.keys():
        raise InputError(
            f"topology {topology.name} has no links between switches: there is no"
            " uplink_latency or uplink_bandwidth to vary"
        )
    if len(topology.links) == len(inner) and set(AT_NODES) & at.keys():
        raise InputError(
            f"topology {topology.name} has no links at its nodes: there is no latency or bandwidth"
            " to vary"
        )
    changed = []
    for link in topology.links:
        latency, capacity = (at.get(name) for name in (UPLINK if link in inner else AT_NODES))
        changed.append(_changed(link, ports, latency, capacity))
    return replace(topology, links=tuple(changed))


def _changed(link: Link, ports: set[str], latency: Value | None, capacity: Value | None) -> Link:
    """A node's link to a switch has half of the latency from node to node."""
    half = (link.source in ports) != (link.target in ports)
    own = link.latency if latency is None else float(latency) / (2 if half else 1)
    width = link.capacity if capacity is None else float(capacity)
    return replace(link, latency=own, capacity=width)


def _with_network(machine: Machine, at: Place) -> Calibration:
    """A calibration with a cost of its own for the network follows its links.

    One message between nodes gains as many seconds as asked for, and keeps its ports busy as much
    longer as its link is slower.
    """
    costs, topology = machine.calibration, machine.topology
    ports = set(topology.ports)
    link = next((one for one in topology.links if one.source in ports), None)
    if link is None:
        return costs
    slower = link.capacity / float(at["bandwidth"]) if "bandwidth" in at else 1.0
    paths = dict(costs.paths)
    for key, cost in costs.paths.items():
        if key[0] == NETWORK:
            paths[key] = _network_cost(cost, at.get("latency"), slower)
    return replace(costs, paths=paths)


def _network_cost(cost: PathCost, latency: Value | None, slower: float) -> PathCost:
    """The links have the latency asked for; what is left of alpha comes on top.

    Lag stays, as alpha does, which it becomes where messages are long: both are what the ends do
    before and after the network has its part.
    """
    own = cost.segments[0].alpha.value if latency is not None else 0.0
    segments = tuple(
        replace(
            segment,
            alpha=Estimate.exact(max(0.0, segment.alpha.value - own)),
            beta=Estimate.exact(segment.beta.value * slower),
        )
        for segment in cost.segments
    )
    return replace(cost, segments=segments)


def _with_nodes(machine: Machine, wanted: int) -> Machine:
    topology = machine.topology
    if wanted == len(topology.nodes):
        return machine
    if machine.design is not None:
        return with_nodes(machine, wanted)
    if wanted > len(topology.nodes):
        return replace(machine, topology=_grown(topology, wanted))
    gone = {port for node in topology.nodes[wanted:] for port in node.ports}
    links = tuple(link for link in topology.links if not {link.source, link.target} & gone)
    return replace(machine, topology=replace(topology, nodes=topology.nodes[:wanted], links=links))


def _grown(topology: Topology, wanted: int) -> Topology:
    """More nodes like the present ones on their one switch."""
    first, cables = topology.nodes[0], _cables(topology)
    alike = all((n.cores, n.interior) == (first.cores, first.interior) for n in topology.nodes)
    hung = len(topology.switches) == 1 and all(one == cables[0] for one in cables)
    if not alike or not hung:
        raise InputError(
            f"topology {topology.name} has {len(topology.nodes)} nodes, not {wanted}: only one in"
            " which all nodes hang alike on one switch, and a preset, can grow: write the largest"
            " number of nodes into its file, and vary downwards"
        )
    names = [f"{topology.name}+{number}" for number in range(len(topology.nodes), wanted)]
    new = tuple(replace(first, name=name) for name in names)
    links = tuple(
        replace(cable, source=node.ports[port]) if up else replace(cable, target=node.ports[port])
        for node in new
        for port, up, cable in cables[0]
    )
    return replace(topology, nodes=topology.nodes + new, links=topology.links + links)


def _cables(topology: Topology) -> list[list[tuple[int, bool, Link]]]:
    """Of each node its links: number of the port, whether upwards, the link without the port."""
    port_of = {
        port: (number, i)
        for number, node in enumerate(topology.nodes)
        for i, port in enumerate(node.ports)
    }
    cables: list[list[tuple[int, bool, Link]]] = [[] for _ in topology.nodes]
    for link in topology.links:
        for up, end in ((True, link.source), (False, link.target)):
            if end in port_of:
                number, port = port_of[end]
                bare = replace(link, source="") if up else replace(link, target="")
                cables[number].append((port, up, bare))
    return [sorted(one, key=lambda cable: cable[:2]) for one in cables]
