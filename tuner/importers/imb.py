"""Output of the Intel MPI Benchmarks, component MPI-1.

    # Benchmarking Bcast
    # #processes = 2
    # ( 2 additional processes waiting in MPI_Barrier)
           #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
               16           20         1.11         1.52         1.32

Sizes are those that one rank sends or receives: the buffers of allgather, gather, scatter,
all-to-all and reduce-scatter-block are p times as large. The time used is t_max, that of the
slowest rank. A table with fewer ranks than were started is taken to use the first ranks, with
nodes filled one after the other. The root of rooted collectives rotates, so their times differ
from those of OSU.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tuner.base.errors import InputError, shortened_repr
from tuner.importers import text
from tuner.importers.reading import (
    COLLECTIVE,
    EXCHANGE,
    PINGPONG,
    Benchmark,
    BenchmarkResult,
    MissingCountsError,
    RankCounts,
    UserMetadata,
    collective_benchmark,
    uneven_ranks,
)
from tuner.importers.text import TextLines
from tuner.importers.text_tables import BenchmarkTable, iter_rows, parse_optional
from tuner.topology import CUDA, HOST

TITLE = re.compile(r"\s*#\s*Benchmarking\s+(\S{1,80})")
PROCESSES = re.compile(r"#processes = ([1-9][0-9]{0,8})\b")
WAITING = re.compile(r"\( ([0-9]{1,9}) additional process(?:es)? waiting\b")
GROUPS = re.compile(r"\( [0-9]+ groups of [0-9]+ processes each running simultaneous")
RUN_START = re.compile(r"#\s+Intel\(R\) MPI Benchmarks|#\s*List of Benchmarks to run")
RUN_END = re.compile(r"#\s*All processes entering MPI_Finalize")
OPERANDS = re.compile(r"#\s*MPI_(Datatype for reductions|Datatype|Op)\s*:\s*(\S{1,80})")
GPU_PROGRAM = re.compile(r"#\s*\S*IMB-\S*-GPU\b")
DATE = re.compile(r"#\s*Date\s*:\s*(\S.*)")
DATE_FORM = "%a %b %d %H:%M:%S %Y"  # of C's ctime, in English
BANNER = re.compile(r"#\s+Intel\(R\) MPI Benchmarks")
BUFFERS = re.compile(r"#.*\s-mem_alloc_type\s+(\S{1,20})")
NOT_RUN = ("out-of-mem", "int-overflow", "time-out")  # in place of a time
_POINT_TO_POINT = {"pingpong": PINGPONG, "pingping": EXCHANGE, "sendrecv": EXCHANGE}
_TIMES = {"t_max[usec]": "slowest rank", "t[usec]": "mean"}
_MEMORIES = {"device": CUDA, "cpu": HOST, "host": HOST}


@dataclass(frozen=True)
class _RunHeader:
    """Facts that the beginning of a run states for all its tables.

    operands    datatype and operator of reductions
    datatype    of other calls
    measured    when it began; None where that is not told
    """

    operands: str
    datatype: str
    memory: str
    measured: datetime | None


@dataclass(kw_only=True)
class _Table(BenchmarkTable):
    """A table with what its title and comments say about the rows."""

    name: str
    p: int | None = None
    idle_ranks: int = 0
    has_groups: bool = False

    def read_comment(self, line: str) -> None:
        if processes := PROCESSES.search(line):
            self.p = int(processes[1])
        elif waiting := WAITING.search(line):
            self.idle_ranks = int(waiting[1])
        elif GROUPS.search(line):
            self.has_groups = True
        elif re.match(r"\s*#(bytes|repetitions)\b", line):
            self.columns = line.split()

    @property
    def benchmark(self) -> Benchmark:
        """Return the benchmark; exchanges of more than two ranks form a ring and have no kind.

        Unlike in OSU, the sizes of Reduce_scatter_block are those of one block.
        """
        name, lower = f"IMB {self.name}", self.name.lower()
        if lower in _POINT_TO_POINT and self.p == 2:
            return Benchmark(name, _POINT_TO_POINT[lower])
        found = collective_benchmark(name, lower) or Benchmark(name)
        return replace(found, per_rank=found.per_rank or found.is_of_namesake)


def parse_imb(lines: TextLines, metadata: UserMetadata) -> Iterator[BenchmarkResult]:
    """Yield one result per row; raise InputError with the line number."""
    starts = [1, *(number for number, line in lines.numbered() if BANNER.match(line))]
    ends = [*starts[1:], len(lines.lines) + 1]
    runs = [_describe_run(lines, *ends_of, metadata) for ends_of in zip(starts, ends, strict=True)]
    for table, number, words in iter_rows(lines, _begin, "# Benchmarking Allreduce"):
        run = runs[bisect_right(starts, table.line) - 1]
        yield _reading(lines.source, number, words, table, run, metadata)
    begun = any(RUN_START.match(line) for line in lines.lines)
    if begun and not any(RUN_END.match(line) for line in lines.lines):
        raise InputError(
            f"line {len(lines.lines)}: it ends without `# All processes entering"
            " MPI_Finalize`: the run did not finish; measure again"
        )


def _describe_run(lines: TextLines, start: int, stop: int, metadata: UserMetadata) -> _RunHeader:
    """Return what lines from `start` to below `stop` say of their tables.

    Raises InputError where they do not say which memory was used, or name an unknown one.
    """
    named, memory, measured = dict[str, str](), metadata.memory, None
    for number, line in enumerate(lines.lines[start - 1 : stop - 1], start):
        if operand := OPERANDS.match(line):
            named[operand[1]] = operand[2]
        elif date := DATE.match(line):
            measured = _moment(date[1])
        elif not memory:
            memory = _memory(number, line)
    operands = " ".join(filter(None, (named.get("Datatype for reductions"), named.get("Op"))))
    return _RunHeader(operands, named.get("Datatype", ""), memory or HOST, measured)


def _moment(date: str) -> datetime | None:
    """Return the time of a date of C's ctime, taken as UTC; None for other text."""
    try:
        return datetime.strptime(date.strip(), DATE_FORM).replace(tzinfo=UTC)
    except ValueError:
        return None


def _memory(number: int, line: str) -> str:
    """Return the memory that a command line of the benchmark names, "" for other lines."""
    buffers = BUFFERS.match(line)
    if buffers and buffers[1] not in _MEMORIES:
        raise InputError(
            f"line {number}: {shortened_repr(buffers[1])} is not a memory known here: add --memory"
        )
    if not buffers and GPU_PROGRAM.match(line):
        raise InputError(f"line {number}: it does not say which memory was used: add --memory")
    return _MEMORIES[buffers[1]] if buffers else ""


def _begin(number: int, line: str) -> _Table | None:
    found = TITLE.match(line)
    return _Table(number, f"`Benchmarking {found[1]}`", name=found[1]) if found else None


def _reading(
    source: str, line: int, words: list[str], table: _Table, run: _RunHeader, metadata: UserMetadata
) -> BenchmarkResult:
    benchmark = table.benchmark
    if not benchmark.kind:
        return BenchmarkResult(source, line, benchmark)
    if table.p is None or not table.columns:
        raise InputError(
            f"line {line}: a row before `# #processes = ...` and the header `#bytes ...`"
        )
    shape = _shape(line, table.p, table.idle_ranks, metadata)
    has_sizes = table.columns[0] == "#bytes"
    size = text.parse_int(words[0], "the size", line) if has_sizes else 0
    whole = size * shape.p if benchmark.per_rank else size
    if len(words) > 1 and words[1].lower().startswith(NOT_RUN):
        return BenchmarkResult(
            source, line, benchmark, whole, rank_counts=shape, exclusion_reason="it was not run"
        )
    text.require_fields(words, len(table.columns), line)
    row = dict(zip(table.columns, words, strict=True))
    column = next((name for name in _TIMES if name in row), None)
    if column is None:
        raise InputError(f"line {line}: expected t_max[usec] or t[usec] in the header")
    low, high = (
        parse_optional(row, name, text.parse_microseconds, line)
        for name in ("t_min[usec]", "t_max[usec]")
    )
    return BenchmarkResult(
        source,
        line,
        benchmark,
        whole,
        (text.parse_microseconds(row[column], column, line),),
        _TIMES[column],
        low,
        high,
        rank_counts=shape,
        algorithm=metadata.algorithm or "default",
        params=dict(metadata.params) if benchmark.kind == COLLECTIVE else {},
        memory=run.memory,
        operands=run.operands if benchmark.reduces else run.datatype,
        measured=run.measured,
        exclusion_reason=_exclusion_reason(line, row, table),
    )


def _exclusion_reason(line: int, row: dict[str, str], table: _Table) -> str:
    if parse_optional(row, "defects", text.parse_float, line):
        return "the result was wrong"
    return "several groups were measured at the same time" if table.has_groups else ""


def _shape(line: int, p: int, idle: int, metadata: UserMetadata) -> RankCounts:
    """Return the counts for a table of the first `p` of all ranks, while `idle` others wait."""
    started = p + idle
    if metadata.p not in (None, started):
        raise InputError(
            f"line {line}: {started} ranks were started, but --ranks says {metadata.p}: leave"
            " that option out"
        )
    ppn = metadata.ppn or (None if metadata.nodes is None else -(-started // metadata.nodes))
    if ppn is None:
        hint = metadata.missing_hint("ppn")
        raise MissingCountsError(
            f"line {line}: the file does not say how many ranks were on each node: {hint}", "ppn"
        )
    if metadata.nodes and (reason := uneven_ranks(started, metadata.nodes, metadata.ppn)):
        raise InputError(f"line {line}: {reason}: correct {metadata.sources()}")
    on_one = min(p, ppn)
    nodes = -(-p // on_one)
    return RankCounts(p, nodes, on_one if nodes * on_one == p else 0)
