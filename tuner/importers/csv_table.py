"""CSV tables with one result per row, whose columns are identified by name.

    collective,nodes,ppn,library,algorithm,size_bytes,median_us
    allreduce,8,1,openmpi 4.1.6,ring,65536,412.7

A column of times has its unit in its name (`time_us`, `median_ms`, `mean_s`). Of several the
median is used, and one time in two units is refused. Sizes are those of the whole buffer. `value`
is the quantity that `metric` or `expression` names: a latency or a bandwidth of messages. The
delimiter is comma, semicolon or tab. Lines before the header and lines that begin with # are
ignored.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuner.base.errors import InputError, shortened_repr
from tuner.importers import message_rows, text
from tuner.importers.algorithm_names import algorithm_name, library_name
from tuner.importers.reading import (
    COLLECTIVE,
    EXCHANGE,
    Benchmark,
    BenchmarkResult,
    RankCounts,
    UserMetadata,
    collective_subject,
)
from tuner.importers.text import TextLines
from tuner.topology import CUDA, HOST

UNITS_PER_SECOND = {"us": 1e6, "ms": 1e3, "ns": 1e9, "s": 1.0}  # per second
# Stems of columns of times, best first.
TIME_COLUMN_STEMS = ("median", "time", "mean", "avg", "latency", "out_of_place")
COLUMN_ALIASES = {
    "collective": ("collective", "collective_type", "test"),
    "nodes": ("nodes", "nnodes"),
    "ppn": ("ppn", "tasks_per_node", "ranks_per_node", "gpus_per_node"),
    "p": ("p", "ranks", "nprocs", "ranks_or_nodes"),
    "size": ("size_bytes", "nbytes", "bytes", "buffer_size"),
    "algorithm": ("algorithm", "algo_name"),
    "library": ("library", "lib", "mpi_lib"),
    "version": ("lib_version", "mpi_lib_version", "nccl_version"),
    "memory": ("memory", "buffer", "gpu", "cuda"),
    "datatype": ("datatype", "dtype", "data_type"),
    "operator": ("operator", "redop", "op"),
    "run": ("run", "timestamp"),
    "cluster": ("cluster", "system", "machine"),
    "first": ("node_a",),
    "second": ("node_b",),
    "pairs": ("pairs",),
    "metric": ("metric", "expression"),
    "column": ("column",),
    "value": ("value",),
    "unit": ("unit",),
}
_OF_COLLECTIVES = ("collective", "algorithm", "operator", "run", "version")
_SPREADS = ("min", "max", "p90")  # stems of columns of the smallest and largest times
_MEMORIES = {
    "no": HOST,
    "false": HOST,
    "cpu": HOST,
    "host": HOST,
    "yes": CUDA,
    "true": CUDA,
    "gpu": CUDA,
    "cuda": CUDA,
    "device": CUDA,
}


@dataclass(frozen=True)
class CsvHeader:
    """The header of a table.

    line            number of the header line
    column_names    of all columns
    column_of       key of COLUMN_ALIASES -> name of the column
    time_column     the column of times and how many of its units make a second; None where there is
                    a `value` instead
    """

    line: int
    delimiter: str
    column_names: tuple[str, ...]
    column_of: Mapping[str, str]
    time_column: tuple[str, float] | None

    def seconds(self, row: Mapping[str, str], stems: Sequence[str], line: int) -> float | None:
        """Return the seconds in the first column with one of these stems and the unit of the times.

        Returns None where there is no such column or it is empty.
        """
        if self.time_column is None:
            return None
        suffix = re.sub(r".*?(_us|_ms|_ns|_s|)$", r"\1", self.time_column[0])
        column = next((f"{stem}{suffix}" for stem in stems if f"{stem}{suffix}" in row), None)
        if column is None or not row[column]:
            return None
        return text.parse_seconds(row[column], column, line, self.time_column[1])


def parse_csv(lines: TextLines, metadata: UserMetadata) -> Iterator[BenchmarkResult]:
    """Yield one result per row; raise InputError with the line number."""
    header = find_header(lines.lines)
    if header is None:
        raise InputError(
            missing_time_error(lines.lines)
            or "line 1: no line names columns of sizes and"
            " times, such as `collective,nodes,ppn,size_bytes,median_us`"
        )
    _check_single_unit(header)
    if header.time_column is not None and "size" not in header.column_of:
        raise InputError(f"line {header.line}: no column says the size: call it size_bytes")
    _note_unused_columns(lines, header)
    rows = 0
    for line, fields in _rows(lines, header):
        lines.check_complete(line)
        text.require_fields(fields, len(header.column_names), line)
        rows += 1
        row = {name: field.strip() for name, field in zip(header.column_names, fields, strict=True)}
        yield _reading(lines.source, line, row, header, metadata)
    if not rows:
        raise InputError(f"line {header.line}: expected rows below the header")


def _note_unused_columns(lines: TextLines, header: CsvHeader) -> None:
    if header.time_column is None:
        used = {name for word, name in header.column_of.items() if word not in _OF_COLLECTIVES}
    else:
        suffix = re.sub(r".*?(_us|_ms|_ns|_s|)$", r"\1", header.time_column[0])
        used = {*header.column_of.values(), header.time_column[0]}
        used |= {f"{stem}{suffix}" for stem in _SPREADS}
    unused = [name for name in header.column_names if name not in used]
    lines.note_unused_columns(header.line, unused)


def _check_single_unit(header: CsvHeader) -> None:
    stem = header.time_column[0].rpartition("_")[0] if header.time_column else ""
    both = [
        f"{stem}_{unit}" for unit in UNITS_PER_SECOND if f"{stem}_{unit}" in header.column_names
    ]
    if len(both) > 1:
        raise InputError(
            f"line {header.line}: the columns {' and '.join(both)} say the same time"
            " in two units: leave one of them out"
        )


def find_header(lines: Sequence[str]) -> CsvHeader | None:
    """Return the first line that names a column of times or values and another column."""
    for line, content in enumerate(lines, 1):
        names = _names(content)
        if len(names) < 2 or len(set(names)) < len(names):
            continue
        own = {
            word: name
            for word, known in COLUMN_ALIASES.items()
            for name in reversed(known)
            if name in names
        }
        time = _time_column(names)
        if time or {"value", "metric"} <= own.keys():
            return CsvHeader(line, _delimiter(content), names, own, time)
    return None


def missing_time_error(lines: Sequence[str]) -> str:
    """Return the error for a table without a column of times or with a column twice, else ""."""
    for line, content in enumerate(lines, 1):
        names = _names(content)
        known = {word for word, names_of in COLUMN_ALIASES.items() if {*names} & {*names_of}}
        if len(names) > 2 and len(known) > 2 and {"size", "collective", "algorithm"} & known:
            twice = next((name for name, count in Counter(names).items() if count > 1), None)
            if twice is not None:
                return (
                    f"line {line}: two columns are called {shortened_repr(twice)}: leave one of"
                    " them out"
                )
            return f"line {line}: no column says the time: call it median_us (or _ms, _ns, _s)"
    return ""


def _names(content: str) -> tuple[str, ...]:
    """Return the names of the columns if the line is a header."""
    return tuple(name.strip().strip('"').lower() for name in content.split(_delimiter(content)))


def _delimiter(line: str) -> str:
    return max(",;\t", key=line.count)


def is_pico(names: Sequence[str]) -> bool:
    """Return whether the columns are those of PICO's summary, whose times are in nanoseconds."""
    return {"algo_name", "array_dim", "collective_type"} <= set(names)


def _time_column(names: Sequence[str]) -> tuple[str, float] | None:
    for stem in TIME_COLUMN_STEMS:
        for unit, per_second in UNITS_PER_SECOND.items():
            if f"{stem}_{unit}" in names:
                return f"{stem}_{unit}", per_second
    return ("median", UNITS_PER_SECOND["ns"]) if is_pico(names) and "median" in names else None


def _rows(lines: TextLines, header: CsvHeader) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields of each row below the header."""
    below = ("" if line.startswith("#") else line for line in lines.lines[header.line :])
    reader = csv.reader(below, delimiter=header.delimiter, strict=True)
    while True:
        try:
            fields = next(reader, None)
        except csv.Error as reason:
            raise InputError(
                f"line {header.line + reader.line_num}: not a row of a table: {reason}"
            ) from None
        if fields is None:
            return
        if fields:
            yield header.line + reader.line_num, fields


def _reading(
    source: str, line: int, row: dict[str, str], header: CsvHeader, metadata: UserMetadata
) -> BenchmarkResult:
    own = {word: row[name] for word, name in header.column_of.items()}
    library = _library(header, own)
    memory = _memory(line, own.get("memory", ""), metadata, library)
    if header.time_column is None:
        return message_rows.message_result(source, line, own, memory, metadata)
    shape = _shape(line, own, metadata, header.column_of)
    benchmark = _benchmark(line, own, metadata, shape)
    written = own.get("algorithm") or metadata.algorithm
    seconds = header.seconds(row, [re.sub(r"_(us|ms|ns|s)$", "", header.time_column[0])], line)
    return BenchmarkResult(
        source,
        line,
        benchmark,
        text.parse_int(own["size"], "the size", line),
        () if seconds is None else (seconds,),
        header.time_column[0],
        header.seconds(row, ["min"], line),
        header.seconds(row, ["max", "p90"], line),
        rank_counts=shape,
        algorithm=algorithm_name(written),
        original_algorithm=written,
        params=dict(metadata.params),
        memory=memory,
        operands=" ".join(own[word] for word in ("datatype", "operator") if own.get(word)),
        library=library,
        cluster=own.get("cluster", ""),
        run=_run(own),
        exclusion_reason="no time is told" if seconds is None else "",
    )


def _memory(line: int, said: str, metadata: UserMetadata, library: str) -> str:
    if not said:
        return metadata.memory or (CUDA if library.startswith("nccl") else HOST)
    if said.lower() not in _MEMORIES:
        raise InputError(f"line {line}: the memory cannot be {shortened_repr(said)}: gpu or cpu")
    return _MEMORIES[said.lower()]


def _benchmark(
    line: int, row: Mapping[str, str], metadata: UserMetadata, shape: RankCounts
) -> Benchmark:
    name = row.get("collective") or metadata.collective
    if not name:
        raise InputError(
            f"line {line}: the file does not say which collective was measured:"
            f" {metadata.missing_hint('collective')}"
        )
    plain = name.lower().removeprefix("mpi_").removesuffix("_perf")
    if plain == "sendrecv" and shape.p == 2:
        return Benchmark(name, EXCHANGE)
    subject = collective_subject(plain)
    return Benchmark(name, COLLECTIVE, subject) if subject else Benchmark(name)


def _shape(
    line: int, row: Mapping[str, str], metadata: UserMetadata, columns: Mapping[str, str]
) -> RankCounts:
    p, nodes, ppn = (
        text.parse_int(row[name], name, line, 1) if row.get(name) else None
        for name in ("p", "nodes", "ppn")
    )
    nodes = 2 if "second" in row and nodes is None else nodes
    return metadata.rank_counts(line, p, nodes, ppn, columns)


def _library(header: CsvHeader, row: Mapping[str, str]) -> str:
    of_nccl = header.column_of.get("version") == "nccl_version"
    return library_name(row.get("library") or ("nccl" if of_nccl else ""), row.get("version", ""))


def _run(row: Mapping[str, str]) -> str:
    """Return the run, which includes the nodes of a pair, so that every pair is its own run."""
    return " ".join(row[word] for word in ("run", "first", "second") if row.get(word))
