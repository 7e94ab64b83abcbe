"""A strict parser for classic rules files.

Open MPI skips whatever is not a number, reads 010 as octal, and drops an inconsistent file without
a message. Everything that it would misread or drop raises InputError here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tuner.base.errors import InputError, shortened_repr
from tuner.formats import strict_parsing
from tuner.formats.openmpi.rules import ClassicRules, RuleLine
from tuner.mpi_libraries import require_safe_size
from tuner.mpi_libraries.openmpi import COLLECTIVE_OF

_HEADER = re.compile(rf"rule-file-version-({strict_parsing.INTEGER_PATTERN})\s")
MIN_COLUMNS = 4  # of a row in version 1; version 2 adds the most requests in flight
MAX_INT = 2**31 - 1  # the library keeps sizes of communicators and segments in an int
MAX_ALGORITHM_NUMBERS = {  # collective number -> largest algorithm number of Open MPI 5.0
    0: 7,
    1: 5,
    2: 6,
    3: 5,
    4: 2,
    6: 6,
    7: 9,
    8: 2,
    9: 3,
    11: 7,
    12: 4,
    13: 4,
    14: 2,
    15: 3,
}


@dataclass(frozen=True)
class _Token:
    value: int
    line: int


class _Reader:
    def __init__(self, tokens: Iterator[_Token]) -> None:
        self._tokens = list(tokens)
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
        first = self.number("a message size", largest=2**63 - 1)
        numbers = [first, *(self.number("the rest of a row") for _ in range(columns - 1))]
        found = self._on_line[first.line]
        if found != columns or numbers[-1].line != first.line:
            what = "message size, algorithm, fan-in/out, segment size"
            what += ", requests" if columns > MIN_COLUMNS else ""
            raise InputError(
                f"rules file, line {first.line}: a row of {found} numbers where {columns}"
                f" ({what}) are needed on one line"
            )
        if numbers[1].value > MAX_ALGORITHM_NUMBERS[collective]:
            raise InputError(
                f"rules file, line {first.line}: algorithm {numbers[1].value} does not exist,"
                f" the largest is {MAX_ALGORITHM_NUMBERS[collective]}"
            )
        line = RuleLine(*(number.value for number in numbers))
        try:
            _require_safe_size(collective, line)
        except InputError as reason:
            raise InputError(f"rules file, line {first.line}: {reason}") from None
        return line

    def require_end(self) -> None:
        if self._next < len(self._tokens):
            token = self._tokens[self._next]
            raise InputError(
                f"rules file, line {token.line}: {token.value} is beyond the counted rules:"
                " mend the counts"
            )


def parse(text: str) -> ClassicRules:
    """Return the rules in a classic file, version 1 or 2; raises InputError naming the line."""
    header = _HEADER.match(text)
    version = int(header[1]) if header else 1
    if version not in (1, 2):
        raise InputError(f"rules file: version {version} is not known, only 1 and 2 are")
    reader = _Reader(_tokenize(text, header.end() if header else 0))
    collectives: dict[int, tuple[tuple[int, tuple[RuleLine, ...]], ...]] = {}
    for _ in range(
        reader.number("the number of collectives", max(MAX_ALGORITHM_NUMBERS) + 1).value
    ):
        number = reader.number("a collective's number")
        if number.value not in MAX_ALGORITHM_NUMBERS or number.value in collectives:
            raise InputError(
                f"rules file, line {number.line}: collective {number.value} is"
                f" {'listed twice' if number.value in collectives else 'unknown'}"
            )
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
            raise InputError(
                f"rules file, line {ranks.line}: communicator size {ranks.value} follows"
                f" {entries[-1][0]}; sizes must ascend"
            )
        count = reader.number("the number of message sizes")
        rows: list[RuleLine] = []
        for _ in range(count.value):
            rows.append(reader.row(columns, collective))
        sizes = [row.min_bytes for row in rows]
        if not rows or sizes[0] != 0 or sizes != sorted(set(sizes)):
            raise InputError(
                f"rules file, line {count.line}: message sizes of {ranks.value} ranks must start"
                " at 0 and ascend"
            )
        entries.append((ranks.value, tuple(rows)))
    return tuple(entries)
