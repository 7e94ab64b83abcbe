"""Output of NCCL's Inspector plugin: a line of JSON per collective of each rank.

    {"header": {"id": "0x7f8c", "rank": 2, "n_ranks": 8, "nnodes": 1},
     "metadata": {"inspector_output_format_version": "v4.0", "hostname": "node1", "pid": 163, ...},
     "coll_perf": {"coll": "AllReduce", "coll_sn": 1407, "coll_msg_size_bytes": 1048576,
                   "coll_exec_time_us": 61, "coll_timing_source": "kernel_gpu", ...}}

From v4.1 on, a line with `dump_stats` begins each batch and counts its lines; from v4.2 on,
`coll_algo` and `coll_proto` name the algorithm that ran; from v4.3 on, only the line that begins a
batch has the header. Sizes of allgather and reduce-scatter are those of one rank's part. Every
process writes a file, and one that was killed leaves its last line or batch truncated.

Source: plugins/profiler/inspector of NVIDIA/nccl, earlier ext-profiler/inspector.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tuner.base.errors import InputError, shortened_repr
from tuner.base.units import plural
from tuner.core.measurement import MAX_SAMPLE_S
from tuner.importers.reading import RANK_LIMIT
from tuner.importers.streaming import RawLine
from tuner.importers.text import INT64_LIMIT
from tuner.mpi_libraries.nccl.logged import UNKNOWN_ALGORITHM, algo_proto_name, buffer_bytes
from tuner.mpi_libraries.nccl.names import COLLECTIVES

FIRST_LINE = re.compile(rb'\s*\{\s*"(?:header|coll_perf|p2p_perf|proxy_trace)"\s*:')
FORMAT_MAJOR = 4  # major version that is supported
NEWEST_KNOWN_VERSION = (4, 4)  # newest version whose format is known
FIRST_BATCHED_VERSION = (4, 3)  # first version with one header per batch
_VERSION = re.compile(r"v([0-9]{1,3})\.([0-9]{1,3})")
_RECORD_COUNTERS = {
    "coll_perf": "coll_records",
    "p2p_perf": "p2p_records",
    "proxy_trace": "proxy_records",
}
_CPU_TIMED = "timed by the CPU"
_MAX_COMMUNICATORS = 10_000  # communicators that are kept to be shared by records
_MAX_ID_CHARACTERS = 200  # characters


@dataclass(frozen=True, slots=True)
class Communicator:
    """The communicator of a collective."""

    comm_id: str
    p: int
    nodes: int


@dataclass(frozen=True, slots=True)
class InspectorRecord:
    """A collective as recorded by one rank.

    line                number of the line in its file
    function            the collective as NCCL calls it
    sequence_number     of the call among those of this collective on this communicator
    nbytes              of the whole buffer; None for a type that the plugin did not know
    seconds             0 where no time was recorded
    algorithm           such as `ring_ll128`; "" where the file does not say
    exclusion_reason    why this is not a measurement; "" where it is
    """

    line: int
    communicator: Communicator
    rank: int
    function: str
    sequence_number: int
    nbytes: int | None
    seconds: float
    algorithm: str = ""
    exclusion_reason: str = ""


@dataclass
class _Batch:
    """A batch of lines as announced by its line with `dump_stats`."""

    line: int
    header: Mapping[str, Any]
    strict: bool
    remaining: Counter[str]


@dataclass
class InspectorFile:
    """A reader of the records of one file, and what it noticed in the file.

    dropped_collectives     collectives that the plugin dropped before it could write them
    truncation_reason       why the end of the file is missing; "" for a complete file
    unknown_version         version of the format, such as `v4.7`, if later than the newest known;
                            "" otherwise
    """

    dropped_collectives: int = 0
    truncation_reason: str = ""
    unknown_version: str = ""
    _batch: _Batch | None = field(default=None, repr=False)
    _communicators: dict[tuple[Any, ...], Communicator] = field(default_factory=dict, repr=False)

    def records(self, lines: Iterable[RawLine]) -> Iterator[InspectorRecord]:
        """Yield each collective; raise InputError with the line number for damaged lines."""
        for line in lines:
            if not line.content.strip():
                continue
            try:
                content = _object(line)
            except InputError:
                if line.is_complete:
                    raise
                self.truncation_reason = f"its last line ({line.number}) is cut off"
                return
            record = self._record(line.number, content)
            if record is not None:
                yield record
        self.truncation_reason = self._missing()

    def _record(self, number: int, content: Mapping[str, Any]) -> InspectorRecord | None:
        kind = next((name for name in _RECORD_COUNTERS if name in content), "")
        if "dump_stats" in content:
            self._begin(number, content)
            return None
        header = self._header(number, kind, content)
        if kind != "coll_perf":
            return None
        call = _mapping(content, kind, number)
        communicator, rank = self._communicator_and_rank(number, header)
        return _collective(number, communicator, rank, call)

    def _begin(self, number: int, content: Mapping[str, Any]) -> None:
        self._require_complete(number)
        stats = _mapping(content, "dump_stats", number)
        counts = {
            kind: _whole(stats.get(name, 0), name, number)
            for kind, name in _RECORD_COUNTERS.items()
        }
        self.dropped_collectives += _whole(
            stats.get("coll_dropped_since_last_dump", 0), "coll_dropped_since_last_dump", number
        )
        self._batch = _Batch(
            number,
            _mapping(content, "header", number),
            self._version(number, content) >= FIRST_BATCHED_VERSION,
            Counter(counts),
        )

    def _header(self, number: int, kind: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the header of a line, or that of its batch where the line has none."""
        if not kind:
            raise InputError(
                f"line {number}: none of {', '.join(_RECORD_COUNTERS)} and dump_stats is in"
                " it: it is damaged, or no line of NCCL's Inspector"
            )
        batch = self._batch
        counted = batch is not None and batch.remaining[kind] > 0
        if batch is not None and counted:
            batch.remaining[kind] -= 1
        if "header" in content:
            self._version(number, content)
            return _mapping(content, "header", number)
        if batch is None or not counted:
            raise InputError(
                f"line {number}: it does not say of which communicator it is, and no line before"
                " it does: lines were removed; give the file as the plugin wrote it"
            )
        return batch.header

    def _version(self, number: int, content: Mapping[str, Any]) -> tuple[int, int]:
        """Return (4, 3) for `v4.3`; raise InputError for another major version."""
        written = _mapping(content, "metadata", number).get("inspector_output_format_version")
        found = _VERSION.fullmatch(written) if type(written) is str else None
        if found is None or int(found[1]) != FORMAT_MAJOR:
            raise InputError(
                f"line {number}: format {shortened_repr(written)} of NCCL's Inspector, of"
                f" which versions v{FORMAT_MAJOR}.x are read"
            )
        version = int(found[1]), int(found[2])
        if version > NEWEST_KNOWN_VERSION:
            self.unknown_version = found[0]
        return version

    def _communicator_and_rank(
        self, number: int, header: Mapping[str, Any]
    ) -> tuple[Communicator, int]:
        p = _whole(header.get("n_ranks"), "n_ranks", number, 1, RANK_LIMIT)
        nodes = _whole(header.get("nnodes"), "nnodes", number, 1, RANK_LIMIT)
        rank = _whole(header.get("rank"), "rank", number, 0, p)
        identity = header.get("id")
        if type(identity) is not str or not 0 < len(identity) <= _MAX_ID_CHARACTERS:
            raise InputError(
                f"line {number}: the communicator's id cannot be {shortened_repr(identity)}"
            )
        if nodes > p:
            raise InputError(f"line {number}: {p} ranks cannot be on {nodes} nodes")
        if len(self._communicators) >= _MAX_COMMUNICATORS:
            self._communicators.clear()
        known = self._communicators.setdefault(
            (identity, p, nodes), Communicator(identity, p, nodes)
        )
        return known, rank

    def _require_complete(self, number: int) -> None:
        """Raise InputError where a batch begins before the previous one is complete."""
        if missing := self._missing():
            raise InputError(f"line {number}: {missing}: give the file as the plugin wrote it")

    def _missing(self) -> str:
        """Return what is missing in the last batch, or "" where it is complete.

        Before v4.3 every line has a header, so that lines may be removed from a file.
        """
        batch = self._batch
        if batch is None or not batch.strict or not batch.remaining.total():
            return ""
        return (
            f"{plural(batch.remaining.total(), 'line')} missing of those that line {batch.line}"
            " announces"
        )


def _object(line: RawLine) -> dict[str, Any]:
    try:
        content = json.loads(line.content, parse_constant=_no_constant)
    except json.JSONDecodeError as reason:
        raise InputError(
            f"line {line.number}: damaged or cut off at character {reason.pos + 1}: {reason.msg}"
        ) from None
    except (ValueError, RecursionError):
        raise InputError(f"line {line.number}: not JSON as NCCL's Inspector writes it") from None
    if not isinstance(content, dict):
        raise InputError(f"line {line.number}: not JSON as NCCL's Inspector writes it")
    return content


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _collective(
    number: int, communicator: Communicator, rank: int, call: Mapping[str, Any]
) -> InspectorRecord:
    function = call.get("coll")
    if type(function) is not str or not function.isprintable() or not 0 < len(function) <= 40:
        raise InputError(f"line {number}: coll cannot be {shortened_repr(function)}")
    per_rank = _whole(call.get("coll_msg_size_bytes"), "coll_msg_size_bytes", number, 0, 2**64)
    known = COLLECTIVES.get(function)
    nbytes = per_rank if known is None else buffer_bytes(known, per_rank, communicator.p)
    return InspectorRecord(
        number,
        communicator,
        rank,
        function,
        _whole(call.get("coll_sn"), "coll_sn", number),
        nbytes if per_rank < INT64_LIMIT else None,
        _seconds(call.get("coll_exec_time_us"), number),
        _algorithm(number, call),
        _exclusion_reason(per_rank, call),
    )


def _exclusion_reason(per_rank: int, call: Mapping[str, Any]) -> str:
    """Return why a collective is not a measurement, or "" where it is."""
    source = call.get("coll_timing_source", "kernel_gpu")
    if per_rank >= INT64_LIMIT:
        return "of a type that the plugin did not know, which leaves the size open"
    return "" if source == "kernel_gpu" else _CPU_TIMED


def _algorithm(number: int, call: Mapping[str, Any]) -> str:
    words = [call.get(name, UNKNOWN_ALGORITHM) for name in ("coll_algo", "coll_proto")]
    for word in words:
        if type(word) is not str or not re.fullmatch(r"[A-Za-z0-9_]{1,40}", word):
            raise InputError(f"line {number}: expected a name like LL, not {shortened_repr(word)}")
    return "" if UNKNOWN_ALGORITHM in words else algo_proto_name(*words)


def _mapping(content: Mapping[str, Any], name: str, number: int) -> Mapping[str, Any]:
    value = content.get(name)
    if not isinstance(value, dict):
        raise InputError(f"line {number}: {name} cannot be {shortened_repr(value)}")
    return value


def _whole(value: Any, name: str, number: int, minimum: int = 0, end: int = INT64_LIMIT) -> int:
    """Return an integer from `minimum` to below `end`; raise InputError for any other value."""
    if type(value) is not int or not minimum <= value < end:
        raise InputError(f"line {number}: {name} cannot be {shortened_repr(value)}")
    return value


def _seconds(value: Any, number: int) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 1e6 * MAX_SAMPLE_S or math.isnan(value):
        raise InputError(f"line {number}: coll_exec_time_us cannot be {shortened_repr(value)}")
    return float(value / 1e6)
