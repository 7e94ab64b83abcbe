"""Prometheus metrics that NCCL's Inspector plugin writes about the last calls of each GPU.

    nccl_collective_exec_time_microseconds{comm_id="0xd152",rank="4",nranks="8",n_nodes="1",
        collective="AllReduce",coll_sn="228",message_size="2.00MB",...} 61

The first versions name call, rank and size, the size to three digits. From v5.1 on, a line is the
mean over all calls in a range of sizes (`message_size="4-5GB"`), which is not a measurement of a
call: it is read and excluded. Source: inspector_prom.cc in the plugin's folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tuner.base.errors import InputError, shortened_repr
from tuner.importers import text
from tuner.importers.inspector import Communicator, InspectorRecord
from tuner.importers.reading import RANK_LIMIT
from tuner.importers.streaming import RawLine
from tuner.mpi_libraries.nccl.logged import UNKNOWN_ALGORITHM, algo_proto_name, buffer_bytes
from tuner.mpi_libraries.nccl.names import COLLECTIVES

TIME_METRIC = "nccl_collective_exec_time_microseconds"
METRIC_LINE = re.compile(
    rb"nccl_(?:algorithm_bandwidth_gbs|bus_bandwidth_gbs|collective_exec_time_microseconds"
    rb"|p2p_bus_bandwidth_gbs|p2p_exec_time_microseconds|collectives_total)\{"
)
SIZE_RANGE_REASON = (
    "its sizes are told as ranges: let the plugin write JSON (NCCL_INSPECTOR_PROM_DUMP=0)"
)
_METRIC = re.compile(r"([a-z0-9_]{1,80})\{([^}]{0,4000})\} (\S{1,40})\s*")
_LABELS = re.compile(r'(?:[A-Za-z_]\w*="(?:[^"\\]|\\.)*"(?:,|$))*')
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
_SIZE = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,9})?)(B|KB|MB|GB|TB)")
_RANGE = re.compile(r"[0-9]{1,20}-[0-9]{1,20}(?:B|KB|MB|GB|TB)")
_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}


@dataclass
class MetricsFile:
    """A reader of the records of one file, and what it noticed in the file.

    dropped_collectives     always 0: metrics do not say what was dropped
    truncation_reason       why the end of the file is missing; "" for a complete file
    unknown_version         always "": metrics do not have the version of their format
    """

    dropped_collectives: int = 0
    truncation_reason: str = ""
    unknown_version: str = ""

    def records(self, lines: Iterable[RawLine]) -> Iterator[InspectorRecord]:
        """Yield each collective; raise InputError with the line number for damaged lines."""
        for line in lines:
            words = line.content.decode("utf-8", "replace")
            if not words.startswith(TIME_METRIC):
                continue
            found = _METRIC.fullmatch(words.rstrip("\r\n"))
            if found is not None and _LABELS.fullmatch(found[2]):
                yield _record(line.number, dict(_LABEL.findall(found[2])), found[3])
            elif line.is_complete:
                raise InputError(
                    f"line {line.number}: damaged: no metric with its labels and value"
                    f" is {shortened_repr(words.strip())}"
                )
            else:
                self.truncation_reason = f"its last line ({line.number}) is cut off"


def _record(number: int, labels: Mapping[str, str], value: str) -> InspectorRecord:
    p = _label(number, labels, 1, "nranks", "n_ranks")
    nodes = _label(number, labels, 1, "n_nodes", "nnodes")
    function = labels.get("collective", "")
    if not function.isprintable() or not 0 < len(function) <= 40 or nodes > p:
        raise InputError(
            f"line {number}: no {shortened_repr(function)} is on {p} ranks of {nodes} nodes"
        )
    size = labels.get("message_size", "")
    seconds = text.parse_microseconds(value, "the time", number)
    if _RANGE.fullmatch(size) or "coll_sn" not in labels:
        return InspectorRecord(
            number,
            Communicator(labels.get("comm_name", ""), p, nodes),
            0,
            function,
            0,
            None,
            seconds,
            _algorithm(labels.get("algo_proto", "")),
            SIZE_RANGE_REASON,
        )
    rank = _label(number, labels, 0, "rank")
    if rank >= p:
        raise InputError(f"line {number}: the rank must be below {p}, not {rank}")
    communicator = Communicator(labels.get("comm_id", ""), p, nodes)
    return InspectorRecord(
        number,
        communicator,
        rank,
        function,
        text.parse_int(labels["coll_sn"], "coll_sn", number),
        _nbytes(number, function, size, p),
        seconds,
    )


def _label(number: int, labels: Mapping[str, str], minimum: int, *names: str) -> int:
    """Return the integer value of the first of these labels that is present."""
    name = next((name for name in names if name in labels), names[0])
    value = text.parse_int(labels.get(name, ""), f"the label {name}", number, minimum)
    if value >= RANK_LIMIT:
        raise InputError(
            f"line {number}: the label {name} cannot be {shortened_repr(labels[name])}"
        )
    return value


def _nbytes(number: int, function: str, size: str, p: int) -> int:
    """Return the bytes of the whole buffer, to the three digits of the label."""
    found = _SIZE.fullmatch(size)
    if found is None:
        raise InputError(f"line {number}: the label message_size cannot be {shortened_repr(size)}")
    per_rank = round(float(found[1]) * _UNITS[found[2]])
    collective = COLLECTIVES.get(function)
    return per_rank if collective is None else buffer_bytes(collective, per_rank, p)


def _algorithm(words: str) -> str:
    """Return `ring_ll` for `Ring_ll`, or "" where the algorithm is unknown."""
    algorithm, _, protocol = words.rpartition("_")
    if (
        not re.fullmatch(r"[A-Za-z0-9_]{1,80}", words)
        or UNKNOWN_ALGORITHM in words
        or not algorithm
    ):
        return ""
    return algo_proto_name(algorithm, protocol)
