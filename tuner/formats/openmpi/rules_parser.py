"""A strict parser for classic rules files.

Open MPI skips whatever is not a number, reads 010 as octal, and drops an inconsistent file without
a message. Everything that it would misread or drop raises InputError here; so does what it obeys to
the harm of programs, unless that is to be reported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NoReturn

from tuner.base.errors import InputError, shortened_repr
from tuner.formats import strict_parsing
from tuner.formats.file_rules import Report
from tuner.formats.openmpi.rules import ClassicRules, RuleLine
from tuner.mpi_libraries import require_safe_size
from tuner.mpi_libraries.openmpi_collectives import COLLECTIVE_OF, max_algorithm_numbers

_HEADER = re.compile(rf"rule-file-version-({strict_parsing.INTEGER_PATTERN})\s")
MIN_COLUMNS = 4  # of a row in version 1; version 2 adds the most requests in flight
COLLECTIVE_COUNT = 22  # of MPI, neighbourhood collectives included (coll_base_functions.h)
MAX_INT = 2**31 - 1  # the library keeps sizes of communicators and segments in an int


@dataclass(frozen=True)
class _Token:
    value: int
    line: int


def _refuse(line: int, text: str) -> NoReturn:
    raise InputError(f"rules file, line {line}: {text}")


class _Reader:
    def __init__(
        self, tokens: Iterator[_Token], report: Report, largest: Mapping[int, int]
    ) -> None:
        self._tokens = list(tokens)
        self.report, self.largest = report, largest
        self._on_line = Counter(token.line for token in self._tokens)
        self._next = 0

    def number(self, what: str, largest: int = MAX_INT) -> _Token:
        """Return the next number.

        Raises InputError at the end of the file and for a number above `largest`.
        """
        if self._next == len(self._tokens):
            raise InputError(f"rules file: it ends where {what} should follow: it is truncated")
        token = self._tokens[self._next]
        if token.value > largest:
            raise InputError(
                f"rules file, line {token.line}: {what} is {token.value}, at most {largest} is"
                " possible"
            )
        self._next += 1
        return token

    def row(self, columns: int, collective: int) -> RuleLine:
        """Return a row; that of version 2 may lack the last of its columns."""
        first = self.number("a message size", largest=2**63 - 1)
        found = self._on_line[first.line]
        columns = max(MIN_COLUMNS, min(found, columns))
        numbers = [first, *(self.number("the rest of a row") for _ in range(columns - 1))]
        if found != columns or numbers[-1].line != first.line:
            what = "message size, algorithm, fan-in/out, segment size"
            what += ", requests" if columns > MIN_COLUMNS else ""
            raise InputError(
                f"rules file, line {first.line}: a row of {found} numbers where {columns}"
                f" ({what}) are needed on one line"
            )
        line = replace(RuleLine(*(number.value for number in numbers)), number=first.line)
        largest = self.largest.get(collective, MAX_INT)
        if line.algorithm > largest:
            self.report(
                first.line, f"algorithm {line.algorithm} does not exist, the largest is {largest}"
            )
            return line
        try:
            _require_safe_size(collective, line)
        except InputError as reason:
            self.report(first.line, str(reason))
        return line

    def require_end(self) -> None:
        if self._next < len(self._tokens):
            token = self._tokens[self._next]
            raise InputError(
                f"rules file, line {token.line}: {token.value} is beyond the counted rules:"
                " mend the counts"
            )


def parse(text: str, report: Report = _refuse, library: str = "") -> ClassicRules:
    """Return the rules in a classic file, version 1 or 2; raises InputError naming the line.

    report      takes what the library obeys to the harm of programs, or never looks at
    """
    header = _HEADER.match(text)
    version = int(header[1]) if header else 1
    if version not in (1, 2):
        raise InputError(f"rules file: version {version} is not known, only 1 and 2 are")
    largest = max_algorithm_numbers(library)
    reader = _Reader(_tokenize(text, header.end() if header else 0), report, largest)
    collectives: dict[int, tuple[tuple[int, tuple[RuleLine, ...]], ...]] = {}
    for _ in range(reader.number("the number of collectives", COLLECTIVE_COUNT).value):
        number = reader.number("a collective's number", COLLECTIVE_COUNT - 1)
        if number.value in collectives:
            _refuse(number.line, f"collective {number.value} is listed twice")
        if number.value not in largest:
            report(number.line, f"collective {number.value} is unknown")
        collectives[number.value] = _parse_entries(reader, MIN_COLUMNS + version - 1, number.value)
    reader.require_end()
    return ClassicRules(collectives)


def _require_safe_size(number: int, line: RuleLine) -> None:
    """Raise InputError for a line that ends programs which call with a datatype of size 0."""
    collective = COLLECTIVE_OF.get(number)
    if collective is not None:
        require_safe_size("openmpi", line.to_choice(collective), line.min_bytes)


def _tokenize(text: str, start: int) -> Iterator[_Token]:
    first = text.count("\n", 0, start) + 1
    for line, content in enumerate(text[start:].split("\n"), start=first):
        for word in content.partition("#")[0].split():
            value = strict_parsing.parse_int(word)
            if value is None:
                raise InputError(
                    f"rules file, line {line}: {shortened_repr(word)} is not a plain decimal"
                    " number; Open MPI would silently misread it"
                )
            yield _Token(value, line)


def _parse_entries(
    reader: _Reader, columns: int, collective: int
) -> tuple[tuple[int, tuple[RuleLine, ...]], ...]:
    entries: list[tuple[int, tuple[RuleLine, ...]]] = []
    for _ in range(reader.number("the number of communicator sizes").value):
        ranks = reader.number("a communicator size")
        if entries and ranks.value <= entries[-1][0]:
            reader.report(
                ranks.line,
                f"communicator size {ranks.value} follows {entries[-1][0]}; sizes must ascend",
            )
        count = reader.number("the number of message sizes")
        rows: list[RuleLine] = []
        for _ in range(count.value):
            rows.append(reader.row(columns, collective))
        if rows and rows[0].min_bytes != 0:
            _refuse(rows[0].number, f"message sizes of {ranks.value} ranks must start at 0")
        for before, row in pairwise(rows):
            if row.min_bytes <= before.min_bytes:
                reader.report(
                    row.number,
                    f"message size {row.min_bytes} follows {before.min_bytes}; sizes must ascend,"
                    " as Open MPI looks no further than the first larger one",
                )
        entries.append((ranks.value, tuple(rows)))
    return tuple(entries)
