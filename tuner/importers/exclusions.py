"""Exclusion of results that are of no call between ranks, or of another call than the others."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tuner.importers.reading import COLLECTIVE, BenchmarkResult

_PROBED = re.compile(r"(mpi_)?float(32)?( (mpi_)?sum)?", re.IGNORECASE)  # operands of a probe


def exclude_incomparable(readings: Sequence[BenchmarkResult]) -> list[BenchmarkResult]:
    """Return the results, with the reason where they cannot be used beside the others.

    A collective on one rank is a copy. Calls that differ in datatype or operator take different
    times: those with floats and their sum, which probes use, are kept where there are any, else
    those of which there are most results.
    """
    operands = defaultdict[tuple[str, ...], Counter[str]](Counter)
    for reading in readings:
        if reading.operands and not reading.exclusion_reason:
            operands[_call(reading)][reading.operands] += 1
    kept = {call: _preferred(counts) for call, counts in operands.items()}
    return [_with_reason(reading, kept.get(_call(reading), "")) for reading in readings]


def _call(reading: BenchmarkResult) -> tuple[str, ...]:
    return reading.cluster, reading.library, reading.benchmark.subject or reading.benchmark.name


def _preferred(counts: Counter[str]) -> str:
    names: Iterable[str] = (name for name, _ in counts.most_common())
    return max(names, key=lambda name: bool(_PROBED.fullmatch(name)))


def _with_reason(reading: BenchmarkResult, kept: str) -> BenchmarkResult:
    shape = reading.rank_counts
    if reading.exclusion_reason:
        return reading
    if shape is not None and shape.p == 1 and reading.benchmark.kind == COLLECTIVE:
        return replace(reading, exclusion_reason="on one rank")
    if reading.operands and reading.operands != kept:
        reason = f"of {reading.operands}; {kept} was measured, too"
        return replace(reading, exclusion_reason=reason)
    return reading
