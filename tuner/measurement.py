"""What a probe writes and everything after it reads: one NDJSON line per measured series.

Line 1 is a header (`kind: probe`) naming cluster and library; every further line is a
`Measurement`; the last line of a finished probe is `{"kind": "end", "lines": N}`. A file
without that last line is incomplete: the probe resumes it, every other reader refuses it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from tuner.errors import InputError
from tuner.files import from_record

FORMAT_VERSION = 1
T = TypeVar("T")


@dataclass(frozen=True)
class Cluster:
    """Which machine the numbers belong to; two clusters are the same iff these are equal."""

    name: str
    nodes: int
    cores: int  # per node
    cpu: str
    memory: int  # bytes per node


@dataclass(frozen=True)
class Measurement:
    """One series of timings of one thing.

    kind        collective | pingpong | burst | reduction | call | eager
    subject     the collective; `node` / `node_oversubscribed` (a path class); the operator
    p           ranks that took part (pingpong: ranks busy at the same time)
    nbytes      bytes of the user's buffer (per rank)
    algorithm   canonical name, `default` for the library's own choice; "" where meaningless
    params      e.g. {"segment": 65536, "radix": 4}
    samples     seconds, in the order taken; samples of one point (same kind, subject, p,
                nbytes) and launch with the same index were taken back to back: ratios pair
    launch      which start of the ranks took them; placement differs from start to start
    """

    kind: str
    subject: str
    nodes: int
    ppn: int
    p: int
    nbytes: int
    samples: tuple[float, ...]
    algorithm: str = ""
    params: Mapping[str, int] = field(default_factory=dict)
    memory: str = "host"
    launch: int = 0

    @property
    def point(self) -> tuple[str, str, int, int, int, int, str]:
        """What is compared with one another: the same call, whatever algorithm ran."""
        return (
            self.kind, self.subject, self.nodes, self.ppn, self.p, self.nbytes, self.memory,
        )  # fmt: skip


@dataclass(frozen=True)
class Measurements:
    """A complete probe: where, with which library, when and how, and all its series."""

    cluster: Cluster
    library: str  # "openmpi 5.0.11"
    provenance: Mapping[str, Any]
    series: tuple[Measurement, ...]


def header_line(cluster: Cluster, library: str, provenance: Mapping[str, Any]) -> str:
    """The first line of a measurements file."""
    return json.dumps(
        {"kind": "probe", "version": FORMAT_VERSION, "cluster": asdict(cluster),
         "library": library, "provenance": dict(provenance)}
    )  # fmt: skip


def series_line(series: Measurement) -> str:
    """One line of a measurements file."""
    return json.dumps(asdict(series))


def end_line(lines: int) -> str:
    """The last line of a finished measurements file; `lines` counts the series."""
    return json.dumps({"kind": "end", "lines": lines})


def _described(header: Mapping[str, Any]) -> Measurements:
    """What the header says, without series; ValueError or TypeError when it is no header."""
    fields = {name: value for name, value in header.items() if name not in ("kind", "version")}
    if header["kind"] != "probe" or header.get("version") != FORMAT_VERSION:
        raise ValueError("another kind or version")
    return from_record(Measurements, {**fields, "series": []})


def _series(record: Mapping[str, Any]) -> Measurement:
    series = from_record(Measurement, record)
    if min(series.nodes, series.ppn, series.p) < 1 or series.nbytes < 0 or series.launch < 0:
        raise ValueError("it needs nodes, ppn and p of at least 1 and nbytes of at least 0")
    if not series.samples or min(series.samples) < 0:
        raise ValueError("it needs at least one sample and no sample below 0")
    return series


def _checked(
    path: Path, line: int, complaint: str, read: Callable[[Any], T], record: dict[str, Any]
) -> T:
    try:
        return read(record)
    except (ValueError, TypeError) as reason:
        raise InputError(f"{path}, line {line}: {complaint}: {reason}") from None


def read_partial(path: Path) -> tuple[dict[str, Any] | None, list[Measurement], bool]:
    """Header (None for an empty file), series and whether the end line was there.

    The last line may be cut off, as a killed probe leaves it; it is dropped.
    Raises InputError when any earlier line is not what it should be.
    """
    lines = path.read_text(encoding="utf-8").split("\n")
    records: list[dict[str, Any]] = []
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last newline is cut off
        try:
            record = json.loads(line)
            if not isinstance(record, dict) or "kind" not in record:
                raise ValueError
        except (ValueError, RecursionError):
            raise InputError(
                f"{path}, line {number}: not a measurement; delete the line or probe again"
            ) from None
        records.append(record)
    if not records:
        return None, [], False
    header, *rest = records
    _checked(path, 1, f"not the header of a version-{FORMAT_VERSION} probe", _described, header)
    ended = bool(rest) and rest[-1]["kind"] == "end"
    series = [
        _checked(path, number, "not a measurement", _series, record)
        for number, record in enumerate(rest[: len(rest) - ended], start=2)
    ]
    if ended and rest[-1].get("lines") != len(series):
        raise InputError(
            f"{path}: {rest[-1].get('lines')} series were written but {len(series)} are there;"
            " probe again"
        )
    return header, series, ended


def read_measurements(path: Path) -> Measurements:
    """A complete measurements file; raises InputError for a missing, damaged or unfinished one."""
    try:
        header, series, ended = read_partial(path)
    except (OSError, UnicodeDecodeError) as reason:
        raise InputError(f"{path}: cannot be read as measurements: {reason}") from None
    if header is None or not ended:
        raise InputError(
            f"{path}: incomplete, it ends after {len(series)} series; run the probe again,"
            " it resumes where it stopped"
        )
    return replace(_described(header), series=tuple(series))
