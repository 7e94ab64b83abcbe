"""The axes of a study: what can vary, how values are written, and how they change a machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.base.file_settings import RATE, TIME, Kind, one_of, whole
from tuner.base.units import format_size, format_time
from tuner.core.calibration import Calibration, Estimate, PathCost
from tuner.core.path_classes import BLOCK, PLACEMENTS
from tuner.machines import (
    PCIE_RATES,
    Machine,
    known_gpus,
    with_fabric,
    with_gpu,
    with_nics,
    with_nodes,
    with_nvlink_domain,
    with_pcie,
    with_taper,
)
from tuner.machines.fabric_shapes import format_shape, read_shape
from tuner.mpi_libraries import nccl
from tuner.mpi_libraries.nccl import nominal_nic_rate
from tuner.topology import CUDA, HOST, NETWORK, Link, Placement, Topology

MAX_STUDY_RANKS = 1 << 17  # of one machine of a study
MAX_STUDY_NODES = 1 << 14  # of one machine of a study

AxisValue = float | str
GridPoint = Mapping[str, AxisValue]  # axis -> seconds, bytes per second, number or name


@dataclass(frozen=True)
class Axis:
    """An axis of a study: how its values are read and written.

    kind        of a value in a study file
    format      as text for people
    encode      as a study file has it, without loss
    """

    kind: Kind
    format: Callable[[AxisValue], str]
    encode: Callable[[AxisValue], AxisValue]


def _read_taper(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 64:
        raise InputError(
            f"{what} must be a number from 1 (no taper) to 64, not {shortened_repr(value)}"
        )
    return float(value)


def _read_nccl_version(what: str, value: Any) -> str:
    """Return a version as written; raise InputError unless it is known how it chooses."""
    if not isinstance(value, str) or nccl.known_release(value) not in nccl.RELEASES:
        raise InputError(
            f"{what} must be three numbers, a version of NCCL from {next(iter(nccl.RELEASES))} on"
            f" such as 2.26.2, not {shortened_repr(value)}"
        )
    return value


class LineRate(float):
    """The bytes per second that a port of some line rate reaches.

    text    the line rate as written, such as `400Gb/s`
    """

    text: str

    def __new__(cls, reached: float, text: str) -> LineRate:
        """Return the rate that is reached, with the line rate's text."""
        made = super().__new__(cls, reached)
        made.text = text
        return made

    def __reduce__(self) -> tuple[type[LineRate], tuple[float, str]]:
        return LineRate, (float(self), self.text)


def line_rate_efficiency(machine: Machine) -> float:
    """Return how much of their line rate the NICs of a machine reach.

    It is 1 for a machine without costs of its own, whose file has the rates that count.
    """
    ports = set(machine.topology.ports)
    link = next((one for one in machine.topology.links if one.source in ports), None)
    if machine.spec is None or link is None:
        return 1.0
    rate = link.capacity / link.count
    return rate / nominal_nic_rate(rate)


def format_rate(rate: float) -> str:
    """Return bytes per second as text for people, such as `42.6GB/s`."""
    return f"{rate / 1e9:.4g}GB/s"


def _format_bandwidth(rate: AxisValue) -> str:
    reached = format_rate(float(rate))
    return f"{rate.text} ({reached})" if isinstance(rate, LineRate) else reached


def _encode_bandwidth(rate: AxisValue) -> AxisValue:
    return rate.text if isinstance(rate, LineRate) else f"{rate!r}B/s"


def _format_number(value: AxisValue) -> str:
    return str(int(value))


TAPER = Kind("number", _read_taper, {"type": "number", "minimum": 1, "maximum": 64})
GPU = Kind(  # the products are read when one is asked for
    "choice", lambda what, value: one_of(tuple(known_gpus())).read(what, value), {"type": "string"}
)
FABRIC = Kind("choice", read_shape, {"type": "string"})
NCCL_VERSION = Kind("name", _read_nccl_version, {"type": "string"})
_NUMBER = Axis(whole(MAX_STUDY_RANKS), _format_number, int)
_LATENCY = Axis(TIME, lambda value: format_time(float(value)), "{!r}s".format)
_BANDWIDTH = Axis(RATE, _format_bandwidth, _encode_bandwidth)

AXES: Mapping[str, Axis] = {
    "nodes": _NUMBER,  # presets and one-switch topologies can also grow
    "ppn": _NUMBER,
    "nics": _NUMBER,  # per node
    "latency": _LATENCY,  # between two nodes on one switch or joined by one link
    "bandwidth": _BANDWIDTH,  # of the links at nodes; all cables of a link together
    "uplink_latency": _LATENCY,  # of each link between switches
    "uplink_bandwidth": _BANDWIDTH,
    "taper": Axis(TAPER, lambda value: f"{value:g}", float),  # of a fat tree: down over up
    "fabric": Axis(FABRIC, format_shape, str),
    "gpu": Axis(GPU, str, str),
    "nvlink_domain": _NUMBER,  # GPUs joined by NVSwitches; the number of ranks stays
    "pcie": Axis(whole(max(PCIE_RATES), min(PCIE_RATES)), _format_number, int),
    "placement": Axis(one_of(PLACEMENTS), str, str),
    "memory": Axis(one_of((HOST, CUDA)), str, str),  # of the ranks' buffers
    "nccl_version": Axis(NCCL_VERSION, str, str),  # that chooses among NCCL's algorithms
}
BANDWIDTH_AXES = ("bandwidth", "uplink_bandwidth")
UPLINK_AXES = ("uplink_latency", "uplink_bandwidth")
NODE_LINK_AXES = ("latency", "bandwidth")
SIZE_AXIS = "nbytes"  # the message size, on which the best candidate depends as on the axes
MACHINE_AXIS = "machine"  # of a study that compares several
NCCL_AXIS = "nccl_version"
AXIS_FORMATTERS: Mapping[str, Callable[[AxisValue], str]] = {
    **{name: axis.format for name, axis in AXES.items()},
    SIZE_AXIS: lambda value: format_size(float(value)),
    MACHINE_AXIS: str,
}
MACHINE_AXES: Mapping[str, Callable[[Machine, AxisValue], Machine]] = {  # in this order
    "gpu": lambda machine, value: with_gpu(machine, str(value)),
    "nvlink_domain": lambda machine, value: with_nvlink_domain(machine, int(value)),
    "pcie": lambda machine, value: with_pcie(machine, int(value)),
    "nics": lambda machine, value: with_nics(machine, int(value)),
    "fabric": lambda machine, value: with_fabric(machine, str(value)),
    "taper": lambda machine, value: with_taper(machine, float(value)),
}


def apply_axes(machine: Machine, at: GridPoint) -> Machine:
    """Return the machine at one point of the grid.

    Raises InputError for more nodes than a topology that cannot grow has, and for an axis of
    something that the machine does not have.
    """
    machine = _with_nodes(machine, int(at["nodes"]))
    for name, remade in MACHINE_AXES.items():
        if name in at:
            if machine.spec is None:
                raise InputError(
                    f"topology {machine.name} has no costs of its own: {name} can be varied in"
                    " presets and in files of machines with costs"
                )
            machine = remade(machine, at[name])
    if not {*UPLINK_AXES, *NODE_LINK_AXES} & at.keys():
        return machine
    return replace(
        machine, topology=_with_links(machine.topology, at), calibration=_with_network(machine, at)
    )


def narrow_uplinks_warning(topology: Topology, axes: Mapping[str, Sequence[AxisValue]]) -> str:
    """Return a warning if links at nodes become faster than those between switches, else ""."""
    ports = set(topology.ports)
    inner = [one for one in topology.links if not {one.source, one.target} & ports]
    if not inner or "bandwidth" not in axes:
        return ""
    own = min(link.capacity / link.count for link in inner)
    uplink = max(map(float, axes.get("uplink_bandwidth", (own,))))
    fastest = max(map(float, axes["bandwidth"]))
    if fastest <= uplink:
        return ""
    return (
        f"caution: links at nodes have up to {_format_bandwidth(fastest)}, and each cable between"
        f" switches {_format_bandwidth(uplink)}: vary uplink_bandwidth, too, if it grows with them"
    )


def place_ranks(machine: Machine, at: GridPoint) -> Placement:
    """Return the placement of the ranks on a machine that `apply_axes` returned."""
    kind = str(at.get("placement", BLOCK))
    return Placement.from_name(kind, machine.topology, int(at["ppn"]))


def nccl_release(at: GridPoint) -> str:
    """Return the release of NCCL that chooses at a point, the first of those that choose alike."""
    return nccl.version_of(f"nccl {at.get(NCCL_AXIS, nccl.CURRENT_VERSION)}")


def _with_links(topology: Topology, at: GridPoint) -> Topology:
    ports = set(topology.ports)
    inner = {link for link in topology.links if not {link.source, link.target} & ports}
    if not inner and set(UPLINK_AXES) & at.keys():
        raise InputError(
            "uplink_latency and uplink_bandwidth are of links between switches: choose a topology"
            f" that has some, not {topology.name}"
        )
    if len(topology.links) == len(inner) and set(NODE_LINK_AXES) & at.keys():
        raise InputError(
            "latency and bandwidth are of links at nodes: choose a topology that has some, not"
            f" {topology.name}"
        )
    changed = []
    for link in topology.links:
        latency, capacity = (
            at.get(name) for name in (UPLINK_AXES if link in inner else NODE_LINK_AXES)
        )
        changed.append(_with_link_values(link, ports, latency, capacity))
    return replace(topology, links=tuple(changed))


def _with_link_values(
    link: Link, ports: set[str], latency: AxisValue | None, capacity: AxisValue | None
) -> Link:
    """Return a link with the latency and capacity asked for.

    A link between a node and a switch gets half of the latency from node to node.
    """
    half = (link.source in ports) != (link.target in ports)
    own = link.latency if latency is None else float(latency) / (2 if half else 1)
    width = link.capacity if capacity is None else float(capacity)
    return replace(link, latency=own, capacity=width)


def _with_network(machine: Machine, at: GridPoint) -> Calibration:
    """Return the calibration with its cost of the network class, if any, adapted to the links.

    A latency asked for is that of the links and no longer part of alpha; beta is scaled by how much
    slower the links are.
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


def _network_cost(cost: PathCost, latency: AxisValue | None, slowdown: float) -> PathCost:
    """Return the cost with beta scaled and, if a latency is given, a smaller alpha.

    The alpha of the smallest messages, now the latency of the links, is taken off all segments. Lag
    stays, as it replaces alpha for long messages: both are what the ends do before and after the
    network has its part.
    """
    own = cost.segments[0].alpha.value if latency is not None else 0.0
    segments = tuple(
        replace(
            segment,
            alpha=Estimate.exact(max(0.0, segment.alpha.value - own)),
            beta=Estimate.exact(segment.beta.value * slowdown),
        )
        for segment in cost.segments
    )
    return replace(cost, segments=segments)


def _with_nodes(machine: Machine, nodes: int) -> Machine:
    topology = machine.topology
    if nodes == len(topology.nodes):
        return machine
    if machine.spec is not None:
        return replace(with_nodes(machine, nodes), calibration=machine.calibration)
    if nodes > len(topology.nodes):
        return replace(machine, topology=_add_nodes(topology, nodes))
    gone = {port for node in topology.nodes[nodes:] for port in node.ports}
    links = tuple(link for link in topology.links if not {link.source, link.target} & gone)
    return replace(machine, topology=replace(topology, nodes=topology.nodes[:nodes], links=links))


def _add_nodes(topology: Topology, nodes: int) -> Topology:
    """Add nodes like the present ones to the only switch; InputError where that is not possible."""
    first, cables = topology.nodes[0], _cables(topology)
    alike = all(
        (n.cores, n.node_topology) == (first.cores, first.node_topology) for n in topology.nodes
    )
    hung = len(topology.switches) == 1 and all(one == cables[0] for one in cables)
    if not alike or not hung:
        raise InputError(
            f"topology {topology.name} has {len(topology.nodes)} nodes, not {nodes}: only one in"
            " which all nodes hang alike on one switch, and a preset, can grow: write the largest"
            " number of nodes into its file, and vary downwards"
        )
    names = [f"{topology.name}+{number}" for number in range(len(topology.nodes), nodes)]
    new = tuple(replace(first, name=name) for name in names)
    links = tuple(
        replace(cable, source=node.ports[port]) if up else replace(cable, target=node.ports[port])
        for node in new
        for port, up, cable in cables[0]
    )
    return replace(topology, nodes=topology.nodes + new, links=topology.links + links)


def _cables(topology: Topology) -> list[list[tuple[int, bool, Link]]]:
    """Return the links of each node: number of the port, whether upwards, link without the port."""
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
