"""Rows of a table that name what they tell: a latency or a bandwidth of messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from tuner.base.errors import InputError, quoted
from tuner.importers import text
from tuner.importers.algorithm_names import library_name
from tuner.importers.osu import WINDOW
from tuner.importers.reading import BURST, EXCHANGE, PINGPONG, Benchmark, Reading, Shape, Told

_KINDS = (
    (re.compile(r"bibw|bidir"), EXCHANGE),
    (re.compile(r"bw|bandwidth"), BURST),
    (re.compile(r"lat"), PINGPONG),
)
_SEVERAL_PAIRS = re.compile(r"mbw|multi")
_UNITS = {"us": 1e-6, "ms": 1e-3, "ns": 1e-9, "mb/s": 1e6, "mbps": 1e6, "gb/s": 1e9, "gbps": 1e9}
_USUAL = {PINGPONG: "us", BURST: "mb/s", EXCHANGE: "mb/s"}  # where no unit is told, as of OSU
_TYPICAL, _OTHERS = ("median", "mean"), ("std", "min", "max")


def reading(source: str, line: int, own: Mapping[str, str], memory: str, told: Told) -> Reading:
    """Of a row with `metric` and `value`. Raises InputError naming the line."""
    name = own["metric"].lower()
    kind = next((kind for pattern, kind in _KINDS if pattern.search(name)), "")
    if not kind:
        raise InputError(
            f"line {line}: {quoted(own['metric'])} is neither a latency nor a bandwidth"
        )
    scale = _UNITS[_unit(line, own, name, kind)]
    benchmark, statistic = Benchmark(own["metric"], kind), _statistic(own, name)
    timed = kind == PINGPONG
    if timed:
        value = text.seconds(own["value"], "the value", line, 1 / scale)
    else:
        value = text.number(own["value"], "the value", line) * scale
    found = Reading(
        source,
        line,
        benchmark,
        statistic=statistic,
        samples=(value,) if timed else (),
        rate=None if timed else value,
        memory=memory,
        library=library_name(_library(own, name)),
        cluster=own.get("cluster", ""),
    )
    if "size" not in own:
        return replace(found, left_out="the file does not say of how many bytes")
    nbytes = text.whole(own["size"], "the size", line)
    if statistic not in _TYPICAL or own.get("column", "").lower() == "mean":
        reason = f"a {statistic} beside the typical value"
        return replace(found, nbytes=nbytes, samples=(), left_out=reason)
    shape = _shape(line, own, name, told)
    if timed:
        return replace(found, nbytes=nbytes, shape=shape)
    return replace(
        found,
        nbytes=nbytes,
        shape=shape,
        samples=_window(kind, nbytes, value, shape),
        params={"messages": WINDOW},
    )


def _unit(line: int, own: Mapping[str, str], name: str, kind: str) -> str:
    told = own.get("unit", "").lower() or name.rpartition("_")[2]
    unit = told if told in _UNITS or own.get("unit") else _USUAL[kind]
    if unit not in _UNITS:
        raise InputError(
            f"line {line}: {quoted(own['unit'])} is no unit of times or rates: one of"
            f" {', '.join(_UNITS)}"
        )
    return unit


def _statistic(own: Mapping[str, str], name: str) -> str:
    words = [own.get("column", "").lower(), *name.split("_")]
    return next((word for word in words if word in (*_TYPICAL, *_OTHERS)), "mean")


def _library(own: Mapping[str, str], name: str) -> str:
    """Its own column, or that of the other names, or within the brackets of stats(lat_NAME)."""
    column = own.get("column", "")
    if own.get("library") or (column and column.lower() not in (*_TYPICAL, *_OTHERS)):
        return own.get("library") or column
    within = re.fullmatch(r"stats\([a-z]+_(.{1,40})\)", name)
    return within[1] if within else ""


def _shape(line: int, own: Mapping[str, str], name: str, told: Told) -> Shape:
    if own.get("pairs"):
        return told.shape(line, 2 * text.whole(own["pairs"], "the pairs", line, 1))
    return told.shape(line) if _SEVERAL_PAIRS.search(name) else told.pair(line)


def _window(kind: str, nbytes: int, rate: float, shape: Shape) -> tuple[float, ...]:
    """Seconds of a window of messages at a rate, in bytes per second, of all pairs together."""
    directions = 2 if kind == EXCHANGE else 1
    return (WINDOW * directions * nbytes * (shape.p // 2) / rate,) if rate else ()
