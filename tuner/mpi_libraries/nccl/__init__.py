"""NCCL: its channels, its estimates for algorithms and protocols, and its default choice."""

from tuner.mpi_libraries.nccl.channels import Rings, find_rings
from tuner.mpi_libraries.nccl.constants import PROTOCOLS, AlgoProto, table_row
from tuner.mpi_libraries.nccl.default_choice import VERSIONS, default_algo_proto, estimate_times
from tuner.mpi_libraries.nccl.fitted import (
    attribute_samples,
    fit_all,
    fit_costs,
    fit_latency_bandwidth,
    seconds_from_busbw,
)
from tuner.mpi_libraries.nccl.formulas import CURRENT_VERSION, formulas_of
from tuner.mpi_libraries.nccl.model_v2_30 import LatencyBandwidth
from tuner.mpi_libraries.nccl.names import NCCL_COLLECTIVES
from tuner.mpi_libraries.nccl.predictor import COSTS_OF_GPUS, NcclPredictor, NcclTerms
from tuner.mpi_libraries.nccl.system import (
    ChannelGraph,
    NcclSystem,
    nccl_system_of,
    network_limit,
    nominal_nic_rate,
)

__all__ = [
    "COSTS_OF_GPUS",
    "CURRENT_VERSION",
    "NCCL_COLLECTIVES",
    "PROTOCOLS",
    "VERSIONS",
    "AlgoProto",
    "ChannelGraph",
    "LatencyBandwidth",
    "NcclPredictor",
    "NcclSystem",
    "NcclTerms",
    "Rings",
    "attribute_samples",
    "default_algo_proto",
    "estimate_times",
    "find_rings",
    "fit_all",
    "fit_costs",
    "fit_latency_bandwidth",
    "formulas_of",
    "nccl_system_of",
    "network_limit",
    "nominal_nic_rate",
    "seconds_from_busbw",
    "table_row",
]
