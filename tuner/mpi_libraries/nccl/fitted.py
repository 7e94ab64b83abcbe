"""Fit latency and bandwidth of an algorithm, and the costs of GPUs, to measured times of NCCL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import median

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.mpi_libraries.nccl import default_choice
from tuner.mpi_libraries.nccl.constants import AlgoProto
from tuner.mpi_libraries.nccl.model_v2_30 import LatencyBandwidth
from tuner.mpi_libraries.nccl.predictor import NcclTerms
from tuner.mpi_libraries.nccl.system import NcclSystem
from tuner.topology import NcclCosts

TimedSize = tuple[int, float]  # bytes of the whole buffer, seconds

# How far generations of GPUs are apart, as the numbers that are fitted: launch, hop and simple in
# seconds, seconds per byte of a copy, full channel in seconds.
COST_SPREAD = np.array([2e-6, 0.3e-6, 8e-6, 1e-12, 1e-6])
LEAST_PER_BYTE = 1e-14  # where times show no copy, as those in place
KEPT_WEIGHT = 0.1  # a cost that is off by its spread counts as a time that is off by this fraction
ROUNDS = 30  # of least squares, whose weights turn squared errors into absolute ones


def fit_latency_bandwidth(
    samples: Iterable[TimedSize], factors: Callable[[int], tuple[float, float]] | None = None
) -> LatencyBandwidth:
    """Return the model closest to the samples in relative error, with no negative latency.

    factors     returns the factors of latency and bandwidth at a size; None: both are 1

    Samples of one size count once, by their median. Raises InputError for fewer than two sizes, for
    a time or size that is not positive, and where the times do not grow with the size.
    """
    by_size: dict[int, list[float]] = {}
    for nbytes, seconds in samples:
        if not (nbytes > 0 and 0 < seconds < float("inf")):
            raise InputError(f"{nbytes} bytes in {seconds} s is not a measurement: leave it out")
        by_size.setdefault(nbytes, []).append(seconds)
    if len(by_size) < 2:
        raise InputError("latency and bandwidth need times of two sizes: measure another one")
    from scipy.optimize import nnls  # importers load this module and fit nothing

    sizes = np.array(sorted(by_size), dtype=float)
    times = np.array([median(by_size[int(size)]) for size in sizes])
    scale = np.array([factors(int(size)) if factors else (1.0, 1.0) for size in sizes])
    columns = np.stack([scale[:, 0] / times, sizes / scale[:, 1] / times], axis=1)
    (latency, per_byte), _ = nnls(columns, np.ones(len(sizes)))
    if per_byte == 0:
        raise InputError("the times do not grow with the size: measure larger messages")
    return LatencyBandwidth(float(latency), float(1 / per_byte))


def fit_all(
    system: NcclSystem, collective: Collective, samples: Mapping[AlgoProto, Sequence[TimedSize]]
) -> dict[AlgoProto, LatencyBandwidth]:
    """Return a fitted model for each pair, for `fitted_models` of `estimate_times`.

    The fit takes NCCL's factors for size into account. Raises as `fit_latency_bandwidth`.
    """
    return {
        way: fit_latency_bandwidth(
            own, partial(default_choice.size_factors, system, collective, way)
        )
        for way, own in samples.items()
    }


def attribute_samples(
    system: NcclSystem, collective: Collective, samples: Mapping[str, Iterable[TimedSize]]
) -> dict[AlgoProto, list[TimedSize]]:
    """Return samples of forced algorithms as samples of algorithm and protocol pairs.

    nccl-tests with NCCL_ALGO set leaves the protocol to NCCL, so each sample counts for the one
    that NCCL 2.30.7 expects to be fastest at its size. Raises InputError for an algorithm that the
    machine does not have.
    """
    found: dict[AlgoProto, list[TimedSize]] = {}
    for algorithm, own in samples.items():
        for nbytes, seconds in own:
            times = default_choice.estimate_times(system, collective, nbytes)
            ways = [way for way in times if way.algorithm == algorithm]
            if not ways:
                offered = ", ".join(sorted({way.algorithm for way in times}))
                raise InputError(f"NCCL has no {algorithm!r} for {collective} here, but {offered}")
            found.setdefault(min(ways, key=times.__getitem__), []).append((nbytes, seconds))
    return found


def fit_costs(samples: Sequence[tuple[NcclTerms, float]], before: NcclCosts) -> NcclCosts:
    """Return the costs of GPUs with the least mean relative error of some times in seconds.

    before  costs that are kept as far as the times do not say otherwise: those of one collective on
            one number of GPUs do not tell a launch from the hops
    """
    none = NcclCosts(launch=0.0, hop=0.0, simple=0.0, copy_rate=float("inf"))
    times = np.array([seconds for _, seconds in samples])
    terms = [(1, one.hops, one.is_simple, one.own_bytes, one.is_full) for one, _ in samples]
    columns = np.array(terms, dtype=float) * COST_SPREAD / times[:, None]
    rest = 1.0 - np.array([one.seconds(none) for one, _ in samples]) / times
    own = (before.launch, before.hop, before.simple, 1 / before.copy_rate)
    kept = np.array([*own, before.full_channel or 0.0]) / COST_SPREAD
    rows = np.vstack([columns, KEPT_WEIGHT * np.eye(len(kept))])
    found = least_absolute(rows, np.concatenate([rest, KEPT_WEIGHT * kept]))
    launch, hop, simple, per_byte, full = map(float, found * COST_SPREAD)
    rate = 1 / max(per_byte, LEAST_PER_BYTE)
    return NcclCosts(launch=launch, hop=hop, simple=simple, copy_rate=rate, full_channel=full)


def least_absolute(rows: FloatArray, wanted: FloatArray) -> FloatArray:
    """Return the factors >= 0 of the columns with the least sum of absolute errors.

    Shapes: (equations, factors) and (equations,). An error below 0.001 counts as that.
    """
    from scipy.optimize import nnls  # as above

    weights = np.ones(len(rows))
    for _ in range(ROUNDS):
        found, _ = nnls(rows * weights[:, None], wanted * weights)
        weights = 1 / np.sqrt(np.maximum(np.abs(rows @ found - wanted), 1e-3))
    return np.asarray(found)


def seconds_from_busbw(busbw: float, nbytes: int, share: float) -> float:
    """Return the time in seconds that corresponds to a bus bandwidth (B/s) of nccl-tests.

    share   bytes on the bus per byte of the buffer: 2(p-1)/p of allreduce, (p-1)/p of allgather and
            reduce-scatter, 1 of broadcast and reduce
    """
    return nbytes * share / busbw
