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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NoReturn

from tuner.base.errors import InputError, shortened_repr
from tuner.base.units import plural
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.formats import strict_parsing
from tuner.formats.file_rules import BYTES, INF, NODES, RANKS, FileRule, FileRules, Report
from tuner.mpi_libraries.nccl.constants import PROTOCOLS, RING, SIMPLE, AlgoProto
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
    line: int = field(default=0, compare=False)  # in the file it was read from

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


def _refuse(line: int, text: str) -> NoReturn:
    raise InputError(f"tuner file, line {line}: {text}")


def parse(text: str, family: str = NCCL) -> tuple[CsvRule, ...]:
    """Return the rows of a file for `nccl` or `rccl`; raises InputError naming the line."""
    rows = _parse_rows(text, family, _refuse)
    if not rows and family == NCCL:
        raise InputError("tuner file: expected rows: without, all calls would run on one channel")
    _require_reachable(rows)
    return tuple(rows)


def read(text: str, library: str) -> FileRules:
    """Return the rows of a user's file as the plugin reads them."""
    family = library.partition(" ")[0]
    alone = ", on one channel under NVIDIA's example plugin" if family == NCCL else ""
    found = FileRules(otherwise=f"{family.upper()} decides{alone}")
    quantities = (NODES, RANKS, "calls in one operation", "registered buffers")
    for row in _parse_rows(text, family, found.report):
        box = {BYTES: ((row.min_bytes, INF if row.max_bytes == MAX_SIZE_BYTES else row.max_bytes),)}
        told = zip(quantities, row.conditions, strict=True)
        box |= {quantity: ((value, value),) for quantity, value in told if value != ANY}
        choice = choice_of(row.algo_proto, max(row.channels, 0))
        set_to = abs(row.channels) if family == NCCL else max(row.channels, 0)
        channels = plural(set_to, "channel") if set_to else "channels as the library has them"
        runs = f"{row.algo_proto.algorithm}, {row.algo_proto.protocol}, {channels}"
        found.rules.append(FileRule(row.line, row.collective, box, runs, choice))
    return found


def _parse_rows(text: str, family: str, report: Report) -> list[CsvRule]:
    rows = list[CsvRule]()
    for number, line in enumerate(text.split("\n"), start=1):
        if not line or line.startswith("#"):
            continue
        try:
            row = _parse_row(line, family, partial(report, number))
        except InputError as reason:
            _refuse(number, str(reason).removeprefix(f"tuner file, line {number}: "))
        rows += [replace(row, line=number)] if row else []
        if len(rows) > MAX_ROWS:
            raise InputError(f"tuner file: more than {MAX_ROWS} rows")
    return rows


def _parse_row(line: str, family: str, report: Callable[[str], None]) -> CsvRule | None:
    """Return a row; None for one that the plugin drops, or passes over in every call.

    report      takes what is wrong with the row
    """
    if strict_parsing.encoded_length(line) > MAX_LINE_BYTES:
        raise InputError(
            f"longer than {MAX_LINE_BYTES} characters: the plugin would break it in two"
        )
    fields = [field.strip(" \t") for field in line.split(",")]
    if len(fields) not in FIELD_COUNTS or line[0] in " \t":
        report(
            f"{shortened_repr(line)} has {len(fields)} fields of 8 to 10 and would be silently"
            " dropped; a comment begins with # in the first column"
        )
        return None
    collective, way = _parse_algo_proto(fields, report)
    first, last, channels, *conditions = map(_parse_number, fields[1:3] + fields[5:])
    if first == ANY or not first <= last:
        report(f"sizes must ascend from 0 or more, not {first} to {last} bytes")
        return None
    if channels > MAX_CHANNELS or (channels == ANY and family == NCCL):
        report(
            f"{channels} channels: give 1 to {MAX_CHANNELS}, or 0 for NCCL's own number; -1 would"
            " mean one channel"
        )
    if max(conditions) > 2**31 - 1:
        raise InputError(f"{max(conditions)} ranks or nodes: the plugin would misread the number")
    if way not in algo_protos_of(collective):
        name = COLLECTIVE_NAMES[collective]
        report(f"NCCL has no {name} by {way}: the row would be passed over")
        return None
    return CsvRule(collective, first, last, way, channels, *conditions)


def _parse_algo_proto(
    fields: Sequence[str], report: Callable[[str], None]
) -> tuple[Collective, AlgoProto]:
    name, algorithm, protocol = fields[0], fields[3], fields[4]
    if name not in COLLECTIVES:
        report(
            f"{shortened_repr(name)} is none of {', '.join(COLLECTIVES)}; the plugin would"
            " take it for allreduce"
        )
    protocols = {known.lower(): known for known in PROTOCOLS}
    algorithms = sorted({known for each in NCCL_COLLECTIVES.values() for known in each.algorithms})
    if algorithm not in algorithms or protocol not in protocols:
        report(
            f"{shortened_repr(f'{algorithm},{protocol}')} is not an algorithm and protocol of"
            f" {', '.join(algorithms)} and {', '.join(protocols)}; the plugin would take an unknown"
            " algorithm for ring, an unknown protocol for simple"
        )
    collective = COLLECTIVES.get(name, Collective.ALLREDUCE)
    taken = algorithm if algorithm in algorithms else RING
    return collective, AlgoProto(taken, protocols.get(protocol, SIMPLE))


def _parse_number(field: str) -> int:
    value = ANY if field == str(ANY) else strict_parsing.parse_int(field)
    if value is None:
        raise InputError(
            f"{shortened_repr(field)} is not a plain decimal number; the plugin would misread it"
        )
    return value


def _require_reachable(rows: Sequence[CsvRule]) -> None:
    """Raise InputError for a row that loses calls meant for it to an earlier row.

    These are overlapping rows with the same conditions, and rows that a more general one covers.
    """
    earlier: dict[tuple[Collective, _Conditions], list[tuple[int, int, int]]] = {}
    for row in rows:
        for conditions in _generalisations(row.conditions):
            known = earlier.get((row.collective, conditions), [])
            place = bisect.bisect_right(known, (row.max_bytes, MAX_SIZE_BYTES, 0)) - 1
            if place < 0 or known[place][1] < row.min_bytes:
                continue
            first, last, line = known[place]
            if conditions == row.conditions or (first <= row.min_bytes and row.max_bytes <= last):
                _refuse(
                    row.line,
                    f"line {line} decides calls of this row before it: the first row counts",
                )
        bisect.insort(
            earlier.setdefault((row.collective, row.conditions), []),
            (row.min_bytes, row.max_bytes, row.line),
        )


def _generalisations(conditions: _Conditions) -> Iterator[_Conditions]:
    """Return the conditions and all versions of them with some replaced by ANY."""
    nodes, ranks, pipe_ops, registered = ({one, ANY} for one in conditions)
    return itertools.product(nodes, ranks, pipe_ops, registered)
