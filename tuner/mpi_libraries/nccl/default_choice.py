"""What NCCL expects of each of its ways to do a call, and which one it takes: the incumbent."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.mpi_libraries.nccl import model_v2_4, model_v2_5, model_v2_30
from tuner.mpi_libraries.nccl.constants import RING, AlgoProto
from tuner.mpi_libraries.nccl.model_v2_30 import LatencyBandwidth
from tuner.mpi_libraries.nccl.system import NcclSystem

EARLIEST_VERSION, CURRENT_VERSION = "2.4.8", "2.30.7"
VERSIONS = (EARLIEST_VERSION, *model_v2_5.RELEASES, CURRENT_VERSION)
SUPPORTED_COLLECTIVES = (
    Collective.BCAST,
    Collective.REDUCE,
    Collective.ALLREDUCE,
    Collective.ALLGATHER,
    Collective.REDUCE_SCATTER,
)


def estimate_times(
    system: NcclSystem,
    collective: Collective,
    nbytes: int,
    version: str = CURRENT_VERSION,
    fitted_models: Mapping[AlgoProto, LatencyBandwidth] | None = None,
) -> dict[AlgoProto, float]:
    """Seconds per way, for `nbytes` of the whole buffer.

    measured    lines fitted to this machine (`measured.calibrate`): they replace what the version
                computes from its constants; its factors for size stay

    Raises InputError for an unknown version, a collective that NCCL has not, or a single rank.
    """
    if version not in VERSIONS:
        raise InputError(f"NCCL's choice is known of {', '.join(VERSIONS)}, not of {version!r}")
    if collective not in SUPPORTED_COLLECTIVES:
        raise InputError(
            f"NCCL chooses for {', '.join(SUPPORTED_COLLECTIVES)}, not for {collective}"
        )
    if system.p < 2 or nbytes < 1:
        raise InputError(
            f"NCCL chooses for two ranks or more and at least one byte, not for {system.p} and"
            f" {nbytes}"
        )
    found = _cost_models(system, collective, version)
    return {
        way: (fitted_models or {})
        .get(way, line)
        .seconds(nbytes, size_factors(system, collective, way, nbytes, version))
        for way, line in found.items()
    }


def _cost_models(
    system: NcclSystem, collective: Collective, version: str
) -> dict[AlgoProto, LatencyBandwidth]:
    """Every way that the version has here, by its own constants."""
    if version == CURRENT_VERSION:
        ways = model_v2_30.available_algo_protos(system, collective)
        return {way: model_v2_30.cost_model(system, collective, way) for way in ways}
    if version in model_v2_5.RELEASES:
        ways = model_v2_5.available_algo_protos(system, collective, version)
        return {way: model_v2_5.cost_model(system, collective, way, version) for way in ways}
    return model_v2_4.cost_models(system, collective)


def size_factors(
    system: NcclSystem,
    collective: Collective,
    algo_proto: AlgoProto,
    nbytes: int,
    version: str = CURRENT_VERSION,
) -> tuple[float, float]:
    """What a version multiplies latency and bandwidth of a way by at a size."""
    if version == CURRENT_VERSION:
        return model_v2_30.size_factors(system, collective, algo_proto, nbytes)
    if version in model_v2_5.RELEASES:
        return model_v2_5.size_factors(system, collective, algo_proto, nbytes, version)
    return 1.0, 1.0


def default_algo_proto(
    system: NcclSystem,
    collective: Collective,
    nbytes: int,
    version: str = CURRENT_VERSION,
    fitted_models: Mapping[AlgoProto, LatencyBandwidth] | None = None,
) -> AlgoProto:
    """What NCCL takes when left alone: the way it expects to be fastest. Raises as `times`."""
    if version == EARLIEST_VERSION and collective is Collective.ALLREDUCE and not fitted_models:
        limit = model_v2_4.crossover_bytes(
            system.nodes, system.ppn, system.ring.channels, system.has_nvlink
        )
        found = estimate_times(system, collective, nbytes, version)
        return next(w for w in found if (w.algorithm == RING) == (nbytes > limit))
    found = estimate_times(system, collective, nbytes, version, fitted_models)
    return min(found, key=lambda way: found[way])
