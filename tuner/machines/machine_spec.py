"""From the plan of a machine to the topology and the calibration that a simulation needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.base.errors import InputError
from tuner.core.calibration import Calibration
from tuner.machines.node_parts import NodeSpec
from tuner.machines.provenance import SourcedPathCost, SourcedReduction, SourcedValue
from tuner.topology import Node, Topology
from tuner.topology.readers.fabrics import Fabric, fabric_topology

MAX_MACHINE_NODES = 1 << 16
PathKey = tuple[str, str]  # path class, kind of memory


@dataclass(frozen=True)
class MachineSpec:
    """Everything a preset says, with sources; `machine` builds it for any number of nodes.

    nodes       how many there are in reality
    product     of the GPUs
    fabric      with the values of `port` and `switch_latency`, which carry their sources
    shape       where the shape of the fabric comes from: (source, certainty)
    port        bytes per second of one NIC in each direction
    hop         seconds of one switch crossing
    offers      what the network can do besides -> (source, certainty)
    wires       links between switches, where they are not like the ports
    """

    name: str
    title: str
    source: str
    nodes: SourcedValue
    product: str
    node_spec: NodeSpec
    fabric: Fabric
    fabric_source: tuple[str, str]
    nic_rate: SourcedValue
    switch_latency: SourcedValue
    paths: Mapping[PathKey, SourcedPathCost]
    reduction: Mapping[str, SourcedReduction]
    memory_bandwidth: SourcedValue
    stripe_from: SourcedValue
    pointer_query: SourcedValue
    library: str
    capabilities: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    switch_link_rates: Mapping[str, SourcedValue] = field(default_factory=dict)

    @property
    def cores(self) -> int:
        """Cores of a node."""
        return sum(device.cores for device in self.node_spec.devices)

    def sourced_values(self) -> dict[str, SourcedValue]:
        """Every number of the machine by name, with its source."""
        return self.general_values() | self.link_values() | self.path_values()

    def general_values(self) -> dict[str, SourcedValue]:
        """All that belongs to no single link or path class."""
        found = {
            "nodes": self.nodes,
            "NIC port": self.nic_rate,
            "switch crossing": self.switch_latency,
        }
        found |= {f"fabric, {name}": number for name, number in self.switch_link_rates.items()}
        found |= {
            "host memory": self.memory_bandwidth,
            "striped from": self.stripe_from,
            "pointer query": self.pointer_query,
        }
        for device, reduction in self.reduction.items():
            for name, number in reduction.sourced_values().items():
                found[f"reduction on {device}: {name}"] = number
        return found

    def link_values(self) -> dict[str, SourcedValue]:
        """Of the links inside a node."""
        found = {}
        for edge in self.node_spec.device_links:
            name = f"{edge.a} - {edge.b}, {edge.link_type.kind} x {edge.count}"
            found[f"{name}: rate"] = edge.link_type.rate
            found[f"{name}: latency"] = edge.link_type.latency
        return found

    def path_values(self) -> dict[str, SourcedValue]:
        """Of the costs of messages."""
        return {
            f"{path_class} ({memory}): {name}": number
            for (path_class, memory), costs in self.paths.items()
            for name, number in costs.sourced_values().items()
        }


@dataclass(frozen=True)
class Machine:
    """Where ranks live and what their messages cost there.

    `design` is what a preset was built from; None for a machine that came from a file.
    """

    name: str
    topology: Topology
    calibration: Calibration
    spec: MachineSpec | None = None


def build_machine(spec: MachineSpec, nodes: int | None = None) -> Machine:
    """The machine with so many nodes, all of those it really has without a number.

    Raises InputError for a number that is not from 1 to MOST_NODES.
    """
    number = int(spec.nodes.value) if nodes is None else nodes
    if not 1 <= number <= MAX_MACHINE_NODES:
        raise InputError(f"a machine has 1 to {MAX_MACHINE_NODES} nodes, not {number}")
    interior = spec.node_spec.to_node_topology()
    hosts = [Node(f"node{i}", spec.cores, interior) for i in range(number)]
    topology = fabric_topology(
        spec.name,
        hosts,
        spec.fabric,
        memory_bandwidth=spec.memory_bandwidth.value,
        offers=frozenset(spec.capabilities),
    )
    return Machine(spec.name, topology, build_calibration(spec), spec)


def build_calibration(spec: MachineSpec) -> Calibration:
    """The costs alone; their sources are in the provenance."""
    return Calibration(  # GPUs and CPUs copy inside the node, NICs by themselves to the others
        spec.name,
        spec.library,
        {key: costs.to_path_cost() for key, costs in spec.paths.items()},
        {name: reduction.to_reduction_cost() for name, reduction in spec.reduction.items()},
        network_port=True,
        stripe_from=spec.stripe_from.value,
        pointer_query=spec.pointer_query.value,
        provenance={
            name: f"{number.certainty}: {number.source}"
            for name, number in spec.sourced_values().items()
        },
    )
