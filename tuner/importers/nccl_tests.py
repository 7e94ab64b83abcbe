"""Text output of nccl-tests, and what its JSON output shares with it.

    # nThread 1 nGpus 4 minBytes 8 maxBytes 128M step: 2(factor) warmup iters: 5 iters: 20
    #  Rank  0 Group  0 Pid   6899 on node1 device  0 [0000:04:00] NVIDIA H100 80GB HBM3
    #       size         count   type  redop  root    time  algbw  busbw #wrong    time  algbw  ...
        33554432       8388608  float    sum    -1   412.2  81.40  142.5      0   410.9  81.66  ...
    # Avg bus bandwidth    : 142.9

Sizes are those of the whole buffer, times are in microseconds. The first group of columns (out of
place) is used, or the second one (in place) where the first has no number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tuner.base.errors import InputError, shortened_repr
from tuner.importers import text
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
from tuner.topology import CUDA

RUN_START = re.compile(r"\s*#\s*nThread\s+[0-9]+\s+nGpus\b")
RANK = re.compile(
    r"\s*#\s*Rank\s+([0-9]{1,9})\s+(?:Group\s+([0-9]{1,9})\s+)?Pid\s+[0-9]+\s+on\s+(\S+)(.*)"
)
RCCL_TESTS = re.compile(r"\s*#?\s*rccl-tests\b")
AMD_GPU = re.compile(r"\b(AMD|Instinct|Radeon)\b")
HEADER = re.compile(r"\s*#\s*size\s+count\s+type\b")
VERSION = re.compile(r"\b([nr]ccl)-library=([0-9]{4,6})\b")
LIBRARY_SAYS = re.compile(r"\s*([NR]CCL) version ?:? ([0-9]+(?:\.[0-9]+)+)")  # NCCL_DEBUG=VERSION
RUN_END = re.compile(r"\s*#\s*(Out of bounds values|Avg bus bandwidth)\b")
FAILED = re.compile(r"\s*#\s*Out of bounds values\s*:\s*[1-9][0-9]*\s+FAILED")
FAILURE = re.compile(r"fail|error|abort|kill|fault|signal|cancel", re.IGNORECASE)
MISSING_VALUES = ("n/a", "nan", "-nan")

_OTHERS = ("sendrecv", "hypercube", "alltoallv")
_PROGRAM = re.compile(r"\b([a-z_]{1,40}?)_perf(?:_mpi)?\b")
_TIMES = ("time", "cputime")
# Columns with the units that all versions write, "" for those without one.
_COLUMN_UNITS = {
    **{"size": "(B)", "count": "(elements)", "type": "", "redop": "", "root": ""},
    **{"time": "(us)", "cputime": "(us)", "algbw": "(GB/s)", "busbw": "(GB/s)"},
    **{"#wrong": "", "error": "", "timestamp": ""},
}
_OPTIONAL_COLUMNS = ("redop", "root")  # columns that some versions leave blank


@dataclass
class NcclTestsRun:
    """A run of a program as described before its rows.

    hosts           host of each rank of group 0
    is_cpu_time     whether the times are those of the CPU alone
    is_rccl         whether the program or a GPU is AMD's
    is_doubled      whether a rank is listed twice, or two headers follow one another: several
                    processes ran alone, without MPI
    is_split        whether ranks are listed of several groups
    """

    program: str = ""
    library: str = "nccl"
    hosts: dict[int, str] = field(default_factory=dict)
    is_cpu_time: bool = False
    is_rccl: bool = False
    is_doubled: bool = False
    is_split: bool = False

    @property
    def library_name(self) -> str:
        """Return the library with its version where that is known."""
        return re.sub(r"^nccl", "rccl", self.library) if self.is_rccl else self.library

    def benchmark(self, line: int, metadata: UserMetadata) -> Benchmark:
        """Return the benchmark.

        Raises InputError where neither the file nor the user names the collective.
        """
        if not self.program and not metadata.collective:
            raise InputError(
                f"line {line}: the file does not say which collective was measured:"
                f" {metadata.missing_hint('collective')}"
            )
        name = f"{self.program}_perf" if self.program else f"nccl-tests {metadata.collective}"
        if self.program == "sendrecv" and len(self.hosts) == 2:
            return Benchmark(name, EXCHANGE)
        subject = collective_subject(self.program) if self.program else metadata.collective
        return Benchmark(name, COLLECTIVE, subject) if subject else Benchmark(name)

    def rank_counts(self, line: int, metadata: UserMetadata) -> RankCounts:
        """Return the counts of the listed ranks, or those of the user where none are listed."""
        if not self.hosts:
            return metadata.rank_counts(line)
        if not self.is_split and max(self.hosts) >= len(self.hosts):
            raise InputError(
                f"line {line}: of the ranks up to {max(self.hosts)} only {len(self.hosts)} are"
                " listed before it: lines are missing; measure again"
            )
        each = Counter(self.hosts.values())
        if len(set(each.values())) > 1:
            return RankCounts(len(self.hosts), len(each), 0)
        return metadata.rank_counts(line, len(self.hosts), len(each), len(self.hosts) // len(each))

    def add_rank(self, rank: int, group: int, host: str, gpu: str) -> None:
        """Add a rank of group 0; other groups run at the same time and are alike."""
        self.is_rccl = self.is_rccl or bool(AMD_GPU.search(gpu))
        self.is_split = self.is_split or group > 0
        if group == 0:
            self.is_doubled = self.is_doubled or rank in self.hosts
            self.hosts[rank] = host


def program_in(line: str) -> str:
    """Return the program, such as `all_reduce`, that a line names; "" if none."""
    found = (match[1] for match in _PROGRAM.finditer(line))
    return next((name for name in found if name in _OTHERS or collective_subject(name)), "")


def format_version(code: int, library: str = "nccl") -> str:
    """Return `nccl 2.29.7` for 22907, NCCL's code since 2.9 (before: 2804 is 2.8.4)."""
    if code < 10000:
        return f"{library} {code // 1000}.{code // 100 % 10}.{code % 100}"
    return f"{library} {code // 10000}.{code // 100 % 100}.{code % 100}"


def parse_text(lines: TextLines, metadata: UserMetadata) -> Iterator[BenchmarkResult]:
    """Yield one result per row; raise InputError with the line number."""
    run, columns, ended = NcclTestsRun(), list[str](), list[str]()
    rows = list[BenchmarkResult]()
    begun = count = 0
    for number, line in lines.numbered():
        if HEADER.match(line):
            columns, ended = _columns(lines, number, line), []
            run.is_cpu_time = "cputime" in columns
        elif RUN_START.match(line):
            yield from rows
            is_rccl = run.is_rccl and not run.hosts  # the program's name stands before or after
            before = lines.lines[begun : number - 1]
            alone = bool(begun) and not rows and not any(map(FAILURE.search, before))
            run = NcclTestsRun(run.program, run.library, is_rccl=is_rccl, is_doubled=alone)
            columns, begun, rows, ended = [], number, [], []
        elif RUN_END.match(line):
            yield from _with_verdict(rows, line, columns)
            begun, columns, rows, ended = 0, [], [], columns or ended
            run = NcclTestsRun(run.program, run.library)
        elif line.lstrip().startswith("#") or not columns:
            _read_comment(run, line)
            _check_not_ended(number, line.split(), ended)
        elif line.strip() and text.is_row(line.split(), len(columns)):
            lines.check_complete(number)
            count += 1
            rows.append(_row(lines.source, number, line.split(), columns, run, metadata))
        elif line.strip():
            lines.skipped.append(number)
    yield from rows
    if begun:
        raise InputError(
            f"line {len(lines.lines)}: it ends without `# Avg bus bandwidth`: the run"
            f" that began on line {begun} did not finish; measure again"
        )
    if not count:
        raise InputError("line 1: expected a table below `# size count type redop root time ...`")


def _columns(lines: TextLines, number: int, line: str) -> list[str]:
    """Return the names in a header, and note those that are not known.

    Raises InputError without a time, and where the line below has other units than all versions.
    """
    names = line.replace("#", "", 1).split()
    lines.note_unused_columns(number, [name for name in names if name not in _COLUMN_UNITS])
    if not any(name in _TIMES for name in names):
        raise InputError(f"line {number}: expected {' or '.join(_TIMES)} in the header")
    below = "".join(lines.lines[number : number + 1]).lstrip("# \t")
    units = below.split() if below.startswith("(") else []
    known = [_COLUMN_UNITS[name] for name in names if _COLUMN_UNITS.get(name)]
    for unit, right in zip(units, known, strict=False):
        if unit != right:
            raise InputError(
                f"line {number + 1}: the unit {shortened_repr(unit)} where nccl-tests writes"
                f" {right}: convert that column, and correct the line"
            )
    return names


def _check_not_ended(number: int, words: Sequence[str], columns: Sequence[str]) -> None:
    """Raise InputError for a row with these columns after the end of its run."""
    if columns and words and (row := _fields(words, columns)) and text.is_row(row, len(columns)):
        raise InputError(
            f"line {number}: a row after the end of its run: several processes wrote into one"
            " file, as where the program was built without MPI"
        )


def _with_verdict(
    rows: Sequence[BenchmarkResult], footer: str, columns: Sequence[str]
) -> Iterator[BenchmarkResult]:
    """Yield the rows of a run; old versions say only in the footer that results were wrong."""
    wrong = FAILED.match(footer) and "#wrong" not in columns
    for row in rows:
        reason = "the results of the run were wrong" if wrong else ""
        yield replace(row, exclusion_reason=row.exclusion_reason or reason)


def _read_comment(run: NcclTestsRun, line: str) -> None:
    if rank := RANK.match(line):
        run.add_rank(int(rank[1]), int(rank[2] or 0), rank[3], rank[4])
    run.is_rccl = run.is_rccl or bool(RCCL_TESTS.match(line))
    run.program = program_in(line) or run.program
    if version := VERSION.search(line):
        run.library = format_version(int(version[2]), version[1])
    elif said := LIBRARY_SAYS.match(line):
        run.library = f"{said[1].lower()} {said[2]}"


def _fields(words: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return the fields of a row, "" for those left blank; [] for words that are none."""
    if columns[-1] == "timestamp" and len(words) > len(columns):
        words = [*words[:-2], " ".join(words[-2:])]  # a date and a time of day
    time = next(i for i, name in enumerate(columns) if name in _TIMES)
    blank = len(columns) - len(words)
    if blank and not (0 < blank <= len(_OPTIONAL_COLUMNS) and "." in words[time - blank]):
        return []
    return [*words[: time - blank], *[""] * blank, *words[time - blank :]]


def _row(
    source: str,
    line: int,
    words: list[str],
    columns: list[str],
    run: NcclTestsRun,
    metadata: UserMetadata,
) -> BenchmarkResult:
    fields = _fields(words, columns)
    text.require_fields(fields or words, len(columns), line)
    starts = [i for i, name in enumerate(columns) if name in _TIMES]
    values = []
    for start, stop in pairwise([*starts, len(columns)]):
        group = dict(zip(columns[start:stop], fields[start:stop], strict=True))
        values.append((_time(fields[start], line), _wrong(group.get("#wrong", "0"), line)))
    size = text.parse_int(fields[0], "the size", line)
    return make_result(source, line, size, fields[2:4], values, run, metadata)


def make_result(
    source: str,
    line: int,
    nbytes: int,
    operands: Sequence[str],
    values: list[tuple[tuple[float, ...], bool]],
    run: NcclTestsRun,
    metadata: UserMetadata,
) -> BenchmarkResult:
    """Return the result with the first of `values` that has samples.

    operands    datatype, and the operator of a reduction
    values      samples in seconds, and whether the result of the collective was wrong
    """
    benchmark = run.benchmark(line, metadata)
    if not benchmark.kind:
        return BenchmarkResult(source, line, benchmark, nbytes, library=run.library_name)
    samples, wrong = next((value for value in values if value[0]), ((), False))
    return BenchmarkResult(
        source,
        line,
        benchmark,
        nbytes,
        samples,
        "each" if len(samples) > 1 else "mean",
        rank_counts=run.rank_counts(line, metadata),
        algorithm=metadata.algorithm or "default",
        params=dict(metadata.params),
        memory=metadata.memory or CUDA,
        operands=" ".join(operands[: 2 if benchmark.reduces else 1]).strip(),
        library=run.library_name,
        exclusion_reason=_exclusion_reason(run, samples, wrong),
    )


def _exclusion_reason(run: NcclTestsRun, samples: Sequence[float], wrong: bool) -> str:
    if wrong:
        return "the result was wrong"
    if run.is_doubled:
        return "each process ran alone, as where the program was built without MPI"
    if run.is_cpu_time:
        return "the times are those of the CPU alone"
    return "" if samples else "no time is told"


def _time(word: str, line: int) -> tuple[float, ...]:
    missing = word.lower() in MISSING_VALUES
    return () if missing else (text.parse_microseconds(word, "the time", line),)


def _wrong(word: str, line: int) -> bool:
    return word.lower() not in MISSING_VALUES and text.parse_float(word, "#wrong", line) > 0
