"""The CSV of NCCL's example tuner plugin: read it strictly, and decide with it as NCCL does.

A row is `collective,first,last,algorithm,protocol,channels,nodes,ranks[,pipe_ops[,registered]]`;
sizes are inclusive and those of the whole buffer, -1 stands for any, and the first row that matches
applies (plugins/tuner/example of NVIDIA/nccl 2.30.7, ext-tuner/example of ROCm/rccl). Whatever the
plugin would silently drop or misread raises InputError here.

Channels: where a row says -1 or no row matches, NVIDIA's plugin sets 1 channel and AMD's leaves the
number to RCCL; where a row says 0, both leave it to the library.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.formats import strict_parsing
from tuner.mpi_libraries.nccl.constants import PROTOCOLS, AlgoProto
from tuner.mpi_libraries.nccl.names import MAX_CHANNELS, NCCL_COLLECTIVES, algo_protos_of, choice_of

NCCL, RCCL = "nccl", "rccl"
COLLECTIVE_NAMES = {
    collective: known.name.lower() for collective, known in NCCL_COLLECTIVES.items()
}
COLLECTIVES = {name: collective for collective, name in COLLECTIVE_NAMES.items()}
ANY = -1
MAX_SIZE_BYTES = 2**64 - 1  # the plugin's own sample has 2^32 - 1, which ends at 4 GiB
MAX_LINE_BYTES = 254  # C versions of the plugin break longer lines in two
MAX_ROWS = 100_000
FIELD_COUNTS = (8, 9, 10)
_Conditions = tuple[int, int, int, int]


@dataclass(frozen=True)
class PluginCall:
    """One call as the plugin sees it.

    nbytes      bytes of the whole buffer
    pipe_ops    number of calls that NCCL runs in one operation
    registered  whether the buffers are registered (1) or not (0)
    """

    collective: Collective
    nodes: int
    p: int
    nbytes: int
    pipe_ops: int = 1
    registered: int = 0


@dataclass(frozen=True)
class CsvRule:
    """One row of the file; sizes are inclusive."""

    collective: Collective
    min_bytes: int
    max_bytes: int
    algo_proto: AlgoProto
    channels: int
    nodes: int = ANY
    ranks: int = ANY
    pipe_ops: int = ANY
    registered: int = ANY

    @property
    def conditions(self) -> _Conditions:
        """The conditions on a call besides its collective and size."""
        return self.nodes, self.ranks, self.pipe_ops, self.registered

    def matches(self, call: PluginCall) -> bool:
        """Return whether the row decides this call, unless an earlier one does."""
        told = (call.nodes, call.p, call.pipe_ops, call.registered)
        return (
            self.collective is call.collective
            and self.min_bytes <= call.nbytes <= self.max_bytes
            and all(c in (ANY, value) for c, value in zip(self.conditions, told, strict=True))
        )

    def __str__(self) -> str:
        """Return the row as written in the file."""
        way = f"{self.algo_proto.algorithm},{self.algo_proto.protocol.lower()}"
        name = COLLECTIVE_NAMES[self.collective]
        text = f"{name},{self.min_bytes},{self.max_bytes},{way},{self.channels}"
        return f"{text},{self.nodes},{self.ranks}"


def decide(rows: Sequence[CsvRule], call: PluginCall) -> AlgorithmChoice | None:
    """Return the choice that the plugin makes NCCL run; None where no row matches.

    NCCL then chooses itself, limited to one channel under NVIDIA's plugin.
    """
    row = next((row for row in rows if row.matches(call)), None)
    return choice_of(row.algo_proto, max(row.channels, 0)) if row else None


def parse(text: str, family: str = NCCL) -> tuple[CsvRule, ...]:
    """Return the rows of a file for `nccl` or `rccl`; raises InputError naming the line."""
    rows, numbers = list[CsvRule](), list[int]()
    for number, line in enumerate(text.split("\n"), start=1):
        if not line or line.startswith("#"):
            continue
        try:
            rows.append(_parse_row(line, family))
        except InputError as reason:
            raise InputError(f"tuner file, line {number}: {reason}") from None
        numbers.append(number)
        if len(rows) > MAX_ROWS:
            raise InputError(f"tuner file: more than {MAX_ROWS} rows")
    if not rows and family == NCCL:
        raise InputError("tuner file: no row in it: all calls would run on one channel")
    _require_reachable(rows, numbers)
    return tuple(rows)


def _parse_row(line: str, family: str) -> CsvRule:
    if strict_parsing.encoded_length(line) > MAX_LINE_BYTES:
        raise InputError(
            f"longer than {MAX_LINE_BYTES} characters: the plugin would break it in two"
        )
    fields = [field.strip(" \t") for field in line.split(",")]
    if len(fields) not in FIELD_COUNTS or line[0] in " \t":
        raise InputError(
            f"{shortened_repr(line)} has {len(fields)} fields of 8 to 10 and would be silently"
            " dropped; a comment begins with # in the first column"
        )
    collective, way = _parse_algo_proto(fields)
    first, last, channels, *conditions = map(_parse_number, fields[1:3] + fields[5:])
    if first == ANY or not first <= last:
        raise InputError(f"no size is from {first} to {last} bytes")
    if channels > MAX_CHANNELS or (channels == ANY and family == NCCL):
        raise InputError(
            f"{channels} channels: give 1 to {MAX_CHANNELS}, or 0 for NCCL's own number; -1 would"
            " mean one channel"
        )
    if max(conditions) > 2**31 - 1:
        raise InputError(f"{max(conditions)} ranks or nodes: the plugin would misread the number")
    return CsvRule(collective, first, last, way, channels, *conditions)


def _parse_algo_proto(fields: Sequence[str]) -> tuple[Collective, AlgoProto]:
    name, algorithm, protocol = fields[0], fields[3], fields[4]
    if name not in COLLECTIVES:
        raise InputError(
            f"{shortened_repr(name)} is none of {', '.join(COLLECTIVES)}; the plugin would"
            " take it for allreduce"
        )
    collective = COLLECTIVES[name]
    protocols = {known.lower(): known for known in PROTOCOLS}
    algorithms = sorted({known for each in NCCL_COLLECTIVES.values() for known in each.algorithms})
    if algorithm not in algorithms or protocol not in protocols:
        raise InputError(
            f"{shortened_repr(f'{algorithm},{protocol}')} is not an algorithm and protocol of"
            f" {', '.join(algorithms)} and {', '.join(protocols)}; the plugin would take an unknown"
            " algorithm for ring, an unknown protocol for simple"
        )
    way = AlgoProto(algorithm, protocols[protocol])
    if way not in algo_protos_of(collective):
        raise InputError(f"NCCL has no {name} by {way}: the row would be passed over")
    return collective, way


def _parse_number(field: str) -> int:
    value = ANY if field == str(ANY) else strict_parsing.parse_int(field)
    if value is None:
        raise InputError(
            f"{shortened_repr(field)} is not a plain decimal number; the plugin would misread it"
        )
    return value


def _require_reachable(rows: Sequence[CsvRule], numbers: Sequence[int]) -> None:
    """Raise InputError for a row that loses calls meant for it to an earlier row.

    These are overlapping rows with the same conditions, and rows that a more general one covers.
    """
    earlier: dict[tuple[Collective, _Conditions], list[tuple[int, int, int]]] = {}
    for row, number in zip(rows, numbers, strict=True):
        for conditions in _generalisations(row.conditions):
            known = earlier.get((row.collective, conditions), [])
            place = bisect.bisect_right(known, (row.max_bytes, MAX_SIZE_BYTES, 0)) - 1
            if place < 0 or known[place][1] < row.min_bytes:
                continue
            first, last, line = known[place]
            if conditions == row.conditions or (first <= row.min_bytes and row.max_bytes <= last):
                raise InputError(
                    f"tuner file, line {number}: line {line} decides calls of this row before it:"
                    " the first row counts"
                )
        bisect.insort(
            earlier.setdefault((row.collective, row.conditions), []),
            (row.min_bytes, row.max_bytes, number),
        )


def _generalisations(conditions: _Conditions) -> Iterator[_Conditions]:
    """Return the conditions and all versions of them with some replaced by ANY."""
    nodes, ranks, pipe_ops, registered = ({one, ANY} for one in conditions)
    return itertools.product(nodes, ranks, pipe_ops, registered)
