"""Machine specifications, and the topologies and calibrations that are built from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.base.errors import InputError
from tuner.core.calibration import Calibration
from tuner.core.collective import Collective
from tuner.machines.gpus import GpuSpec
from tuner.machines.model_accuracy import (
    PREDICTION_MODELS,
    SIMULATION,
    Calls,
    ModelAccuracy,
    accuracy_sentence,
    entry_of,
)
from tuner.machines.node_parts import NodeSpec
from tuner.machines.provenance import SourcedPathCost, SourcedReduction, SourcedValue
from tuner.topology import GPU, NIC, NcclCosts, Node, Topology
from tuner.topology.readers.fabrics import Fabric, fabric_topology

MAX_MACHINE_NODES = 1 << 16
PathKey = tuple[str, str]  # (path class, kind of memory)


@dataclass(frozen=True)
class MachineSpec:
    """The specification of a machine, with sources; `build_machine` builds any number of nodes.

    nodes               real number of nodes
    gpu                 product of the GPUs; None without GPUs
    node_spec           interior of a node
    fabric              network; its numbers are those of `nic_rate`, `switch_latency` and
                        `switch_link_rates`, which hold the sources
    fabric_source       (source, certainty) of the shape of the fabric
    nic_rate            bytes per second of one NIC in each direction
    switch_latency      seconds of one switch crossing
    paths               cost of messages by path class and memory
    reduction           cost of reductions by device
    striping_threshold         bytes from which a message is striped over all NICs
    pointer_query       seconds of finding out which memory a pointer belongs to
    library             library whose costs these are
    capabilities        what the network can do besides moving messages -> (source, certainty)
    switch_link_rates   rates of links between switches, where they differ from the NICs'
    own_gpus            GPU products that its file describes
    accuracy            how far predictions were off measured collectives, by model
    nccl                fields of `NcclCosts`; empty: those of other GPUs of the kind
    """

    name: str
    title: str
    source: str
    nodes: SourcedValue
    gpu: GpuSpec | None
    node_spec: NodeSpec
    fabric: Fabric
    fabric_source: tuple[str, str]
    nic_rate: SourcedValue
    switch_latency: SourcedValue
    paths: Mapping[PathKey, SourcedPathCost]
    reduction: Mapping[str, SourcedReduction]
    memory_bandwidth: SourcedValue
    striping_threshold: SourcedValue
    pointer_query: SourcedValue
    library: str
    capabilities: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    switch_link_rates: Mapping[str, SourcedValue] = field(default_factory=dict)
    own_gpus: Mapping[str, GpuSpec] = field(default_factory=dict)
    accuracy: Mapping[str, ModelAccuracy] = field(default_factory=dict)
    nccl: Mapping[str, SourcedValue] = field(default_factory=dict)

    @property
    def cores(self) -> int:
        """Number of cores of a node, at least 1."""
        return sum(device.cores for device in self.node_spec.devices) or 1

    @property
    def product(self) -> str:
        """Name of the GPUs; "" without GPUs."""
        return self.gpu.product if self.gpu else ""

    def sourced_values(self) -> dict[str, SourcedValue]:
        """Return every number of the machine by name, with its source."""
        return self.general_values() | self.link_values() | self.path_values()

    def general_values(self) -> dict[str, SourcedValue]:
        """Return the numbers that do not belong to a single link or path class."""
        found = {
            "nodes": self.nodes,
            "NIC port": self.nic_rate,
            "switch crossing": self.switch_latency,
        }
        found |= {f"fabric, {name}": number for name, number in self.switch_link_rates.items()}
        found |= {
            "host memory": self.memory_bandwidth,
            "striped from": self.striping_threshold,
            "pointer query": self.pointer_query,
        }
        for device, reduction in self.reduction.items():
            for name, number in reduction.sourced_values().items():
                found[f"reduction on {device}: {name}"] = number
        return found | {f"NCCL: {name}": number for name, number in self.nccl.items()}

    def link_values(self) -> dict[str, SourcedValue]:
        """Return the numbers of the links inside a node."""
        found = {}
        for edge in self.node_spec.device_links:
            name = f"{edge.a} - {edge.b}, {edge.link_type.kind} x {edge.count}"
            found[f"{name}: rate"] = edge.link_type.rate
            found[f"{name}: latency"] = edge.link_type.latency
        return found

    def path_values(self) -> dict[str, SourcedValue]:
        """Return the numbers of the costs of messages."""
        return {
            f"{path_class} ({memory}): {name}": number
            for (path_class, memory), costs in self.paths.items()
            for name, number in costs.sourced_values().items()
        }


@dataclass(frozen=True)
class Machine:
    """A machine: its topology and the costs of messages on it.

    spec    what it was built from; None for a machine from a topology alone
    record  JSON that `spec` was read from, if it is not a preset's
    """

    name: str
    topology: Topology
    calibration: Calibration
    spec: MachineSpec | None = None
    record: Mapping[str, Any] | None = field(default=None, compare=False)

    def accuracy_sentence(self, predicted: Mapping[str, Calls], *, changed: bool = False) -> str:
        """Return a sentence on how far predictions were off on it.

        predicted   calls by the model that predicted their times; none of a model: any calls
        changed     the times are of machines that differ from it in costs
        """
        known = self.spec.accuracy if self.spec else {}
        name = f"{self.name} as it is" if changed else self.name
        return accuracy_sentence(name, known, predicted)

    def with_calibration(self, calibration: Calibration) -> Machine:
        """Return the machine with costs of messages with which no simulation was compared."""
        if self.spec is None:
            return replace(self, calibration=calibration)
        known = {name: one for name, one in self.spec.accuracy.items() if name != SIMULATION}
        return replace(self, calibration=calibration, spec=replace(self.spec, accuracy=known))

    def median_errors(self, collective: Collective) -> dict[str, float]:
        """Return the median error, a fraction, of each model compared for a collective."""
        known = self.spec.accuracy if self.spec else {}
        entries = {model: entry_of(model, collective) for model in PREDICTION_MODELS}
        return {model: known[own].median for model, own in entries.items() if own in known}


def build_machine(spec: MachineSpec, nodes: int | None = None) -> Machine:
    """Return the machine with `nodes` nodes; None for the real number.

    Raises InputError unless the number is from 1 to `MAX_MACHINE_NODES`.
    """
    number = int(spec.nodes.value) if nodes is None else nodes
    if not 1 <= number <= MAX_MACHINE_NODES:
        raise InputError(f"a machine has 1 to {MAX_MACHINE_NODES} nodes, not {number}")
    interior = spec.node_spec.to_node_topology()
    hosts = [Node(f"node{i}", spec.cores, interior) for i in range(number)]
    costs = {name: one.value for name, one in spec.nccl.items()}
    topology = fabric_topology(
        spec.name,
        hosts,
        spec.fabric,
        memory_bandwidth=spec.memory_bandwidth.value,
        capabilities=frozenset(spec.capabilities),
        nccl=NcclCosts(**costs) if costs else None,
        cautions=tuple(_cautions(spec)),
    )
    return Machine(spec.name, topology, build_calibration(spec), spec)


def _cautions(spec: MachineSpec) -> Iterator[str]:
    """Yield what of a machine has no effect."""
    gpus, nics = (len(spec.node_spec.device_names(kind)) for kind in (GPU, NIC))
    if 0 < gpus < nics:
        yield (
            f"a node of {spec.name} has {nics} NICs for {gpus} GPUs, of which each sends through"
            f" one: {nics - gpus} carry nothing from the memory of GPUs"
        )


def build_calibration(spec: MachineSpec) -> Calibration:
    """Return the costs of a machine, with their sources as provenance."""
    return Calibration(  # GPUs and CPUs copy inside the node; NICs send to other nodes on their own
        spec.name,
        spec.library,
        {key: costs.to_path_cost() for key, costs in spec.paths.items()},
        {name: reduction.to_reduction_cost() for name, reduction in spec.reduction.items()},
        separate_network_port=True,
        striping_threshold=spec.striping_threshold.value,
        pointer_query_seconds=spec.pointer_query.value,
        provenance={
            name: f"{number.certainty}: {number.source}"
            for name, number in spec.sourced_values().items()
        },
    )
