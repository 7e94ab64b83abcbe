"""Exclusion of results that are of no call between ranks, or of another call than the others."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from tuner.importers.reading import COLLECTIVE, BenchmarkResult

_PROBED = "float"  # the datatype of probes, of which they take sums


def exclude_incomparable(readings: Sequence[BenchmarkResult]) -> list[BenchmarkResult]:
    """Return the results, with the reason where they cannot be used beside the others.

    A collective on one rank is a copy. Reductions take different times with other datatypes and
    operators: of those of one call, sums of floats, which probes measure, are kept where there are
    any, else those of which there are most results. Those of unknown datatypes are kept alone.
    """
    readings = [_without_copies(reading) for reading in readings]
    operands = defaultdict[tuple[object, ...], Counter[str]](Counter)
    for reading in readings:
        if _plain(reading.operands) and reading.benchmark.reduces and not reading.exclusion_reason:
            operands[_call(reading)][_plain(reading.operands)] += 1
    kept = {
        call: _PROBED if _PROBED in counts else counts.most_common(1)[0][0]
        for call, counts in operands.items()
    }
    return [_with_reason(reading, kept.get(_call(reading), "")) for reading in readings]


def _without_copies(reading: BenchmarkResult) -> BenchmarkResult:
    shape = reading.rank_counts
    is_copy = shape is not None and shape.p == 1 and reading.benchmark.kind == COLLECTIVE
    if not is_copy or reading.exclusion_reason:
        return reading
    return replace(reading, exclusion_reason="on one rank")


def _call(reading: BenchmarkResult) -> tuple[object, ...]:
    about = reading.cluster, reading.library, reading.benchmark.subject
    return *about, reading.memory, reading.rank_counts, reading.nbytes


def _plain(operands: str) -> str:
    """Return datatype and operator in lower case, without MPI's prefixes and without `sum`."""
    names = [name.removeprefix("mpi_") for name in operands.lower().split()]
    return " ".join("float" if name == "float32" else name for name in names if name != "sum")


def _with_reason(reading: BenchmarkResult, kept: str) -> BenchmarkResult:
    if not kept or reading.exclusion_reason or _plain(reading.operands) == kept:
        return reading
    said = reading.operands if _plain(reading.operands) else "a datatype that is not stated"
    return replace(reading, exclusion_reason=f"of {said}; {kept} was measured too")
