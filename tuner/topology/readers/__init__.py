"""Topologies from files: one module per source."""

from tuner.topology.readers.calibrated import as_probed, described, given_calibration, single_node
from tuner.topology.readers.combined import combine
from tuner.topology.readers.formats import FORMATS, MOST_CHARACTERS, load_topology, parse_topology
from tuner.topology.readers.record import topology_from_record, topology_record

__all__ = [
    "FORMATS", "MOST_CHARACTERS", "as_probed", "combine", "described", "given_calibration",
    "load_topology", "parse_topology", "single_node", "topology_from_record", "topology_record",
]  # fmt: skip
