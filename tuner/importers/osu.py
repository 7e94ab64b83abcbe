"""Output of the OSU micro-benchmarks.

    # OSU MPI Allreduce Latency Test v5.3
    # Size         Avg Latency(us)     Min Latency(us)     Max Latency(us)  Iterations
    4                        19.05               18.11               20.33        1000

Sizes are those that one rank sends or receives: the buffers of allgather, gather, scatter and
all-to-all are p times as large; reduce-scatter divides a buffer of the given size. Latencies are
one-way, in microseconds; rates are in 10^6 bytes per second. Of the average and the maximum latency
of a collective over the ranks, the maximum is used, since a collective ends with its last rank. The
average favours collectives in which the root leaves early.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tuner.base.errors import InputError, shortened_repr
from tuner.importers import text
from tuner.importers.reading import (
    BURST,
    COLLECTIVE,
    EXCHANGE,
    PINGPONG,
    Benchmark,
    BenchmarkResult,
    RankCounts,
    UserMetadata,
    collective_benchmark,
)
from tuner.importers.text import TextLines
from tuner.importers.text_tables import BenchmarkTable, iter_rows, parse_optional
from tuner.topology import CUDA, HOST

TITLE = re.compile(r"\s*#\s*OSU (\S+) (.{1,80}) Test\b")
PAIRS = re.compile(r"\[ pairs: ([1-9][0-9]{0,8}) \](?: \[ window size: ([0-9]{1,9}|varied) \])?")
BUFFERS = re.compile(r"Send Buffer on (\S+) .*Receive Buffer on (\S+)")
DATATYPE = re.compile(r"\s*#\s*Datatype:\s*(\S{1,80}?)\.?\s*$")
WINDOW_MESSAGES = 64  # messages posted together, unless set by option -W of these benchmarks
_COLLECTIVE_SUFFIX = " Latency"
_POINT_TO_POINT = {
    "Latency": PINGPONG,
    "Multi Latency": PINGPONG,
    "Bandwidth": BURST,
    "Bi-Directional Bandwidth": EXCHANGE,
    "Multiple Bandwidth / Message Rate": BURST,
}
_SEVERAL_PAIRS = ("Multi Latency", "Multiple Bandwidth / Message Rate")
_TIMES = {  # column -> its statistic, best first
    "maxlatency(us)": "slowest rank",
    "avglatency(us)": "mean over ranks",
    "latency(us)": "mean",
}
# Accelerators in titles, all of whose memory is that of GPUs.
_ACCELERATORS = ("CUDA", "ROCM", "OPENACC", "SYCL", "ZE")
_RATES = ("bandwidth(mb/s)", "mb/s")


@dataclass(kw_only=True)
class _Table(BenchmarkTable):
    """A table with what its title and comments say.

    memory      of the buffers, or the accelerator in the title; "" where one buffer is on the host
    window      0 where it varies
    """

    benchmark: Benchmark
    memory: str
    datatype: str = ""
    pairs: int | None = None
    window: int = WINDOW_MESSAGES

    def read_comment(self, line: str) -> None:
        if pairs := PAIRS.search(line):
            self.pairs = int(pairs[1])
            self.window = 0 if pairs[2] == "varied" else int(pairs[2] or WINDOW_MESSAGES)
        elif buffers := BUFFERS.search(line):
            hosts = [buffer == "HOST" for buffer in buffers.groups()]
            self.memory = HOST if all(hosts) else "" if any(hosts) else self.memory
        elif datatype := DATATYPE.match(line):
            self.datatype = datatype[1]
        elif re.match(r"\s*#\s*(Size|Avg Latency)\b", line):
            names = re.split(r"\s{2,}|\t", line.strip().removeprefix("#").strip())
            self.columns = [re.sub(r"\s", "", name).lower() for name in names]


def parse_osu(lines: TextLines, metadata: UserMetadata) -> Iterator[BenchmarkResult]:
    """Yield one result per row; raise InputError with the line number."""
    for table, number, words in iter_rows(lines, _begin, "# OSU MPI Allreduce Latency Test v7.3"):
        yield _reading(lines.source, number, words, table, metadata)


def _begin(number: int, line: str) -> _Table | None:
    title = TITLE.match(line)
    if title is None:
        return None
    interface, name = title[1], title[2]
    _, _, accelerator = interface.partition("-")
    known = interface.split("-")[0] in ("MPI", "NCCL")
    benchmark = Benchmark(f"OSU {interface} {name}")
    if known and name in _POINT_TO_POINT:
        benchmark = Benchmark(benchmark.name, _POINT_TO_POINT[name])
    elif known and name.endswith(_COLLECTIVE_SUFFIX):
        spelling = name.removesuffix(_COLLECTIVE_SUFFIX)
        benchmark = collective_benchmark(benchmark.name, spelling) or benchmark
    return _Table(number, repr(benchmark.name), benchmark=benchmark, memory=accelerator or HOST)


def _reading(
    source: str, line: int, words: list[str], table: _Table, metadata: UserMetadata
) -> BenchmarkResult:
    benchmark = table.benchmark
    if not benchmark.kind:
        return BenchmarkResult(source, line, benchmark)
    if not table.columns:
        raise InputError(f"line {line}: a row before the header `# Size ...` that names columns")
    text.require_fields(words, len(table.columns), line)
    row = dict(zip(table.columns, words, strict=True))
    shape = _shape(line, table, metadata)
    size = text.parse_int(row["size"], "the size", line) if "size" in row else 0
    seconds, statistic = _seconds(line, row, size, table, shape)
    return BenchmarkResult(
        source,
        line,
        benchmark,
        nbytes=size * shape.p if benchmark.per_rank else size,
        samples=() if seconds is None else (seconds,),
        statistic=statistic,
        min_seconds=parse_optional(row, "minlatency(us)", text.parse_microseconds, line),
        max_seconds=parse_optional(row, "maxlatency(us)", text.parse_microseconds, line),
        rank_counts=shape,
        algorithm=metadata.algorithm or "default",
        params=_params(table, metadata),
        memory=metadata.memory or _memory(line, table.memory),
        operands=table.datatype,
        exclusion_reason=_exclusion_reason(row, table, seconds),
    )


def _memory(line: int, said: str) -> str:
    """Return the memory; raise InputError for an unknown accelerator."""
    if said not in ("", HOST, *_ACCELERATORS):
        raise InputError(
            f"line {line}: {shortened_repr(said)} in its title is not an accelerator known here"
            f" ({', '.join(_ACCELERATORS)}): add --memory"
        )
    return CUDA if said in _ACCELERATORS else said


def _shape(line: int, table: _Table, metadata: UserMetadata) -> RankCounts:
    if table.benchmark.kind == COLLECTIVE:
        return metadata.rank_counts(line)
    if any(table.benchmark.name.endswith(name) for name in _SEVERAL_PAIRS):
        return metadata.rank_counts(line, None if table.pairs is None else 2 * table.pairs)
    return metadata.pair_counts(line)


def _seconds(
    line: int, row: dict[str, str], size: int, table: _Table, shape: RankCounts
) -> tuple[float | None, str]:
    """Return the seconds and their statistic.

    They are those of a call or message or, where the file has a rate, of a window of messages.
    """
    for column, statistic in _TIMES.items():
        if column in row:
            return text.parse_microseconds(row[column], "the latency", line), statistic
    named = next((name for name in _RATES if name in row), None)
    if named is None:
        raise InputError(f"line {line}: expected a latency or a bandwidth in the header")
    rate = text.parse_float(row[named], "the bandwidth", line) * 1e6
    if rate == 0 or table.window == 0:
        return None, "mean"
    directions = 2 if table.benchmark.kind == EXCHANGE else 1
    return table.window * directions * size * (shape.p // 2) / rate, "mean"


def _params(table: _Table, metadata: UserMetadata) -> dict[str, int]:
    if table.benchmark.kind == COLLECTIVE:
        return dict(metadata.params)
    return {"messages": table.window} if table.benchmark.kind in (BURST, EXCHANGE) else {}


def _exclusion_reason(row: dict[str, str], table: _Table, seconds: float | None) -> str:
    if row.get("validation", "Pass").lower() != "pass":
        return "the result was wrong"
    if not table.memory:
        return "one buffer was on the host and one on the device"
    if table.window == 0:
        return "the windows were of varied sizes"
    return "a rate of 0 is below what the file resolves" if seconds is None else ""
