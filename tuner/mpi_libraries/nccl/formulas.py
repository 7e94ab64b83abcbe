"""The formulas by which the current NCCL and RCCL expect the time of a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tuner.core.collective import Collective
from tuner.mpi_libraries.nccl import model_rccl, model_v2_30
from tuner.mpi_libraries.nccl.constants import LL_THREAD_BYTES, LL_THREADS, AlgoProto
from tuner.mpi_libraries.nccl.model_v2_30 import LatencyBandwidth
from tuner.mpi_libraries.nccl.rccl_constants import TITLE
from tuner.mpi_libraries.nccl.releases import CURRENT_VERSION
from tuner.mpi_libraries.nccl.system import NcclSystem


@dataclass(frozen=True)
class CostFormulas:
    """The formulas of a library.

    title               its name and version
    available           returns the pairs that it chooses between for a collective
    cost_model          returns latency and bandwidth of a pair
    size_factors        returns their factors at a size, in what the library expects
    sustained_factors   the same in predictions
    sustained_latency, sustained_bandwidth
                        return latency and bandwidth of a pair in predictions
    fills_buffers       whether filling buffers takes time that its latencies do not contain
    full_part           bytes of a rank from which on a ring in LL occupies all threads of a channel
    run_algo_proto      returns what it runs at a size where it expects a pair to be fastest
    """

    title: str
    available: Callable[[NcclSystem, Collective], list[AlgoProto]]
    cost_model: Callable[[NcclSystem, Collective, AlgoProto], LatencyBandwidth]
    size_factors: Callable[[NcclSystem, Collective, AlgoProto, int], tuple[float, float]]
    sustained_factors: Callable[[NcclSystem, Collective, AlgoProto, int], tuple[float, float]]
    sustained_latency: Callable[[NcclSystem, Collective, AlgoProto], float]
    sustained_bandwidth: Callable[[NcclSystem, Collective, AlgoProto], float]
    fills_buffers: bool
    full_part: float
    run_algo_proto: Callable[[NcclSystem, Collective, AlgoProto, int], AlgoProto]


NCCL = CostFormulas(
    f"NCCL {CURRENT_VERSION}",
    model_v2_30.available_algo_protos,
    model_v2_30.cost_model,
    model_v2_30.size_factors,
    model_v2_30.sustained_factors,
    model_v2_30.sustained_latency,
    model_v2_30.sustained_bandwidth,
    True,
    LL_THREADS * LL_THREAD_BYTES,
    lambda _system, _collective, way, _nbytes: way,
)
RCCL = CostFormulas(
    TITLE,
    model_rccl.available_algo_protos,
    model_rccl.cost_model,
    model_rccl.size_factors,
    model_rccl.sustained_factors,
    model_rccl.sustained_latency,
    lambda system, collective, way: model_rccl.cost_model(system, collective, way).bandwidth,
    False,
    float("inf"),  # its channels have other numbers of threads, and nobody measured them
    model_rccl.run_algo_proto,
)


def formulas_of(system: NcclSystem) -> CostFormulas:
    """Return the formulas of the library that GPUs run."""
    return RCCL if system.architecture else NCCL
