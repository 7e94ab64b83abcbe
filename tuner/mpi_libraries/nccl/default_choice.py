"""NCCL's estimates for each algorithm and protocol, and the pair that it chooses by default."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.mpi_libraries.nccl import model_v2_4, model_v2_5, model_v2_30
from tuner.mpi_libraries.nccl.constants import RING, AlgoProto
from tuner.mpi_libraries.nccl.formulas import formulas_of
from tuner.mpi_libraries.nccl.model_v2_30 import LatencyBandwidth
from tuner.mpi_libraries.nccl.names import NCCL_COLLECTIVES, POINT_TO_POINT
from tuner.mpi_libraries.nccl.releases import CURRENT_VERSION, FIRST_COMPARED, RELEASES
from tuner.mpi_libraries.nccl.system import NcclSystem
from tuner.mpi_libraries.products import release_of

EARLIEST_VERSION = "2.4.8"
VERSIONS = (EARLIEST_VERSION, *model_v2_5.RELEASES, *RELEASES)


def version_of(library: str) -> str:
    """Return the version that chooses as a library does: the last that is not newer.

    library     such as `nccl 2.22.4`; RCCL, and NCCL without a version, count as the newest
    """
    told = release_of(library) if library.startswith("nccl ") else ()
    known = [one for one in VERSIONS if not told or release_of(f"nccl {one}") <= told]
    return known[-1] if known else EARLIEST_VERSION


def known_release(version: str) -> str:
    """Return the release that chooses as a version does, such as 2.27.3 of `2.27.5`.

    Return "" unless the version has three numbers and is at least as new as the earliest release.
    """
    numbers = version.split(".")
    if len(numbers) != 3 or not all(one.isdecimal() and one.isascii() for one in numbers):
        return ""
    found = version_of(f"nccl {version}")
    return found if release_of(f"nccl {found}") <= release_of(f"nccl {version}") else ""


def version_cautions(version: str, compute_capability: int) -> list[str]:
    """Return sentences on a release that was not compared, or is older than the GPUs."""
    told, newest = list[str](), RELEASES[version].newest
    if VERSIONS.index(version) < VERSIONS.index(FIRST_COMPARED):
        told.append(f"Times of NCCL before {FIRST_COMPARED} were not compared.")
    if compute_capability > newest:
        told.append(
            f"NCCL {version} counts GPUs of compute capability {compute_capability / 10} as those"
            f" of {newest / 10}, if it runs on them at all."
        )
    return told


def estimate_times(
    system: NcclSystem,
    collective: Collective,
    nbytes: int,
    version: str = CURRENT_VERSION,
    fitted_models: Mapping[AlgoProto, LatencyBandwidth] | None = None,
) -> dict[AlgoProto, float]:
    """Return the estimated seconds per pair, for `nbytes` of the whole buffer.

    fitted_models   models fitted to this machine (`fitted.fit_all`), which replace those computed
                    from the version's constants; its factors for size stay

    Raises InputError for an unknown version, a collective that NCCL lacks, a single rank, or less
    than one byte.
    """
    _require_estimated(system, collective, nbytes, version)
    found = cost_models(system, collective, version)
    return {
        way: (fitted_models or {})
        .get(way, line)
        .seconds(nbytes, size_factors(system, collective, way, nbytes, version))
        for way, line in found.items()
    }


def _require_estimated(
    system: NcclSystem, collective: Collective, nbytes: int, version: str
) -> None:
    """Raise InputError for a call of which this version of NCCL makes no estimate."""
    if version not in VERSIONS:
        raise InputError(f"NCCL's choice is known of {', '.join(VERSIONS)}, not of {version!r}")
    if system.architecture and version != CURRENT_VERSION:
        raise InputError(
            f"NCCL {version} does not run on AMD's GPUs ({system.architecture}): leave the version"
            f" out for {formulas_of(system).title}"
        )
    if collective in POINT_TO_POINT:
        raise InputError(
            f"NCCL makes an {collective} of sends and receives and expects no time of it; predicted"
            f" is that of {next(iter(RELEASES))} and later on NVIDIA's GPUs"
        )
    if collective not in NCCL_COLLECTIVES:
        raise InputError(f"NCCL chooses for {', '.join(NCCL_COLLECTIVES)}, not for {collective}")
    if system.p < 2 or nbytes < 1:
        raise InputError(
            f"NCCL chooses for two ranks or more and at least one byte, not for {system.p} and"
            f" {nbytes}"
        )


def cost_models(
    system: NcclSystem, collective: Collective, version: str = CURRENT_VERSION
) -> dict[AlgoProto, LatencyBandwidth]:
    """Return a model, from the version's own constants, for every pair available here."""
    if version == CURRENT_VERSION:
        known = formulas_of(system)
        ways = known.available(system, collective)
        return {way: known.cost_model(system, collective, way) for way in ways}
    if version in RELEASES:
        own = RELEASES[version]
        ways = model_v2_30.available_algo_protos(system, collective, own)
        return {way: model_v2_30.cost_model(system, collective, way, own) for way in ways}
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
    """Return the factors of latency and bandwidth in a version at a size."""
    if version == CURRENT_VERSION:
        return formulas_of(system).size_factors(system, collective, algo_proto, nbytes)
    if version in RELEASES:
        own = RELEASES[version]
        return model_v2_30.size_factors(system, collective, algo_proto, nbytes, own)
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
    """Return the default of NCCL or RCCL: the pair that it expects to be fastest.

    RCCL takes the algorithm of it, and the protocol by size.

    Raises as `estimate_times`.
    """
    if version == EARLIEST_VERSION and collective is Collective.ALLREDUCE and not fitted_models:
        limit = model_v2_4.crossover_bytes(
            system.nodes, system.ppn, system.ring.channels, system.has_nvlink
        )
        found = estimate_times(system, collective, nbytes, version)
        return next(w for w in found if (w.algorithm == RING) == (nbytes > limit))
    found = estimate_times(system, collective, nbytes, version, fitted_models)
    best = min(found, key=lambda way: found[way])
    return formulas_of(system).run_algo_proto(system, collective, best, nbytes)
