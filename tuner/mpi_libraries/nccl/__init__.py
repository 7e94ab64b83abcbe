"""NCCL: its channels, what it expects of its algorithms and protocols, and what it chooses."""

from tuner.mpi_libraries.nccl.channels import Rings, rings
from tuner.mpi_libraries.nccl.constants import PROTOCOLS, Way
from tuner.mpi_libraries.nccl.default_choice import CURRENT, OFFERED, VERSIONS, incumbent, times
from tuner.mpi_libraries.nccl.fitted import attributed, calibrate, fit_line, seconds_of
from tuner.mpi_libraries.nccl.model_v2_30 import Line
from tuner.mpi_libraries.nccl.system import Fleet, Graph, fleet_of

__all__ = [
    "CURRENT",
    "OFFERED",
    "PROTOCOLS",
    "VERSIONS",
    "Fleet",
    "Graph",
    "Line",
    "Rings",
    "Way",
    "attributed",
    "calibrate",
    "fit_line",
    "fleet_of",
    "incumbent",
    "rings",
    "seconds_of",
    "times",
]
