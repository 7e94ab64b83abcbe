"""Conversion of imported results to `Measurements`, as a probe writes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tuner.base.atomic_io import write_atomically
from tuner.base.errors import InputError, shortened_repr
from tuner.core.measurement import (
    MIN_SAMPLE_S,
    Cluster,
    Measurement,
    Measurements,
    end_line,
    header_line,
    series_line,
)
from tuner.core.table import DEFAULT
from tuner.importers.algorithm_names import library_name
from tuner.importers.reading import COLLECTIVE, BenchmarkResult
from tuner.importers.text import INT64_LIMIT

SeriesKey = tuple[object, ...]


def as_measurements(
    readings: Iterable[BenchmarkResult],
    library: str = "",
    cluster: str = "",
    cores: int | None = None,
) -> Measurements:
    """Return the results that a probe could have measured as series.

    library     the library to choose where the results are of several, or its name where the files
                do not say
    cluster     the cluster, to choose or to name in the same way
    cores       cores per node; by default the most ranks that any node had

    Results of one call and algorithm in one run are the samples of one series; every run is a
    launch. Excluded results are counted in `provenance["excluded"]`. Raises InputError where
    nothing remains, and where the library or the cluster is ambiguous or unknown.
    """
    chosen = list(readings)
    chosen, place = _select_one(chosen, lambda r: r.cluster, cluster, "cluster")
    chosen = _with_version(chosen, library_name(library))
    chosen, named = _select_one(chosen, lambda r: r.library, library_name(library), "library")
    kept = [reading for reading in chosen if not _exclusion_reason(reading)]
    excluded = Counter(
        _exclusion_reason(reading) for reading in chosen if _exclusion_reason(reading)
    )
    if not kept:
        reasons = "; ".join(f"{count} of {reason}" for reason, count in excluded.items())
        raise InputError(f"expected measurements in the readings: {reasons or 'there are none'}")
    shapes = [reading.rank_counts for reading in kept if reading.rank_counts]
    most = max(shape.ppn for shape in shapes)
    return Measurements(
        Cluster(place, max(shape.nodes for shape in shapes), cores or most, "", 0),
        named,
        {
            "sources": sorted({reading.source for reading in kept}),
            "statistics": dict(Counter(reading.statistic for reading in kept)),
            "operands": dict(Counter(reading.operands for reading in kept if reading.operands)),
            "excluded": [f"{count} of {reason}" for reason, count in sorted(excluded.items())],
        },
        _series(kept),
    )


def write_measurements(measurements: Measurements, path: Path) -> None:
    """Write a complete measurements file; raise InputError where that is not possible."""
    header = header_line(measurements.cluster, measurements.library, measurements.provenance)
    lines = [header, *map(series_line, measurements.series), end_line(len(measurements.series))]
    write_atomically(path, "\n".join([*lines, ""]))


def _with_version(readings: Sequence[BenchmarkResult], library: str) -> list[BenchmarkResult]:
    """Return the results with the user's version where the file names the library alone."""
    name = library.partition(" ")[0]
    return [replace(each, library=library) if each.library == name else each for each in readings]


def _select_one(
    readings: Sequence[BenchmarkResult],
    of: Callable[[BenchmarkResult], str],
    wanted: str,
    what: str,
) -> tuple[list[BenchmarkResult], str]:
    """Return the results of the requested library or cluster, and its name."""
    named = sorted({of(reading) for reading in readings} - {""})
    options = ", ".join(map(shortened_repr, named[:8])) + (" ..." if len(named) > 8 else "")
    if not wanted and len(named) != 1:
        many = (
            f"the readings are of {len(named)} {what} names: {options}"
            if named
            else f"the files do not say of which {what} they are"
        )
        raise InputError(f"{many}: {'choose one' if named else 'name it'} with --{what}")
    if wanted and named and wanted not in named:
        raise InputError(f"the {what} must be one of {options}, not {shortened_repr(wanted)}")
    name = wanted or named[0]
    return [reading for reading in readings if of(reading) in ("", name)], name


def _exclusion_reason(reading: BenchmarkResult) -> str:
    """Return why a result cannot be in a series, or "" where it can."""
    name, shape = reading.benchmark.name, reading.rank_counts
    if reading.exclusion_reason:
        return f"{name}: {reading.exclusion_reason}"
    if not reading.benchmark.kind or shape is None:
        return f"{name}: neither a collective that is known here nor messages of pairs"
    if shape.ppn == 0:
        return f"{name} on {shape.p} ranks: unequal numbers of ranks on {shape.nodes} nodes"
    if not reading.nbytes and reading.benchmark.kind == COLLECTIVE:
        return f"{name}: calls of 0 bytes"
    if reading.nbytes is None or reading.nbytes >= INT64_LIMIT:
        return f"{name}: buffers of 2^63 bytes or more"
    if not reading.samples or min(reading.samples) < MIN_SAMPLE_S:
        return f"{name}: times of 0, or next to it, below what the file resolves"
    return ""


def _series(readings: Sequence[BenchmarkResult]) -> tuple[Measurement, ...]:
    """Return one series per call, algorithm and run, in the order in which they first occur.

    A run has the same launch number in all its series, because times are compared within a launch.
    """
    samples: dict[SeriesKey, dict[int, list[float]]] = {}
    first: dict[SeriesKey, BenchmarkResult] = {}
    launches: dict[str, int] = {}
    for reading in readings:
        point = _series_key(reading)
        first.setdefault(point, reading)
        launch = launches.setdefault(reading.run or reading.source, len(launches))
        samples.setdefault(point, {}).setdefault(launch, []).extend(reading.samples)
    return tuple(
        _measurement(first[point], launch, tuple(taken))
        for point, runs in samples.items()
        for launch, taken in runs.items()
    )


def _series_key(reading: BenchmarkResult) -> SeriesKey:
    params = tuple(sorted(reading.params.items()))
    return (
        reading.benchmark.kind,
        reading.benchmark.subject,
        reading.rank_counts,
        reading.nbytes,
        _algorithm(reading),
        params,
        reading.memory,
    )


def _algorithm(reading: BenchmarkResult) -> str:
    """Return the algorithm of a collective; point-to-point messages have none."""
    return (reading.algorithm or DEFAULT) if reading.benchmark.kind == COLLECTIVE else ""


def _measurement(reading: BenchmarkResult, launch: int, samples: tuple[float, ...]) -> Measurement:
    shape, benchmark = reading.rank_counts, reading.benchmark
    if shape is None or reading.nbytes is None:
        raise ValueError(f"line {reading.line}: {benchmark.name} has no shape or size")
    return Measurement(
        benchmark.kind,
        benchmark.subject_for(shape),
        shape.nodes,
        shape.ppn,
        shape.p,
        reading.nbytes,
        samples,
        _algorithm(reading),
        dict(reading.params),
        reading.memory,
        launch,
    )
