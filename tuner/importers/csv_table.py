"""Tables with one row per result (CSV), whose columns say what they are.

    collective,nodes,ppn,library,algorithm,size_bytes,median_us
    allreduce,8,1,openmpi 4.1.6,ring,65536,412.7

A time has its unit in its name (`time_us`, `median_ms`, `mean_s`); of several the median is taken,
and one time in two units is refused. Sizes are those of the whole buffer. `value` is what `metric`
or `expression` names: a latency or a bandwidth of messages. Comma, semicolon or tab; lines before
the header, and those with #, are not read.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuner.base.errors import InputError, quoted
from tuner.core.collective import Collective
from tuner.importers import message_rows, text
from tuner.importers.algorithm_names import algorithm_name, library_name
from tuner.importers.reading import ALLTOALL, COLLECTIVE, EXCHANGE, Benchmark, Reading, Shape, Told
from tuner.importers.text import Lines
from tuner.topology import CUDA, HOST

UNITS = {"us": 1e6, "ms": 1e3, "ns": 1e9, "s": 1.0}  # per second
STEMS = ("median", "time", "mean", "avg", "latency", "out_of_place")  # of times, best first
COLUMNS = {
    "collective": ("collective", "collective_type", "test"),
    "nodes": ("nodes", "nnodes"),
    "ppn": ("ppn", "tasks_per_node", "ranks_per_node", "gpus_per_node"),
    "p": ("p", "ranks", "nprocs", "ranks_or_nodes"),
    "size": ("size_bytes", "nbytes", "bytes", "buffer_size"),
    "algorithm": ("algorithm", "algo_name"),
    "library": ("library", "lib", "mpi_lib"),
    "version": ("lib_version", "mpi_lib_version", "nccl_version"),
    "memory": ("memory", "buffer", "gpu", "cuda"),
    "run": ("run", "timestamp"),
    "cluster": ("cluster", "system", "machine"),
    "iterations": ("n_iter", "iterations"),
    "first": ("node_a",),
    "second": ("node_b",),
    "pairs": ("pairs",),
    "metric": ("metric", "expression"),
    "column": ("column",),
    "value": ("value",),
    "unit": ("unit",),
}
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
_NAMES = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "broadcast": "bcast",
    "reducescatter": "reduce_scatter",
    "reduce_scatter_block": "reduce_scatter",
    "all_to_all": ALLTOALL,
}


@dataclass(frozen=True)
class Header:
    """Which column is what.

    line        the header's
    names       of all columns
    own         our word -> the column's name
    time        the column of the time taken, and how many of its unit make a second; None where
                there is a `value` instead
    """

    line: int
    delimiter: str
    names: tuple[str, ...]
    own: Mapping[str, str]
    time: tuple[str, float] | None

    def seconds(self, row: Mapping[str, str], stems: Sequence[str], line: int) -> float | None:
        """Of the first such column in the unit of the time; None without one, or when empty."""
        if self.time is None:
            return None
        suffix = re.sub(r".*?(_us|_ms|_ns|_s|)$", r"\1", self.time[0])
        column = next((f"{stem}{suffix}" for stem in stems if f"{stem}{suffix}" in row), None)
        if column is None or not row[column]:
            return None
        return text.seconds(row[column], column, line, self.time[1])


def parse_tidy(lines: Lines, told: Told) -> Iterator[Reading]:
    """One reading per row. Raises InputError naming the line."""
    header = find_header(lines.lines)
    if header is None:
        raise InputError(
            timeless(lines.lines)
            or "line 1: no line names columns of sizes and"
            " times, such as `collective,nodes,ppn,size_bytes,median_us`"
        )
    _require_one_unit(header)
    if header.time is not None and "size" not in header.own:
        raise InputError(f"line {header.line}: no column says the size: call it size_bytes")
    rows = 0
    for line, fields in _rows(lines, header):
        lines.require_end(line)
        text.require_fields(fields, len(header.names), line)
        rows += 1
        row = {name: field.strip() for name, field in zip(header.names, fields, strict=True)}
        yield _reading(lines.source, line, row, header, told)
    if not rows:
        raise InputError(f"line {header.line}: no row follows the header")


def _require_one_unit(header: Header) -> None:
    stem = header.time[0].rpartition("_")[0] if header.time else ""
    both = [f"{stem}_{unit}" for unit in UNITS if f"{stem}_{unit}" in header.names]
    if len(both) > 1:
        raise InputError(
            f"line {header.line}: the columns {' and '.join(both)} say the same time"
            " in two units: leave one of them out"
        )


def find_header(lines: Sequence[str]) -> Header | None:
    """The first line that names a column of times or values, and something else."""
    for line, content in enumerate(lines, 1):
        names = _names(content)
        if len(names) < 2 or len(set(names)) < len(names):
            continue
        own = {
            word: name
            for word, known in COLUMNS.items()
            for name in reversed(known)
            if name in names
        }
        time = _time_column(names)
        if time or {"value", "metric"} <= own.keys():
            return Header(line, _delimiter(content), names, own, time)
    return None


def timeless(lines: Sequence[str]) -> str:
    """What is to be said of a table whose header has no column of times, or one column twice; "" of
    everything else.
    """
    for line, content in enumerate(lines, 1):
        names = _names(content)
        known = {word for word, names_of in COLUMNS.items() if {*names} & {*names_of}}
        if len(names) > 2 and len(known) > 2 and {"size", "collective", "algorithm"} & known:
            twice = next((name for name, count in Counter(names).items() if count > 1), None)
            if twice is not None:
                return f"line {line}: two columns are called {quoted(twice)}: leave one of them out"
            return f"line {line}: no column says the time: call it median_us (or _ms, _ns, _s)"
    return ""


def _names(content: str) -> tuple[str, ...]:
    """Of the columns, if a line is a header."""
    return tuple(name.strip().strip('"').lower() for name in content.split(_delimiter(content)))


def _delimiter(line: str) -> str:
    return max(",;\t", key=line.count)


def is_pico(names: Sequence[str]) -> bool:
    """Whether the columns are those of PICO's summary, whose times are nanoseconds."""
    return {"algo_name", "array_dim", "collective_type"} <= set(names)


def _time_column(names: Sequence[str]) -> tuple[str, float] | None:
    for stem in STEMS:
        for unit, per_second in UNITS.items():
            if f"{stem}_{unit}" in names:
                return f"{stem}_{unit}", per_second
    return ("median", UNITS["ns"]) if is_pico(names) and "median" in names else None


def _rows(lines: Lines, header: Header) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of what is below the header."""
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


def _reading(source: str, line: int, row: dict[str, str], header: Header, told: Told) -> Reading:
    own = {word: row[name] for word, name in header.own.items()}
    library = _library(header, own)
    memory = _memory(line, own.get("memory", ""), told, library)
    if header.time is None:
        return message_rows.reading(source, line, own, memory, told)
    shape = _shape(line, own, told, header.own)
    benchmark = _benchmark(line, own, told, shape)
    written = own.get("algorithm") or told.algorithm
    seconds = header.seconds(row, [re.sub(r"_(us|ms|ns|s)$", "", header.time[0])], line)
    return Reading(
        source,
        line,
        benchmark,
        text.whole(own["size"], "the size", line),
        () if seconds is None else (seconds,),
        header.time[0],
        header.seconds(row, ["min"], line),
        header.seconds(row, ["max", "p90"], line),
        shape=shape,
        algorithm=algorithm_name(written),
        written=written,
        params=dict(told.params),
        memory=memory,
        iterations=text.whole(own["iterations"], "the iterations", line)
        if own.get("iterations")
        else None,
        library=library,
        cluster=own.get("cluster", ""),
        run=_run(own),
        left_out="no time is told" if seconds is None else "",
    )


def _memory(line: int, said: str, told: Told, library: str) -> str:
    if not said:
        return told.memory or (CUDA if library.startswith("nccl") else HOST)
    if said.lower() not in _MEMORIES:
        raise InputError(f"line {line}: the memory cannot be {quoted(said)}: gpu or cpu")
    return _MEMORIES[said.lower()]


def _benchmark(line: int, own: Mapping[str, str], told: Told, shape: Shape) -> Benchmark:
    name = own.get("collective") or told.collective
    if not name:
        raise InputError(
            f"line {line}: the file does not say which collective was measured:"
            f" {told.add('collective')}"
        )
    plain = name.lower().removeprefix("mpi_").removesuffix("_perf")
    subject = _NAMES.get(plain, plain)
    if subject == "sendrecv" and shape.p == 2:
        return Benchmark(name, EXCHANGE)
    known = subject == ALLTOALL or subject in list(Collective)
    return Benchmark(name, COLLECTIVE, subject) if known else Benchmark(name)


def _shape(line: int, own: Mapping[str, str], told: Told, columns: Mapping[str, str]) -> Shape:
    p, nodes, ppn = (
        text.whole(own[name], name, line, 1) if own.get(name) else None
        for name in ("p", "nodes", "ppn")
    )
    nodes = 2 if "second" in own and nodes is None else nodes
    return told.shape(line, p, nodes, ppn, columns)


def _library(header: Header, own: Mapping[str, str]) -> str:
    of_nccl = header.own.get("version") == "nccl_version"
    return library_name(own.get("library") or ("nccl" if of_nccl else ""), own.get("version", ""))


def _run(own: Mapping[str, str]) -> str:
    """Every pair of nodes is a run of its own."""
    return " ".join(own[word] for word in ("run", "first", "second") if own.get(word))
