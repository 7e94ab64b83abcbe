"""Tables in the output of benchmarks: a title, remarks behind #, a header, rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tuner.base.errors import InputError
from tuner.importers import text
from tuner.importers.text import TextLines

T = TypeVar("T")


@dataclass
class BenchmarkTable(ABC):
    """What a title and the remarks below it say of the rows that follow.

    line, title     of the title, and how a sentence calls it
    columns         of the header; none until it has come
    """

    line: int
    title: str
    columns: list[str] = field(default_factory=list)
    n_rows: int = 0

    @abstractmethod
    def read_comment(self, line: str) -> None:
        """Take in a line that begins with #, the header among them."""

    def check_not_empty(self) -> None:
        """Raises InputError for a table that ended before its first row."""
        if not self.n_rows:
            raise InputError(
                f"line {self.line}: no row follows {self.title}: the run did not"
                " finish; measure again, or delete its title"
            )


Titled = TypeVar("Titled", bound=BenchmarkTable)


def iter_rows(
    lines: TextLines, begin: Callable[[int, str], Titled | None], missing: str
) -> Iterator[tuple[Titled, int, list[str]]]:
    """Each row as its table, the number of its line and its words; all else passes by.

    begin       the table whose title a line is, if it is one
    missing     such a title, which a text without any lacks

    Raises InputError for a text without titles, a table without rows and a row that is cut off.
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
    if table is None:
        raise InputError(f"line 1: there is no title such as `{missing}`")
    table.check_not_empty()


def parse_optional(
    row: Mapping[str, str], column: str, read: Callable[[str, str, int], T], line: int
) -> T | None:
    """What a row says in a column that not every file has."""
    return read(row[column], column, line) if column in row else None
