"""Measurements files, which a probe writes: one NDJSON line per measured series.

Line 1 is a header (`kind: probe`) naming cluster and library; every further line is a
`Measurement`; the last line of a finished probe is `{"kind": "end", "lines": N}`. A file without
that last line is incomplete: the probe resumes it, every other reader refuses it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from tuner.base.atomic_io import dataclass_from_record
from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.core.path_classes import BLOCK, HOST, PlacementMixin, omit_default_placement

FORMAT_VERSION = 1
REQUESTED_CALLS_KEY = "wanted"  # provenance key of the calls that a table is for, measured or not
WRONG_RESULT = "wrong result"  # why an algorithm was excluded
REFUSED = "refused"  # begins the reason why one was excluded from a call
# Limits of a sample that is not 0; beyond them, ratios and squares could overflow a float.
MIN_SAMPLE_S = 1e-12  # far less than a cycle of any clock
MAX_SAMPLE_S = 1e6  # eleven days
MIN_LAUNCHES = 3  # with fewer, only gains that hardly vary from launch to launch are seen
T = TypeVar("T")


@dataclass(frozen=True)
class Cluster:
    """The machine that measurements belong to; clusters are the same iff these fields are equal."""

    name: str
    nodes: int
    cores: int  # per node
    cpu: str
    memory: int  # bytes per node

    def __str__(self) -> str:
        return cluster_title(self.name, self.nodes)


def cluster_title(name: str, hosts: int) -> str:
    """Return the name of a machine in titles: `ares17`, or `cluster ares (4 hosts)`."""
    return f"cluster {name} ({hosts} hosts)" if hosts > 1 else name


def point_label(kind: str, subject: str, shape: str, nbytes: int | None, memory: str) -> str:
    """Return the label of a point in reports, such as `collective bcast 4x2 1024 B cuda`."""
    size = "" if nbytes is None else f" {nbytes} B"
    where = "" if memory == HOST else f" {memory}"
    return f"{kind} {subject} {shape}{size}{where}"


def provenance_texts(provenance: Mapping[str, Any], name: str) -> list[str]:
    """Return a list of texts in a provenance; empty for anything else, as anybody may write it."""
    found = provenance.get(name)
    texts = list(found) if isinstance(found, list | tuple) else []
    return texts if all(isinstance(one, str) for one in texts) else []


def format_exclusion(point: str, algorithm: str, reason: str = WRONG_RESULT) -> str:
    """Return the line of a file's provenance about an algorithm that was left out at a point."""
    return f"{point}: {algorithm}: {reason}"


def parse_exclusion(line: str) -> tuple[str, str, str]:
    """Return point, algorithm and reason of an exclusion line.

    The algorithm is empty if the line is about the whole point.
    """
    call, _, rest = line.partition(": ")
    candidate, _, why = rest.partition(": ")
    return (call, candidate, why) if why else (call, "", rest)


def parse_incorrect_algorithms(excluded: Iterable[str]) -> frozenset[tuple[str, str]]:
    """Return (collective, algorithm) for every exclusion of a collective because of wrong results.

    The algorithm, of the library or a schedule of ours, is without its parameters. Where a call was
    refused, return (label of the call, algorithm with its parameters).
    """
    found = set()
    for line in excluded:
        call, candidate, why = parse_exclusion(line)
        kind, _, rest = call.partition(" ")
        if kind == "collective" and why == WRONG_RESULT:
            name, _, behind = candidate.partition("(")
            found.add((rest.partition(" ")[0], name + behind.rpartition(")")[2]))
        elif kind == "collective" and why.startswith(REFUSED):
            found.add((call, candidate))
    return frozenset(found)


@dataclass(frozen=True)
class Measurement(PlacementMixin):
    """One series of timings of one thing.

    kind        collective (run by the library) | schedule (a collective by one of ours) |
                pingpong | exchange | fan | burst | overhead | eager | pairs | sweep | sentinel |
                reduction | call; on devices also copy | launch | pointer, and nccl: a collective
                of NCCL
    subject     the collective; a path class such as `node` or `network`; the shared resource
                (`nic`, `uplink`, `memory_bus`); the operator; the kind of a copy
                (`h2d_pinned`, `d2d`, `ipc_same_gpu`)
    p           ranks that took part (messages: ranks busy at the same time)
    nbytes      bytes of the user's buffer (per rank)
    algorithm   canonical name, `default` for the library default; "" where meaningless
    params      e.g. {"segment": 65536, "radix": 4}; NCCL's protocol by its own number (0 LL,
                1 LL128, 2 Simple)
    samples     seconds, in the order taken; samples of one point (same kind, subject, p,
                nbytes) and launch with the same index were taken back to back: ratios pair
    launch      number of the launch of the ranks; their cores differ from launch to launch
    placement   of the ranks on the nodes, one of `tuner.core.path_classes.PLACEMENTS`
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
    placement: str = BLOCK

    @property
    def collective(self) -> Collective:
        """Return the collective of a series of calls; raise InputError for an unknown one."""
        try:
            return Collective(self.subject)
        except ValueError:
            known = ", ".join(Collective)
            raise InputError(
                f"measurements: expected a collective, got {shortened_repr(self.subject)}; known:"
                f" {known}"
            ) from None

    @property
    def point(self) -> tuple[str, str, int, int, int, int, str, str]:
        """Return the fields that compared series have in common: the call and its kind."""
        return (
            self.kind,
            self.subject,
            self.nodes,
            self.ppn,
            self.p,
            self.nbytes,
            self.memory,
            self.placement,
        )


@dataclass(frozen=True)
class Measurements:
    """A complete probe: cluster, library, provenance and all its series."""

    cluster: Cluster
    library: str  # "openmpi 5.0.11"
    provenance: Mapping[str, Any]
    series: tuple[Measurement, ...]


def launches_of_calls(series: Iterable[Measurement]) -> int:
    """Return in how many launches calls were timed, with the number of ranks that had most."""
    calls = {(one.launch, one.p) for one in series if one.kind == "collective"}
    return max(Counter(p for _, p in calls).values(), default=0)


def header_line(cluster: Cluster, library: str, provenance: Mapping[str, Any]) -> str:
    """Return the first line of a measurements file."""
    return json.dumps(
        {
            "kind": "probe",
            "version": FORMAT_VERSION,
            "cluster": asdict(cluster),
            "library": library,
            "provenance": dict(provenance),
        }
    )


def series_line(series: Measurement) -> str:
    """Return the line of a series in a measurements file."""
    return json.dumps(omit_default_placement(asdict(series)))


def end_line(lines: int) -> str:
    """Return the last line of a finished measurements file; `lines` counts the series."""
    return json.dumps({"kind": "end", "lines": lines})


def _parse_header(header: Mapping[str, Any]) -> Measurements:
    """Return the content of a header, without series; raise ValueError or TypeError otherwise."""
    fields = {name: value for name, value in header.items() if name not in ("kind", "version")}
    if header["kind"] != "probe" or header.get("version") != FORMAT_VERSION:
        raise ValueError("another kind or version")
    return dataclass_from_record(Measurements, {**fields, "series": []})


def _parse_series(record: Mapping[str, Any]) -> Measurement:
    series = dataclass_from_record(Measurement, record)
    if min(series.nodes, series.ppn, series.p) < 1 or series.nbytes < 0 or series.launch < 0:
        raise ValueError("it needs nodes, ppn and p of at least 1 and nbytes of at least 0")
    if max(series.nodes, series.ppn, series.p, series.launch, series.nbytes >> 32) >= 2**31:
        raise ValueError("nodes, ppn, p and launch are below 2^31, nbytes is below 2^63")
    if not series.samples:
        raise ValueError("it needs at least one sample")
    if max(series.samples) > MAX_SAMPLE_S or (
        min(series.samples) < MIN_SAMPLE_S
        and any(t < MIN_SAMPLE_S and t != 0 for t in series.samples)
    ):
        raise ValueError(f"samples are 0 s or {MIN_SAMPLE_S:g} to {MAX_SAMPLE_S:g} s")
    return series


def _parse_record(
    name: str, line: int, complaint: str, read: Callable[[Any], T], record: dict[str, Any]
) -> T:
    try:
        return read(record)
    except (ValueError, TypeError) as reason:
        raise InputError(f"{name}, line {line}: {complaint}: {reason}") from None


def unreadable_file_error(name: object, reason: OSError | UnicodeDecodeError) -> InputError:
    """Return the InputError for a measurements file that cannot be read or decoded."""
    why = reason.strerror if isinstance(reason, OSError) else "no text in UTF-8"
    return InputError(
        f"{name}: cannot be read as measurements: {why}; give a file that `tuner probe` wrote"
    )


class MeasurementReader:
    """A reader of a measurements file, line by line, with one line in memory at a time.

    header      the record of line 1; None for an empty file
    metadata    the parsed header, without series; missing for an empty file
    is_complete whether the end line was found; known once `series` is exhausted

    The last line may be cut off, as a killed probe leaves it; it is dropped. `name` is the file's
    name in errors. Raises InputError at the first malformed line.
    """

    def __init__(self, lines: Iterable[str], name: str) -> None:
        self.name = name
        self.is_complete = False
        self._records = self._parse_lines(lines)
        self.header: dict[str, Any] | None = next(self._records, None)
        if self.header is not None:
            self.metadata = _parse_record(
                name,
                1,
                f"not the header of a version-{FORMAT_VERSION} probe",
                _parse_header,
                self.header,
            )

    def series(self) -> Iterator[Measurement]:
        """Yield the series in the file's order; this works only once."""
        count, held = 0, None  # an end line counts only if nothing follows it
        for record in self._records:
            if held is not None:
                yield self._parse_measurement(count, held)
                count += 1
            held = record
        if held is not None and held["kind"] != "end":
            yield self._parse_measurement(count, held)
        elif held is not None:
            self._check_end(count, held)

    def require_complete(self, count: int) -> None:
        """Raise InputError unless the end line was found; `count` series were read."""
        if not self.is_complete:
            raise InputError(
                f"{self.name}: incomplete, it ends after {count} series; run the probe again,"
                " it resumes where it stopped"
            )

    def _parse_measurement(self, count: int, record: dict[str, Any]) -> Measurement:
        return _parse_record(self.name, count + 2, "not a measurement", _parse_series, record)

    def _check_end(self, count: int, record: dict[str, Any]) -> None:
        self.is_complete = True
        if record.get("lines") != count:
            raise InputError(
                f"{self.name}: {record.get('lines')} series were written but {count} are there;"
                " probe again"
            )

    def _parse_lines(self, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
        for number, line in enumerate(lines, start=1):
            if not line.endswith("\n"):
                return
            try:
                record = json.loads(line)
                if not isinstance(record, dict) or "kind" not in record:
                    raise ValueError
            except (ValueError, RecursionError):
                raise InputError(
                    f"{self.name}, line {number}: not a measurement; probe again, into another"
                    " file, or read results of other programs with `tuner import-results`"
                ) from None
            yield record


def read_partial(path: Path) -> tuple[dict[str, Any] | None, list[Measurement], bool]:
    """Read a file that may be incomplete; return header, series and whether the end line was found.

    The header is None for an empty file. Raises InputError for any malformed line, except a last
    one that is cut off.
    """
    with path.open(encoding="utf-8") as lines:
        reader = MeasurementReader(lines, str(path))
        return reader.header, list(reader.series()), reader.is_complete


def read_measurements(path: Path) -> Measurements:
    """Read a complete measurements file; raise InputError if missing, damaged or unfinished."""
    try:
        with path.open(encoding="utf-8") as lines:
            reader = MeasurementReader(lines, str(path))
            series = tuple(reader.series())
    except (OSError, UnicodeDecodeError) as reason:
        raise unreadable_file_error(path, reason) from None
    reader.require_complete(len(series))
    return replace(reader.metadata, series=series)
