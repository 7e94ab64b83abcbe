"""Topologies from files: one module per source."""

from tuner.topologies.calibrated import given_calibration, single_node
from tuner.topologies.short import load_topology

__all__ = ["given_calibration", "load_topology", "single_node"]
