"""Tables in the output of benchmarks: a title, comments that begin with #, a header and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tuner.base.errors import InputError
from tuner.importers import text
from tuner.importers.text import TextLines


@dataclass
class BenchmarkTable:
    """A table with what its title and comments say about the rows.

    line        number of the title's line
    title       the title as errors quote it
    columns     names in the header; empty until it was read
    n_rows      rows read so far
    """

    line: int
    title: str
    columns: list[str] = field(default_factory=list)
    n_rows: int = 0

    def read_comment(self, line: str) -> None:
        """Read a line that begins with #, such as the header."""

    def read_line(self, number: int, line: str) -> bool:
        """Read a line that is neither comment nor row; return whether it belongs to the table."""
        return False

    def check_not_empty(self) -> None:
        """Raise InputError for a table without rows."""
        if not self.n_rows:
            raise InputError(
                f"line {self.line}: no row follows {self.title}: the run did not"
                " finish; measure again, or delete its title"
            )


Titled = TypeVar("Titled", bound=BenchmarkTable)


def iter_rows(
    lines: TextLines, begin: Callable[[int, str], Titled | None], missing: str
) -> Iterator[tuple[Titled, int, list[str]]]:
    """Yield each row as its table, the number of its line and its words; skip other lines.

    begin       returns the table whose title a line is, or None
    missing     an example of a title, for the error where a text has none

    Raises InputError for a text without titles, a table without rows and a truncated row.
    """
    table: Titled | None = None
    for number, line in lines.numbered():
        if (begun := begin(number, line)) is not None:
            if table is not None:
                table.check_not_empty()
            table = begun
        elif table is None or not line.strip():
            continue
        elif line.lstrip().startswith("#"):
            table.read_comment(line)
        elif text.is_row(words := line.split(), len(table.columns)):
            lines.check_complete(number)
            table.n_rows += 1
            yield table, number, words
        elif not table.read_line(number, line) and table.columns:
            lines.skipped.append(number)
    if table is None:
        raise InputError(f"line 1: expected a title such as `{missing}`")
    table.check_not_empty()


def parse_optional(
    row: Mapping[str, str], column: str, read: Callable[[str, str, int], float], line: int
) -> float | None:
    """Return the parsed value of a column, or None where the file does not have it."""
    return read(row[column], column, line) if column in row else None
