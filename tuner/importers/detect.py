"""Every form in which results can come, told apart by what is in the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tuner.base.errors import InputError, quoted
from tuner.base.progress import Counted, quietly
from tuner.core.collective import Collective
from tuner.importers import csv_table, imb, nccl_tests, osu, pico
from tuner.importers.algorithm_names import require_names
from tuner.importers.inspector_files import (
    begin_of,
    begins_inspector,
    files_of,
    is_inspector,
    parse_inspector,
    read_job,
)
from tuner.importers.nccl_json import parse_json
from tuner.importers.reading import ALLTOALL, Reading, Told
from tuner.importers.text import Lines, lines_of, read_lines

AUTO, INSPECTOR = "auto", "inspector"
MOST_ROWS = 250_000  # of one file; seconds to read

Parse = Callable[[Lines, Told], Iterator[Reading]]


def _parse_nccl(lines: Lines, told: Told) -> Iterator[Reading]:
    return (parse_json if _is_json(lines) else nccl_tests.parse_text)(lines, told)


FORMS: dict[str, Parse] = {
    "osu": osu.parse_osu,
    "imb": imb.parse_imb,
    "nccl-tests": _parse_nccl,
    "pico": pico.parse_pico,
    "csv": csv_table.parse_tidy,
    INSPECTOR: parse_inspector,
}
# A line that only this form has.
_LINES = {"osu": osu.TITLE, "imb": imb.BEGIN, "nccl-tests": nccl_tests.HEADER}
_EARLIER = {
    "imb": re.compile(r"#\s*Intel\(R\) MPI Benchmarks"),
    "nccl-tests": nccl_tests.BEGIN,
}  # also of a run that was cut off before its first table


def read_all(
    paths: Sequence[Path], form: str = AUTO, told: Told | None = None, progress: Counted = quietly
) -> tuple[list[Reading], list[str]]:
    """Return all readings of files and folders, and sentences on what the files lack.

    paths       a folder stands for the files of NCCL's Inspector in it
    progress    of reading these, in bytes

    Raises InputError that names the file and mostly the line: for what is not in one of `FORMS`, is
    damaged or cut off, or leaves open what `told` does not say.
    """
    job, others = list[Path](), list[Path]()
    for path in paths:
        if form in (AUTO, INSPECTOR) and path.is_dir():
            job += files_of(path)
        else:
            known = form == INSPECTOR and path.is_file()
            (job if known or (form == AUTO and is_inspector(path)) else others).append(path)
    readings = [reading for path in others for reading in _parsed(read_lines(path), form, told)]
    if not job:
        return readings, []
    found, notes = read_job(job, told or Told(), progress)
    return [*readings, *found], notes


def read_results(path: Path, form: str = AUTO, told: Told | None = None) -> list[Reading]:
    """Return all readings of a file, in its order, or of a folder. Raises as `read_all` does."""
    return read_all([path], form, told)[0]


def parse_results(
    content: str, form: str = AUTO, told: Told | None = None, source: str = "results"
) -> list[Reading]:
    """As `read_results`, of a text that errors call `source`."""
    return _parsed(lines_of(content, source), form, told)


def _parsed(lines: Lines, form: str, told: Told | None) -> list[Reading]:
    told = told or Told()
    if told.collective and told.collective not in (*Collective, ALLTOALL):
        raise InputError(
            f"there is no collective {quoted(told.collective)}; known:"
            f" {', '.join((*Collective, ALLTOALL))}"
        )
    if form != AUTO and form not in FORMS:
        raise InputError(
            f"there is no form {quoted(form)} of results; known: {AUTO}, {', '.join(FORMS)}"
        )
    readings: list[Reading] = []
    try:
        for reading in FORMS[_recognised(lines) if form == AUTO else form](lines, told):
            if len(readings) == MOST_ROWS:
                raise InputError(f"line {reading.line}: more than {MOST_ROWS} rows: split it")
            readings.append(reading)
    except InputError as reason:
        raise InputError(f"{lines.source}: {reason}") from None
    require_names(readings)
    return readings


def _is_json(lines: Lines) -> bool:
    return next((line for line in lines.lines if line.strip()), "").lstrip().startswith("{")


def _recognised(lines: Lines) -> str:
    """Raises InputError for what is in none of the forms."""
    if not any(line.strip() for line in lines.lines):
        raise InputError("line 1: the file is empty: measure again")
    if begins_inspector(begin_of(lines)):
        return INSPECTOR
    if _is_json(lines):
        return "nccl-tests"
    for patterns in (_LINES, _EARLIER):
        for name, pattern in patterns.items():
            if any(pattern.match(line) for line in lines.lines):
                return name
    if pico.first_line(lines) is not None:
        return "pico"
    header = csv_table.find_header(lines.lines)
    if header is None:
        raise InputError(
            csv_table.timeless(lines.lines)
            or f"line 1: results in none of the known forms: {', '.join(FORMS)}"
        )
    return "pico" if csv_table.is_pico(header.names) else "csv"
