"""Readers of topologies from files, one module per format."""

from tuner.topology.readers.combined import combine
from tuner.topology.readers.probed_topology import (
    nominal_calibration,
    single_node_topology,
    single_switch_topology,
    topology_for,
)
from tuner.topology.readers.serialization import topology_from_record, topology_to_record

__all__ = [
    "combine",
    "nominal_calibration",
    "single_node_topology",
    "single_switch_topology",
    "topology_for",
    "topology_from_record",
    "topology_to_record",
]
