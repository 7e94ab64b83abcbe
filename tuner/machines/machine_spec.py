"""From the plan of a machine to the topology and the calibration that a simulation needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.base.errors import InputError
from tuner.core.calibration import Calibration
from tuner.machines.node_parts import Inside
from tuner.machines.provenance import Costs, Reduction, Sourced
from tuner.topology import Node, Topology
from tuner.topology.readers.fabrics import Fabric, fabric_topology

MOST_NODES = 1 << 16
PathKey = tuple[str, str]  # path class, kind of memory


@dataclass(frozen=True)
class Design:
    """Everything a preset says, with sources; `machine` builds it for any number of nodes.

    nodes       how many there are in reality
    product     of the GPUs
    fabric      with the values of `port` and `hop`, which carry their sources
    shape       where the shape of the fabric comes from: (source, certainty)
    port        bytes per second of one NIC in each direction
    hop         seconds of one switch crossing
    offers      what the network can do besides -> (source, certainty)
    wires       links between switches, where they are not like the ports
    """

    name: str
    title: str
    source: str
    nodes: Sourced
    product: str
    inside: Inside
    fabric: Fabric
    shape: tuple[str, str]
    port: Sourced
    hop: Sourced
    paths: Mapping[PathKey, Costs]
    reduction: Mapping[str, Reduction]
    memory: Sourced
    stripe_from: Sourced
    pointer_query: Sourced
    library: str
    offers: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    wires: Mapping[str, Sourced] = field(default_factory=dict)

    @property
    def cores(self) -> int:
        """Cores of a node."""
        return sum(device.cores for device in self.inside.devices)

    def numbers(self) -> dict[str, Sourced]:
        """Every number of the machine by name, with its source."""
        return self.general() | self.of_links() | self.of_paths()

    def general(self) -> dict[str, Sourced]:
        """All that belongs to no single link or path class."""
        found = {"nodes": self.nodes, "NIC port": self.port, "switch crossing": self.hop}
        found |= {f"fabric, {name}": number for name, number in self.wires.items()}
        found |= {
            "host memory": self.memory,
            "striped from": self.stripe_from,
            "pointer query": self.pointer_query,
        }
        for device, reduction in self.reduction.items():
            for name, number in reduction.numbers().items():
                found[f"reduction on {device}: {name}"] = number
        return found

    def of_links(self) -> dict[str, Sourced]:
        """Of the links inside a node."""
        found = {}
        for edge in self.inside.edges:
            name = f"{edge.a} - {edge.b}, {edge.cable.kind} x {edge.count}"
            found[f"{name}: rate"] = edge.cable.rate
            found[f"{name}: latency"] = edge.cable.latency
        return found

    def of_paths(self) -> dict[str, Sourced]:
        """Of the costs of messages."""
        return {
            f"{path_class} ({memory}): {name}": number
            for (path_class, memory), costs in self.paths.items()
            for name, number in costs.numbers().items()
        }


@dataclass(frozen=True)
class Machine:
    """Where ranks live and what their messages cost there.

    `design` is what a preset was built from; None for a machine that came from a file.
    """

    name: str
    topology: Topology
    calibration: Calibration
    design: Design | None = None


def machine(design: Design, nodes: int | None = None) -> Machine:
    """The machine with so many nodes, all of those it really has without a number.

    Raises InputError for a number that is not from 1 to MOST_NODES.
    """
    number = int(design.nodes.value) if nodes is None else nodes
    if not 1 <= number <= MOST_NODES:
        raise InputError(f"a machine has 1 to {MOST_NODES} nodes, not {number}")
    interior = design.inside.interior()
    hosts = [Node(f"node{i}", design.cores, interior) for i in range(number)]
    topology = fabric_topology(
        design.name,
        hosts,
        design.fabric,
        memory_bandwidth=design.memory.value,
        offers=frozenset(design.offers),
    )
    return Machine(design.name, topology, calibration(design), design)


def calibration(design: Design) -> Calibration:
    """The costs alone; their sources are in the provenance."""
    return Calibration(  # GPUs and CPUs copy inside the node, NICs by themselves to the others
        design.name,
        design.library,
        {key: costs.path_cost() for key, costs in design.paths.items()},
        {name: reduction.reduction_cost() for name, reduction in design.reduction.items()},
        network_port=True,
        stripe_from=design.stripe_from.value,
        pointer_query=design.pointer_query.value,
        provenance={
            name: f"{number.certainty}: {number.source}"
            for name, number in design.numbers().items()
        },
    )
