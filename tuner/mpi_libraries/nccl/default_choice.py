"""What NCCL expects of each of its ways to do a call, and which one it takes: the incumbent."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.mpi_libraries.nccl import model_v2_4, model_v2_5, model_v2_30
from tuner.mpi_libraries.nccl.constants import RING, Way
from tuner.mpi_libraries.nccl.model_v2_30 import Line
from tuner.mpi_libraries.nccl.system import Fleet

EARLIEST, CURRENT = "2.4.8", "2.30.7"
VERSIONS = (EARLIEST, *model_v2_5.RELEASES, CURRENT)
OFFERED = (
    Collective.BCAST,
    Collective.REDUCE,
    Collective.ALLREDUCE,
    Collective.ALLGATHER,
    Collective.REDUCE_SCATTER,
)


def times(
    fleet: Fleet,
    collective: Collective,
    nbytes: int,
    version: str = CURRENT,
    measured: Mapping[Way, Line] | None = None,
) -> dict[Way, float]:
    """Seconds per way, for `nbytes` of the whole buffer.

    measured    lines fitted to this machine (`measured.calibrate`): they replace what the version
                computes from its constants; its factors for size stay

    Raises InputError for an unknown version, a collective that NCCL has not, or a single rank.
    """
    if version not in VERSIONS:
        raise InputError(f"NCCL's choice is known of {', '.join(VERSIONS)}, not of {version!r}")
    if collective not in OFFERED:
        raise InputError(f"NCCL chooses for {', '.join(OFFERED)}, not for {collective}")
    if fleet.p < 2 or nbytes < 1:
        raise InputError(
            f"NCCL chooses for two ranks or more and at least one byte, not for {fleet.p} and"
            f" {nbytes}"
        )
    found = _lines(fleet, collective, version)
    return {
        way: (measured or {})
        .get(way, line)
        .seconds(nbytes, factors(fleet, collective, way, nbytes, version))
        for way, line in found.items()
    }


def _lines(fleet: Fleet, collective: Collective, version: str) -> dict[Way, Line]:
    """Every way that the version has here, by its own constants."""
    if version == CURRENT:
        ways = model_v2_30.ways(fleet, collective)
        return {way: model_v2_30.line(fleet, collective, way) for way in ways}
    if version in model_v2_5.RELEASES:
        ways = model_v2_5.ways(fleet, collective, version)
        return {way: model_v2_5.line(fleet, collective, way, version) for way in ways}
    return model_v2_4.lines(fleet, collective)


def factors(
    fleet: Fleet, collective: Collective, way: Way, nbytes: int, version: str = CURRENT
) -> tuple[float, float]:
    """What a version multiplies latency and bandwidth of a way by at a size."""
    if version == CURRENT:
        return model_v2_30.factors(fleet, collective, way, nbytes)
    if version in model_v2_5.RELEASES:
        return model_v2_5.factors(fleet, collective, way, nbytes, version)
    return 1.0, 1.0


def incumbent(
    fleet: Fleet,
    collective: Collective,
    nbytes: int,
    version: str = CURRENT,
    measured: Mapping[Way, Line] | None = None,
) -> Way:
    """What NCCL takes when left alone: the way it expects to be fastest. Raises as `times`."""
    if version == EARLIEST and collective is Collective.ALLREDUCE and not measured:
        limit = model_v2_4.crossover(fleet.nodes, fleet.ppn, fleet.ring.channels, fleet.has_nvlink)
        found = times(fleet, collective, nbytes, version)
        return next(w for w in found if (w.algorithm == RING) == (nbytes > limit))
    found = times(fleet, collective, nbytes, version, measured)
    return min(found, key=lambda way: found[way])
