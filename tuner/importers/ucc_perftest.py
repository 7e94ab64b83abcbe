"""Output of ucc_perftest, the benchmark that comes with UCC.

    Collective:             Allreduce
    Memory type:            cuda
    Datatype:               float32
    Reduction:              sum
    ...
           Count        Size                Time, us
                                     avg         min         max
             256        1024       12.50       11.25       14.75
    Total time: 0.01475 ms

Times are the means of each rank, of which the slowest rank's is used. Since version 1.5, which
prints a total time, Size is that of the buffer a rank or the root gives; before it is that of one
block where blocks go to or come from ranks. Bandwidths (option -F) are derived from sizes and
times. Source: tools/perf of openucx/ucc, versions 1.0 to 1.9.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.importers import text
from tuner.importers.reading import (
    COLLECTIVE,
    Benchmark,
    BenchmarkResult,
    UserMetadata,
    collective_subject,
)
from tuner.importers.text import TextLines
from tuner.importers.text_tables import BenchmarkTable, iter_rows
from tuner.topology import CUDA, HOST

HEADER = re.compile(r"\s*Count\s+Size\s+Time, us\b(?:\s+(?:Bus )?Bandwidth, GB/s)?\s*(.*)")
TITLE = re.compile(r"\s*Collective:\s+(\S.{0,79})")
STATISTICS = re.compile(r"\s*avg\s+min\s+max\b(.*)")
FACT = re.compile(r"\s*([A-Z][A-Za-z ]{0,30}):\s*(\S.{0,79})?")
DATATYPE = re.compile(r"[a-z]+([0-9]{1,3})(_complex)?")
NO_VALUE = "N/A"
TOTAL_TIME = "Total time"
_STATISTICS = ("avg", "min", "max")
_MEMORIES = {  # memory type -> memory, and why results in it are no measurements
    "host": (HOST, ""),
    **dict.fromkeys(("cuda", "rocm"), (CUDA, "")),
    **dict.fromkeys(("cuda-managed", "rocm-managed"), (CUDA, "in managed memory")),
}
_KNOWN_FACTS = (
    *("Memory type", "Datatype", "Reduction", "Inplace", "Iteration mode"),
    *("Warmup", "Iterations", TOTAL_TIME),
)
_NEW_FACTS = (TOTAL_TIME, "Iteration mode")  # since 1.5, and since 1.9


@dataclass(kw_only=True)
class _Table(BenchmarkTable):
    """A table with what the lines round it say.

    facts       name before a colon -> number of the line, and the words after the colon
    has_header  whether the first line of the header, with the unit of times, was read
    """

    name: str
    lines: TextLines
    facts: dict[str, tuple[int, str]] = field(default_factory=dict)
    has_header: bool = False

    def read_line(self, number: int, line: str) -> bool:
        if (fact := FACT.fullmatch(line)) and (fact[1] == TOTAL_TIME or not self.columns):
            self._add_fact(number, fact[1], (fact[2] or "").strip())
        elif self.has_header and (statistics := STATISTICS.match(line)):
            names = statistics[1].split()
            self.lines.note_unused_columns(number, [n for n in names if n not in _STATISTICS])
            self.columns = ["count", "size", *_STATISTICS, *(f"{name} rate" for name in names)]
        elif header := HEADER.match(line):
            self.has_header = True
            self.lines.note_unused_columns(number, [header[1].strip()] if header[1] else [])
        else:
            return False
        return True

    def _add_fact(self, number: int, name: str, value: str) -> None:
        """Add a fact, and note one that is not known; raise InputError for one stated twice."""
        if name not in _KNOWN_FACTS:
            said = shortened_repr(f"{name}: {value}")
            self.lines.notes.append(f"{self.lines.source}: line {number}: not used: {said}")
        elif name in self.facts:
            raise InputError(
                f"line {number}: `{name}:` was stated on line {self.facts[name][0]}: several runs"
                " are in one table; measure again, or delete one of the lines"
            )
        self.facts[name] = number, value

    def fact(self, name: str, default: str = "") -> str:
        """Return what the file states under a name."""
        return self.facts[name][1] if name in self.facts else default

    @property
    def benchmark(self) -> Benchmark:
        """Return the benchmark, without a kind for other operations than known collectives."""
        name, subject = f"UCC {self.name}", collective_subject(self.name)
        return Benchmark(name, COLLECTIVE, subject) if subject else Benchmark(name)

    @property
    def operands(self) -> str:
        """Return the datatype, and the operator of a reduction."""
        names = self.fact("Datatype"), self.fact("Reduction")
        return " ".join(name for name in names if name not in ("", NO_VALUE))

    def nbytes(self, size: int, p: int) -> int:
        """Return the bytes of the whole buffer."""
        sent, received = Collective(self.benchmark.subject).blocks(p)
        return size * max(sent, received) // (sent if self.is_new else 1)

    @property
    def is_new(self) -> bool:
        """Return whether sizes are those of what is sent."""
        return any(name in self.facts for name in _NEW_FACTS)


def parse_ucc_perftest(lines: TextLines, metadata: UserMetadata) -> Iterator[BenchmarkResult]:
    """Yield one result per row, after the ends, which tell versions; raise InputError."""
    rows = list(iter_rows(lines, partial(_begin, lines), "Collective:  Allreduce"))
    for table in {table.line: table for table, _, _ in rows}.values():
        lines.notes.extend(f"{lines.source}: {note}" for note in _notes(table))
    for table, number, words in rows:
        yield _reading(lines.source, number, words, table, metadata)


def _begin(lines: TextLines, number: int, line: str) -> _Table | None:
    found = TITLE.fullmatch(line)
    name = found[1].strip() if found else ""
    return _Table(number, f"`Collective: {name}`", name=name, lines=lines) if found else None


def _notes(table: _Table) -> Iterator[str]:
    """Yield sentences on what a table says and its results do not; raise InputError."""
    subject = table.benchmark.subject
    if subject and Collective(subject).blocks(2)[0] > 1 and not table.is_new:
        yield (
            f"line {table.line}: it ends without a total time, as before version 1.5, whose sizes"
            " are of one block"
        )
    line, place = table.facts.get("Inplace", (table.line, NO_VALUE))
    if place not in ("0", "1", NO_VALUE):
        raise InputError(f"line {line}: Inplace is 0, 1 or N/A, not {shortened_repr(place)}")
    if place == "1":
        yield f"line {line}: measured in place, with one buffer for both ways"


def _reading(
    source: str, line: int, words: list[str], table: _Table, metadata: UserMetadata
) -> BenchmarkResult:
    benchmark = table.benchmark
    if not benchmark.kind:
        return BenchmarkResult(source, line, benchmark)
    if not table.columns:
        raise InputError(f"line {line}: a row before the header `Count Size Time, us`")
    text.require_fields(words, len(table.columns), line)
    row = dict(zip(table.columns, words, strict=True))
    shape = metadata.rank_counts(line)
    mean, low, high = (text.parse_microseconds(row[name], name, line) for name in _STATISTICS)
    if not low <= mean <= high:
        raise InputError(
            f"line {line}: avg {row['avg']} is not between min {row['min']} and max {row['max']}:"
            " the row is damaged; measure again"
        )
    memory, exclusion_reason = _memory(line, table, metadata)
    return BenchmarkResult(
        source,
        line,
        benchmark,
        table.nbytes(_size(line, row, table), shape.p),
        (high,),
        "slowest rank",
        low,
        high,
        rank_counts=shape,
        algorithm=metadata.algorithm or "default",
        params=dict(metadata.params),
        memory=memory,
        operands=table.operands,
        library="ucc",
        exclusion_reason=exclusion_reason,
    )


def _size(line: int, row: dict[str, str], table: _Table) -> int:
    """Return the bytes as printed, 0 of calls without data.

    Raises InputError where the elements contradict them.
    """
    if not Collective(table.benchmark.subject).has_data:
        return 0
    count, size = (text.parse_int(row[name], f"the {name}", line) for name in ("count", "size"))
    datatype = table.fact("Datatype")
    if known := DATATYPE.fullmatch(datatype):
        parts = 2 if known[2] else 1
        if size != count * parts * int(known[1]) // 8:
            raise InputError(
                f"line {line}: {count} elements of {datatype} are not {size} bytes: the row or the"
                " line `Datatype:` is damaged; measure again"
            )
    return size


def _memory(line: int, table: _Table, metadata: UserMetadata) -> tuple[str, str]:
    """Return the memory, and why a result is no measurement; raise InputError for another one."""
    said = table.fact("Memory type")
    memory, reason = _MEMORIES.get(said, (metadata.memory, ""))
    if not memory:
        raise InputError(
            f"line {line}: {shortened_repr(said)} is not a memory known here"
            f" ({', '.join(_MEMORIES)}): add --memory"
        )
    mode = table.fact("Iteration mode", "isolated")
    if mode != "isolated":
        reason = f"calls follow one another without a barrier ({shortened_repr(mode)})"
    return metadata.memory or memory, reason
