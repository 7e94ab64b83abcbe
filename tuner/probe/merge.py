"""Merge several measurements files of one cluster into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.base.atomic_io import dataclass_from_record, write_atomically
from tuner.base.errors import InputError
from tuner.core.measurement import (
    Cluster,
    Measurement,
    Measurements,
    end_line,
    header_line,
    read_partial,
    series_line,
    unreadable_file_error,
)
from tuner.probe.all_pairs import describe_slow_pairs
from tuner.probe.sentinels import describe_instability


def merge_files(paths: Sequence[Path], out: Path) -> Measurements:
    """Write the series of all `paths`, finished or not, to `out`, and return them.

    A series that two files share to the last sample is kept once: one file is then a copy of the
    other's beginning. Other launches are renumbered, so that samples of different runs do not count
    as taken back to back. Raises InputError when the files are of different clusters, libraries or
    hosts.
    """
    if not paths:
        raise InputError("name the files to merge: tuner probe merge FILE FILE --out FILE")
    parts = [_read_series(path) for path in paths]
    header = parts[0][0]
    for path, (other, _) in zip(paths, parts, strict=True):
        _require_same(paths[0], header, path, other)
    series: list[Measurement] = []
    for _, found in parts:
        series += _renumber_launches(found, series)
    about = _merge_provenance([other["provenance"] for other, _ in parts], series)
    cluster = dataclass_from_record(Cluster, header["cluster"])
    merged = Measurements(cluster, header["library"], about, tuple(series))
    lines = [
        header_line(cluster, merged.library, about),
        *map(series_line, series),
        end_line(len(series)),
    ]
    write_atomically(out, "".join(line + "\n" for line in lines))
    return merged


def _read_series(path: Path) -> tuple[dict[str, Any], list[Measurement]]:
    try:
        header, series, _ = read_partial(path)
    except (OSError, UnicodeDecodeError) as reason:
        raise unreadable_file_error(path, reason) from None
    if header is None:
        raise InputError(f"{path}: empty; leave it out")
    return header, series


def _require_same(first: Path, header: dict[str, Any], path: Path, other: dict[str, Any]) -> None:
    for what in ("cluster", "library"):
        mine, theirs = header[what], other[what]
        if what == "cluster":  # in an unfinished file the hosts' processors are provisional
            mine, theirs = ((one["name"], one["nodes"]) for one in (mine, theirs))
        if mine != theirs:
            raise InputError(
                f"{first} and {path} are not of one {what}: {_join_words(mine)} and"
                f" {_join_words(theirs)}"
            )
    hosts = [one["provenance"].get("hosts") for one in (header, other)]
    if None not in hosts and hosts[0] != hosts[1]:
        raise InputError(
            f"{first} and {path} are of different hosts, or of the same in another order:"
            " a host number would mean two"
        )


def _join_words(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _series_identity(series: Measurement) -> tuple[object, ...]:
    return series.point, series.algorithm, tuple(sorted(series.params.items()))


def _renumber_launches(found: list[Measurement], before: list[Measurement]) -> list[Measurement]:
    """Return those of `found` that are not in `before`, with new launch numbers if needed."""
    known = {(_series_identity(one), one.launch, one.samples) for one in before}
    new = [one for one in found if (_series_identity(one), one.launch, one.samples) not in known]
    points = {(one.point, one.launch) for one in before}
    if not any((one.point, one.launch) in points for one in new):
        return new
    shift = 1 + max(one.launch for one in before)
    return [replace(one, launch=one.launch + shift) for one in new]


def _merge_provenance(parts: list[dict[str, Any]], series: list[Measurement]) -> dict[str, Any]:
    """Return the first provenance with all exclusions and notes, and all parts under `merged`."""
    first = next((part for part in parts if "hosts" in part), parts[0])
    excluded = [line for part in parts for line in part.get("excluded", [])]
    told = [line for part in parts for line in part.get("notes", [])]
    noticed = [*describe_instability(series), *describe_slow_pairs(series, first.get("hosts", []))]
    return {
        **first,
        "plan": "merged",
        "excluded": list(dict.fromkeys(excluded)),
        "notes": list(dict.fromkeys([*told, *noticed])),
        "merged": parts,
    }
