"""Reading of results in any supported format, which is detected from the content."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tuner.base.errors import InputError, UsageError, shortened_repr
from tuner.base.progress import ProgressCallback, no_progress
from tuner.base.spelling import unknown_name
from tuner.base.units import plural
from tuner.core.collective import Collective
from tuner.importers import csv_table, imb, nccl_tests, osu, pico, ucc_perftest
from tuner.importers.algorithm_names import check_algorithm_names
from tuner.importers.exclusions import exclude_incomparable
from tuner.importers.inspector_files import (
    find_inspector_files,
    is_inspector_file,
    is_inspector_head,
    parse_inspector,
    read_job,
    text_head,
)
from tuner.importers.nccl_json import parse_json
from tuner.importers.reading import BenchmarkResult, UserMetadata
from tuner.importers.text import TextLines, find_title, read_lines, remove_labels, split_lines

AUTO, INSPECTOR = "auto", "inspector"
MAX_ROWS = 250_000  # rows per file, which take seconds to read

ResultParser = Callable[[TextLines, UserMetadata], Iterator[BenchmarkResult]]


def _parse_nccl(lines: TextLines, metadata: UserMetadata) -> Iterator[BenchmarkResult]:
    return (parse_json if _is_json(lines) else nccl_tests.parse_text)(lines, metadata)


RESULT_FORMATS: dict[str, ResultParser] = {
    "osu": osu.parse_osu,
    "imb": imb.parse_imb,
    "nccl-tests": _parse_nccl,
    "ucc_perftest": ucc_perftest.parse_ucc_perftest,
    "pico": pico.parse_pico,
    "csv": csv_table.parse_csv,
    INSPECTOR: parse_inspector,
}
# Lines that occur in one format only.
_FORMAT_PATTERNS = {
    "osu": osu.TITLE,
    "imb": imb.TITLE,
    "nccl-tests": nccl_tests.HEADER,
    "ucc_perftest": ucc_perftest.HEADER,
}
_TRUNCATED_RUN_PATTERNS = {
    "imb": re.compile(r"#\s*Intel\(R\) MPI Benchmarks"),
    "nccl-tests": nccl_tests.RUN_START,
}  # these also match a run that was cut off before its first table
_TITLES = (*_FORMAT_PATTERNS.values(), *_TRUNCATED_RUN_PATTERNS.values())


def read_all(
    paths: Sequence[Path],
    format_name: str = AUTO,
    metadata: UserMetadata | None = None,
    progress: ProgressCallback = no_progress,
) -> tuple[list[BenchmarkResult], list[str]]:
    """Return the results in files and folders, and sentences on what is missing in the files.

    paths       a folder stands for the files of NCCL's Inspector in it
    progress    called with the bytes of these files read so far, and in all

    Raises InputError with the file and usually the line where a file is not in one of
    RESULT_FORMATS, is damaged or truncated, or lacks information that `metadata` does not give.
    """
    job, others = list[Path](), list[Path]()
    for path in paths:
        if format_name in (AUTO, INSPECTOR) and path.is_dir():
            job += find_inspector_files(path)
        else:
            known = format_name == INSPECTOR and path.is_file()
            (job if known or (format_name == AUTO and is_inspector_file(path)) else others).append(
                path
            )
    readings, notes = list[BenchmarkResult](), list[str]()
    for path in others:
        lines = read_lines(path)
        readings += _parse_lines(lines, format_name, metadata)
        notes += lines.notes
    if job:
        found, missing = read_job(job, metadata or UserMetadata(), progress)
        readings, notes = [*readings, *found], [*notes, *missing]
    return exclude_incomparable(readings), notes


def read_results(
    path: Path, format_name: str = AUTO, metadata: UserMetadata | None = None
) -> list[BenchmarkResult]:
    """Return the results of a file in its order, or of a folder; raises as `read_all` does."""
    return read_all([path], format_name, metadata)[0]


def parse_results(
    content: str,
    format_name: str = AUTO,
    metadata: UserMetadata | None = None,
    source: str = "results",
) -> list[BenchmarkResult]:
    """Return the results of a text, as `read_results` does of a file.

    source      the name of the text in error messages
    """
    return exclude_incomparable(_parse_lines(split_lines(content, source), format_name, metadata))


def _parse_lines(
    lines: TextLines, format_name: str, metadata: UserMetadata | None
) -> list[BenchmarkResult]:
    """Return the results of a text, and add to the notes of `lines` what was skipped."""
    metadata = metadata or UserMetadata()
    if metadata.collective and metadata.collective not in list(Collective):
        raise UsageError(unknown_name("collective", metadata.collective, list(Collective)))
    if format_name != AUTO and format_name not in RESULT_FORMATS:
        raise UsageError(unknown_name("format of results", format_name, (AUTO, *RESULT_FORMATS)))
    titles = _titles(lines)
    plain = remove_labels(lines, titles)
    readings: list[BenchmarkResult] = []
    try:
        for reading in RESULT_FORMATS[
            _detect_format(plain) if format_name == AUTO else format_name
        ](plain, metadata):
            if len(readings) == MAX_ROWS:
                raise InputError(f"line {reading.line}: more than {MAX_ROWS} rows: split it")
            readings.append(reading)
    except InputError as reason:
        reason.args = (f"{lines.source}: {reason}",)
        raise reason from None
    check_algorithm_names(readings)
    _check_skipped_lines(plain, titles)
    return readings


def detect_results(text: str) -> str:
    """Return the name of the format of a text of results; raise InputError for any other text."""
    lines = split_lines(text, "results")
    return _detect_format(remove_labels(lines, _titles(lines)))


def _titles(lines: TextLines) -> Sequence[re.Pattern[str]]:
    """Return the patterns of titles; that of ucc_perftest, which logs may have, beside a header."""
    found = any(ucc_perftest.HEADER.match(line, max(line.find("Count"), 0)) for line in lines.lines)
    return (*_TITLES, ucc_perftest.TITLE) if found else _TITLES


def _check_skipped_lines(lines: TextLines, titles: Sequence[re.Pattern[str]]) -> None:
    """Note how many lines were skipped; raise InputError where one of them has a title."""
    for number in lines.skipped:
        if find_title(lines.lines[number - 1], titles) > 0:
            raise InputError(
                f"{lines.source}: line {number}: a title with another label than the first title,"
                " or with one alone: put the output of each launch into a file of its own"
            )
    if lines.skipped:
        count, first = plural(len(lines.skipped), "line"), lines.skipped[0]
        lines.notes.append(
            f"{lines.source}: skipped {count} among the rows, the first is line {first}:"
            f" {shortened_repr(lines.lines[first - 1])}"
        )


def _is_json(lines: TextLines) -> bool:
    return next((line for line in lines.lines if line.strip()), "").lstrip().startswith("{")


def _detect_format(lines: TextLines) -> str:
    """Return the name of the format; raise InputError where the text is in none of them."""
    if not any(line.strip() for line in lines.lines):
        raise InputError("line 1: the file is empty: measure again")
    if is_inspector_head(text_head(lines)):
        return INSPECTOR
    if _is_json(lines):
        return "nccl-tests"
    for patterns in (_FORMAT_PATTERNS, _TRUNCATED_RUN_PATTERNS):
        for name, pattern in patterns.items():
            if any(pattern.match(line) for line in lines.lines):
                return name
    if pico.header_line_number(lines) is not None:
        return "pico"
    header = csv_table.find_header(lines.lines)
    if header is None and any(ucc_perftest.TITLE.fullmatch(line) for line in lines.lines):
        return "ucc_perftest"  # cut off before its first table
    if header is None:
        raise InputError(
            csv_table.missing_time_error(lines.lines)
            or f"line 1: results in none of the known forms ({', '.join(RESULT_FORMATS)}); it"
            f" begins with {shortened_repr(next(line for line in lines.lines if line.strip()))}"
        )
    return "pico" if csv_table.is_pico(header.column_names) else "csv"
