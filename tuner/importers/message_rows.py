"""Rows of a table with a named metric: a latency or a bandwidth of messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from tuner.base.errors import InputError, shortened_repr
from tuner.base.units import BANDWIDTH_UNITS, TIME_UNITS
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
_RATE = re.compile(r"([kKMGT]i?)(B|b|bits?)(?:/[sS]|/sec|ps|PS)")
_ANY_RATE = r"[kmgt]?i?(?:b|bits?|bytes?)(?:/s|/sec|ps)"  # in lower case, bits or bytes
_TIMES = {unit: TIME_UNITS[unit] for unit in ("us", "ms", "ns", "s")}
_DEFAULT_UNITS = {
    PINGPONG: "us",
    BURST: "MB/s",
    EXCHANGE: "MB/s",
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
    scale = _units(kind)[_unit(line, row, kind)]
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
        operands=row.get("datatype", ""),
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


def _units(kind: str) -> Mapping[str, float]:
    """Return what a unit stands for, in seconds or in bytes per second."""
    return _TIMES if kind == PINGPONG else BANDWIDTH_UNITS


def _unit(line: int, row: Mapping[str, str], kind: str) -> str:
    """Return the unit in its own column or at the end of the metric, else that of OSU."""
    said = row.get("unit", "") or row["metric"].rpartition("_")[2]
    rate = _RATE.fullmatch(said)
    unit = f"{rate[1].replace('K', 'k')}{rate[2].rstrip('s')}/s" if rate else said.lower()
    if unit in _units(kind):
        return unit
    if kind != PINGPONG and re.fullmatch(_ANY_RATE, said):
        raise InputError(
            f"line {line}: {shortened_repr(said)} may count bits or bytes: write Gb/s for bits,"
            " GB/s for bytes"
        )
    if row.get("unit") or unit in _TIMES or re.fullmatch(_ANY_RATE, said, re.IGNORECASE):
        raise InputError(
            f"line {line}: {shortened_repr(said)} is not a unit of this metric: one of"
            f" {', '.join(_units(kind))}"
        )
    return _DEFAULT_UNITS[kind]


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
    p, nodes, ppn, pairs = (
        text.parse_int(row[word], f"the {word}", line, 1) if row.get(word) else None
        for word in ("p", "nodes", "ppn", "pairs")
    )
    if pairs or _SEVERAL_PAIRS.search(name):
        return metadata.rank_counts(line, 2 * pairs if pairs else p, nodes, ppn)
    shape = metadata.pair_counts(line, nodes)
    if p not in (None, 2) or ppn not in (None, shape.ppn) or (nodes or 0) > 2:
        raise InputError(
            f"line {line}: one pair is of 2 ranks on 1 or 2 nodes: correct the row, or say how many"
            " pairs there are in a column `pairs`"
        )
    return shape


def _window_seconds(kind: str, nbytes: int, rate: float, shape: RankCounts) -> tuple[float, ...]:
    """Return the seconds of a window of messages of all pairs at a rate in bytes per second."""
    directions = 2 if kind == EXCHANGE else 1
    return (WINDOW_MESSAGES * directions * nbytes * (shape.p // 2) / rate,) if rate else ()
