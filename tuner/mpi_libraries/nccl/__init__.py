"""NCCL: its channels, its estimates for algorithms and protocols, and its default choice."""

from tuner.mpi_libraries.nccl.channels import Rings, find_rings
from tuner.mpi_libraries.nccl.constants import NCCL_CHANNELS, PROTOCOLS, AlgoProto, table_row
from tuner.mpi_libraries.nccl.default_choice import (
    VERSIONS,
    default_algo_proto,
    estimate_times,
    known_release,
    version_cautions,
    version_of,
)
from tuner.mpi_libraries.nccl.exchange import EVEN, ExchangeLoad, exchange_load
from tuner.mpi_libraries.nccl.fitted import (
    attribute_samples,
    fit_all,
    fit_costs,
    fit_latency_bandwidth,
    seconds_from_busbw,
)
from tuner.mpi_libraries.nccl.formulas import formulas_of
from tuner.mpi_libraries.nccl.hardware_bounds import SWITCH_LINKS
from tuner.mpi_libraries.nccl.model_v2_30 import LatencyBandwidth
from tuner.mpi_libraries.nccl.names import NCCL_COLLECTIVES, POINT_TO_POINT
from tuner.mpi_libraries.nccl.predictor import (
    COPY_PART,
    COSTS_OF_GPUS,
    LATENCY_PART,
    NcclLimits,
    NcclPredictor,
    NcclTerms,
)
from tuner.mpi_libraries.nccl.releases import CURRENT_VERSION, RELEASES
from tuner.mpi_libraries.nccl.system import (
    ChannelGraph,
    NcclSystem,
    nccl_system_of,
    nominal_nic_rate,
)

__all__ = [
    "COPY_PART",
    "COSTS_OF_GPUS",
    "CURRENT_VERSION",
    "EVEN",
    "LATENCY_PART",
    "NCCL_CHANNELS",
    "NCCL_COLLECTIVES",
    "POINT_TO_POINT",
    "PROTOCOLS",
    "RELEASES",
    "SWITCH_LINKS",
    "VERSIONS",
    "AlgoProto",
    "ChannelGraph",
    "ExchangeLoad",
    "LatencyBandwidth",
    "NcclLimits",
    "NcclPredictor",
    "NcclSystem",
    "NcclTerms",
    "Rings",
    "attribute_samples",
    "default_algo_proto",
    "estimate_times",
    "exchange_load",
    "find_rings",
    "fit_all",
    "fit_costs",
    "fit_latency_bandwidth",
    "formulas_of",
    "known_release",
    "nccl_system_of",
    "nominal_nic_rate",
    "seconds_from_busbw",
    "table_row",
    "version_cautions",
    "version_of",
]
