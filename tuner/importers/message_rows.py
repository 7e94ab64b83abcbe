"""Rows of a table with a named metric: a latency or a bandwidth of messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from tuner.base.errors import InputError, shortened_repr
from tuner.importers import text
from tuner.importers.algorithm_names import library_name
from tuner.importers.osu import WINDOW_MESSAGES
from tuner.importers.reading import (
    BURST,
    EXCHANGE,
    PINGPONG,
    Benchmark,
    BenchmarkResult,
    RankCounts,
    UserMetadata,
)

_KINDS = (
    (re.compile(r"bibw|bidir"), EXCHANGE),
    (re.compile(r"bw|bandwidth"), BURST),
    (re.compile(r"lat"), PINGPONG),
)
_SEVERAL_PAIRS = re.compile(r"mbw|multi")
_UNITS = {"us": 1e-6, "ms": 1e-3, "ns": 1e-9, "mb/s": 1e6, "mbps": 1e6, "gb/s": 1e9, "gbps": 1e9}
_DEFAULT_UNITS = {
    PINGPONG: "us",
    BURST: "mb/s",
    EXCHANGE: "mb/s",
}  # units of OSU, where none is given
_CENTRAL_STATISTICS, _OTHER_STATISTICS = ("median", "mean"), ("std", "min", "max")


def message_result(
    source: str, line: int, row: Mapping[str, str], memory: str, metadata: UserMetadata
) -> BenchmarkResult:
    """Return the result of a row with `metric` and `value`.

    Raises InputError with the line number.
    """
    name = row["metric"].lower()
    kind = next((kind for pattern, kind in _KINDS if pattern.search(name)), "")
    if not kind:
        raise InputError(
            f"line {line}: {shortened_repr(row['metric'])} is neither a latency nor a bandwidth"
        )
    scale = _UNITS[_unit(line, row, name, kind)]
    benchmark, statistic = Benchmark(row["metric"], kind), _statistic(row, name)
    timed = kind == PINGPONG
    if timed:
        value = text.parse_seconds(row["value"], "the value", line, 1 / scale)
    else:
        value = text.parse_float(row["value"], "the value", line) * scale
    found = BenchmarkResult(
        source,
        line,
        benchmark,
        statistic=statistic,
        samples=(value,) if timed else (),
        bytes_per_second=None if timed else value,
        memory=memory,
        library=library_name(_library(row, name)),
        cluster=row.get("cluster", ""),
    )
    if "size" not in row:
        return replace(found, exclusion_reason="the file does not say of how many bytes")
    nbytes = text.parse_int(row["size"], "the size", line)
    if statistic not in _CENTRAL_STATISTICS or row.get("column", "").lower() == "mean":
        reason = f"a {statistic} beside the typical value"
        return replace(found, nbytes=nbytes, samples=(), exclusion_reason=reason)
    shape = _shape(line, row, name, metadata)
    if timed:
        return replace(found, nbytes=nbytes, rank_counts=shape)
    return replace(
        found,
        nbytes=nbytes,
        rank_counts=shape,
        samples=_window_seconds(kind, nbytes, value, shape),
        params={"messages": WINDOW_MESSAGES},
    )


def _unit(line: int, row: Mapping[str, str], name: str, kind: str) -> str:
    told = row.get("unit", "").lower() or name.rpartition("_")[2]
    unit = told if told in _UNITS or row.get("unit") else _DEFAULT_UNITS[kind]
    if unit not in _UNITS:
        raise InputError(
            f"line {line}: {shortened_repr(row['unit'])} is not a unit of times or rates: one of"
            f" {', '.join(_UNITS)}"
        )
    return unit


def _statistic(row: Mapping[str, str], name: str) -> str:
    words = [row.get("column", "").lower(), *name.split("_")]
    return next(
        (word for word in words if word in (*_CENTRAL_STATISTICS, *_OTHER_STATISTICS)), "mean"
    )


def _library(row: Mapping[str, str], name: str) -> str:
    """Return the library of a row.

    It is in its own column, in `column` unless that is a statistic, or in the parentheses of
    stats(lat_NAME).
    """
    column = row.get("column", "")
    if row.get("library") or (
        column and column.lower() not in (*_CENTRAL_STATISTICS, *_OTHER_STATISTICS)
    ):
        return row.get("library") or column
    within = re.fullmatch(r"stats\([a-z]+_(.{1,40})\)", name)
    return within[1] if within else ""


def _shape(line: int, row: Mapping[str, str], name: str, metadata: UserMetadata) -> RankCounts:
    if row.get("pairs"):
        return metadata.rank_counts(line, 2 * text.parse_int(row["pairs"], "the pairs", line, 1))
    return metadata.rank_counts(line) if _SEVERAL_PAIRS.search(name) else metadata.pair_counts(line)


def _window_seconds(kind: str, nbytes: int, rate: float, shape: RankCounts) -> tuple[float, ...]:
    """Return the seconds of a window of messages of all pairs at a rate in bytes per second."""
    directions = 2 if kind == EXCHANGE else 1
    return (WINDOW_MESSAGES * directions * nbytes * (shape.p // 2) / rate,) if rate else ()
