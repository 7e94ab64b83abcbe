"""Output of PICO: a file per count and algorithm, or a summary of many.

    highest,rank0,rank1         of each iteration, nanoseconds; `highest` is the slowest rank
    29604,28809,29604

The file is called COUNT_ALGORITHM_DTYPE.csv; neither its content nor its name says which collective
was measured. The first fifth of the iterations is warm-up, as in PICO's own summaries. Sizes are
those of the whole buffer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.importers import text
from tuner.importers.algorithm_names import algorithm_name
from tuner.importers.csv_table import parse_csv
from tuner.importers.reading import COLLECTIVE, Benchmark, BenchmarkResult, UserMetadata
from tuner.importers.text import TextLines
from tuner.topology import HOST

FILE_NAME = re.compile(r"([0-9]{1,15})_(.{1,100})_([a-z0-9]{1,20})\.csv")
SLOWEST_COLUMN = "highest"
WARMUP_DIVISOR = 5  # the first 1 / WARMUP_DIVISOR of the iterations is warm-up
DTYPE_BYTES = {
    "int8": 1,
    "char": 1,
    "int16": 2,
    "int32": 4,
    "int": 4,
    "float": 4,
    "int64": 8,
    "double": 8,
}


def parse_pico(lines: TextLines, metadata: UserMetadata) -> Iterator[BenchmarkResult]:
    """Yield one result of all iterations, or one per row of a summary; raise InputError."""
    begin = header_line_number(lines)
    if begin is None:
        yield from parse_csv(lines, metadata)
        return
    names = [name.strip() for name in lines.lines[begin - 1].split(",")]
    matched = FILE_NAME.fullmatch(Path(lines.source).name)
    if matched is None or matched[3] not in DTYPE_BYTES:
        raise InputError(
            f"line {begin}: the name of the file says what was measured, but this one"
            f" is not like 512_ring_int32.csv: {shortened_repr(Path(lines.source).name)}"
        )
    if metadata.collective not in list(Collective):
        raise InputError(
            f"line {begin}: the file does not say which collective was measured:"
            f" {metadata.missing_hint('collective')}"
        )
    samples = _samples(lines, begin, names)
    samples = samples[len(samples) // WARMUP_DIVISOR :]
    shape = metadata.rank_counts(begin, len(names) - 1 if len(names) > 1 else None)
    yield BenchmarkResult(
        lines.source,
        begin,
        Benchmark(matched[2], COLLECTIVE, metadata.collective),
        int(matched[1]) * DTYPE_BYTES[matched[3]],
        tuple(samples),
        "each",
        rank_counts=shape,
        algorithm=algorithm_name(matched[2]),
        original_algorithm=matched[2],
        params=dict(metadata.params),
        memory=metadata.memory or HOST,
        run=str(Path(lines.source).parent),
    )


def header_line_number(lines: TextLines) -> int | None:
    """Return the line of the header of a file of iterations, or None where there is none."""
    return next(
        (
            number
            for number, line in lines.numbered()
            if re.fullmatch(rf"{SLOWEST_COLUMN}(,rank[0-9]+)*\s*", line)
        ),
        None,
    )


def _samples(lines: TextLines, begin: int, names: list[str]) -> list[float]:
    """Return the seconds of the slowest rank in each iteration."""
    samples = []
    for number in range(begin + 1, len(lines.lines) + 1):
        fields = lines.lines[number - 1].split(",")
        if fields == [""]:
            continue
        lines.check_complete(number)
        text.require_fields(fields, len(names), number)
        times = [text.parse_seconds(field.strip(), "the time", number, 1e9) for field in fields]
        samples.append(times[0])
    if not samples:
        raise InputError(f"line {begin}: expected iterations below the header")
    return samples
