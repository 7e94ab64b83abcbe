"""Topologies from files: one module per source."""

from tuner.topology.readers.combined import combine
from tuner.topology.readers.probed_topology import (
    as_probed,
    described,
    given_calibration,
    single_node,
)
from tuner.topology.readers.serialization import topology_from_record, topology_record

__all__ = [
    "as_probed",
    "combine",
    "described",
    "given_calibration",
    "single_node",
    "topology_from_record",
    "topology_record",
]
