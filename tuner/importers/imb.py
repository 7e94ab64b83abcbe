"""Output of the Intel MPI Benchmarks, part MPI-1.

    # Benchmarking Bcast
    # #processes = 2
    # ( 2 additional processes waiting in MPI_Barrier)
           #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
               16           20         1.11         1.52         1.32

Sizes are of what one rank gives or gets: allgather, gather, scatter, all-to-all and
reduce-scatter-block have buffers of p times that. The time taken is t_max, that of the slowest
rank. A table of fewer ranks than were started is that of the first ones, taken to fill nodes in
turn. The root of rooted collectives goes round, so times are not those of OSU's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.importers import text
from tuner.importers.reading import (
    ALLTOALL,
    COLLECTIVE,
    EXCHANGE,
    PINGPONG,
    Benchmark,
    Reading,
    Shape,
    Told,
)
from tuner.importers.text import Lines
from tuner.importers.text_tables import Table, rows_of, told_in

BEGIN = re.compile(r"\s*#\s*Benchmarking\s+(\S{1,80})")
PROCESSES = re.compile(r"#processes = ([1-9][0-9]{0,8})\b")
WAITING = re.compile(r"\( ([0-9]{1,9}) additional process(?:es)? waiting")
GROUPS = re.compile(r"\( [0-9]+ groups of [0-9]+ processes each running simultaneous")
WHOLE_RUN = re.compile(r"#\s+Intel\(R\) MPI Benchmarks|#\s*List of Benchmarks to run")
END = re.compile(r"#\s*All processes entering MPI_Finalize")
NOT_RUN = ("out-of-mem", "int-overflow", "time-out")  # instead of a time

_COLLECTIVES = {
    "bcast": (Collective.BCAST, False),
    "reduce": (Collective.REDUCE, False),
    "allreduce": (Collective.ALLREDUCE, False),
    "allgather": (Collective.ALLGATHER, True),
    "gather": (Collective.GATHER, True),
    "scatter": (Collective.SCATTER, True),
    "reduce_scatter": (Collective.REDUCE_SCATTER, False),
    "reduce_scatter_block": (Collective.REDUCE_SCATTER, True),
    "alltoall": (ALLTOALL, True),
}
_MESSAGES = {"pingpong": PINGPONG, "pingping": EXCHANGE, "sendrecv": EXCHANGE}
_TIMES = {"t_max[usec]": "slowest rank", "t[usec]": "mean"}


@dataclass(kw_only=True)
class _Table(Table):
    """What is said between `Benchmarking` and the rows."""

    name: str
    p: int | None = None
    idle: int = 0
    groups: bool = False

    def remark(self, line: str) -> None:
        """Take in a line that begins with #."""
        if processes := PROCESSES.search(line):
            self.p = int(processes[1])
        elif waiting := WAITING.search(line):
            self.idle = int(waiting[1])
        elif GROUPS.search(line):
            self.groups = True
        elif re.match(r"\s*#(bytes|repetitions)\b", line):
            self.columns = line.split()

    @property
    def benchmark(self) -> Benchmark:
        """Exchanges of more than two ranks are a ring, which is no pair."""
        name, lower = f"IMB {self.name}", self.name.lower()
        if lower in _COLLECTIVES:
            return Benchmark(name, COLLECTIVE, *_COLLECTIVES[lower])
        if lower in _MESSAGES and self.p == 2:
            return Benchmark(name, _MESSAGES[lower])
        return Benchmark(name)


def parse_imb(lines: Lines, told: Told) -> Iterator[Reading]:
    """One reading per row. Raises InputError naming the line."""
    for table, number, words in rows_of(lines, _begin, "# Benchmarking Allreduce"):
        yield _reading(lines.source, number, words, table, told)
    begun = any(WHOLE_RUN.match(line) for line in lines.lines)
    if begun and not any(END.match(line) for line in lines.lines):
        raise InputError(
            f"line {len(lines.lines)}: it ends without `# All processes entering"
            " MPI_Finalize`: the run did not finish; measure again"
        )


def _begin(number: int, line: str) -> _Table | None:
    found = BEGIN.match(line)
    return _Table(number, f"`Benchmarking {found[1]}`", name=found[1]) if found else None


def _reading(source: str, line: int, words: list[str], table: _Table, told: Told) -> Reading:
    benchmark = table.benchmark
    if not benchmark.kind:
        return Reading(source, line, benchmark)
    if table.p is None or not table.columns:
        raise InputError(
            f"line {line}: a row before `# #processes = ...` and the header `#bytes ...`"
        )
    shape = _shape(line, table.p, table.idle, told)
    size = text.whole(words[0], "the size", line)
    whole = size * shape.p if benchmark.per_rank else size
    if len(words) > 1 and words[1].lower().startswith(NOT_RUN):
        return Reading(source, line, benchmark, whole, shape=shape, left_out="it was not run")
    text.require_fields(words, len(table.columns), line)
    row = dict(zip(table.columns, words, strict=True))
    column = next((name for name in _TIMES if name in row), None)
    if column is None:
        raise InputError(f"line {line}: the header names neither t_max[usec] nor t[usec]")
    low, high = (
        told_in(row, name, text.microseconds, line) for name in ("t_min[usec]", "t_max[usec]")
    )
    return Reading(
        source,
        line,
        benchmark,
        whole,
        (text.microseconds(row[column], column, line),),
        _TIMES[column],
        low,
        high,
        shape=shape,
        algorithm=told.algorithm or "default",
        params=dict(told.params) if benchmark.kind == COLLECTIVE else {},
        memory=told.memory or "host",
        iterations=told_in(row, "#repetitions", text.whole, line),
        left_out="several groups were measured at the same time" if table.groups else "",
    )


def _shape(line: int, p: int, idle: int, told: Told) -> Shape:
    """Of a table: the first `p` of all ranks that were started, of which `idle` wait."""
    started = p + idle
    if told.p not in (None, started):
        raise InputError(
            f"line {line}: {started} ranks were started, but --p says {told.p}: leave"
            " that option out"
        )
    ppn = told.ppn or (None if told.nodes is None else -(-started // told.nodes))
    if ppn is None:
        raise InputError(
            f"line {line}: the file does not say how many ranks were on each node:"
            f" {told.add('ppn')}"
        )
    if told.nodes is not None and told.nodes * ppn != started:
        raise InputError(
            f"line {line}: {started} ranks are not {told.nodes} nodes of {ppn} ranks"
            " each: correct --nodes or --ppn"
        )
    on_one = min(p, ppn)
    nodes = -(-p // on_one)
    return Shape(p, nodes, on_one if nodes * on_one == p else 0)
