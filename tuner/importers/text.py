"""Text from strangers, in bounded time and memory: its lines, their fields, and numbers in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.base.errors import InputError, shortened_repr
from tuner.core.measurement import MAX_SAMPLE_S

MAX_FILE_BYTES = 64 << 20
MAX_LINES = 1 << 20
MAX_LINE_CHARACTERS = 1 << 20  # characters
MAX_NUMBER_CHARACTERS = 40  # characters; a number of a million digits takes minutes
INT64_LIMIT = 2**63  # what a measurement cannot hold
# What `mpirun --tag-output` and `srun --label` put before each line.
_LABEL = re.compile(r"\[[0-9]{1,9},[0-9]{1,9}\]<std(?:out|err)>: ?|[ \t]*[0-9]{1,9}: ")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_WHOLE = re.compile(r"[0-9]+(?:\.0*)?")
_NUMERIC = re.compile(r"[+-]?\.?[0-9]")


@dataclass(frozen=True)
class TextLines:
    """A text. `cut`: its last line does not end, so nobody knows what more it would have said."""

    source: str
    lines: Sequence[str]
    truncated: bool = False

    def numbered(self) -> Iterator[tuple[int, str]]:
        """Each with its number, from 1."""
        return enumerate(self.lines, 1)

    def check_complete(self, number: int) -> None:
        """Raises InputError for the row at this line when it is cut off."""
        if self.truncated and number == len(self.lines):
            raise InputError(
                f"line {number}: cut off, the line does not end: measure again, or delete the line"
            )


def split_lines(text: str, source: str) -> TextLines:
    """The lines of a text. Raises InputError for one that is too long."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    cut = lines[-1] != ""
    lines = lines if cut else lines[:-1]
    longest = next((i for i, line in enumerate(lines, 1) if len(line) > MAX_LINE_CHARACTERS), None)
    if longest is not None:
        raise InputError(
            f"line {longest}: longer than {MAX_LINE_CHARACTERS} characters; these are no results"
        )
    return TextLines(
        source,
        [_LABEL.sub("", line, count=1) if _LABEL.match(line) else line for line in lines],
        cut,
    )


def read_lines(path: Path) -> TextLines:
    """A file as text. Raises InputError for what cannot be read, is too large, or is no text."""
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder: name the files in it")
        if not path.is_file():
            raise InputError(f"there is no file {path}")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as reason:
        raise InputError(f"{path}: cannot be read: {reason.strerror}") from None
    if len(data) > MAX_FILE_BYTES or data.count(b"\n") > MAX_LINES:
        raise InputError(
            f"{path}: more than {MAX_FILE_BYTES >> 20} MiB or {MAX_LINES} lines: split it"
        )
    try:
        return split_lines(_decoded(data), str(path))
    except InputError as reason:
        raise InputError(f"{path}: {reason}") from None


def _decoded(data: bytes) -> str:
    zero = data.find(b"\0")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as reason:
        zero = reason.start if zero < 0 else min(zero, reason.start)
    if zero < 0:
        return text
    line = data.count(b"\n", 0, zero) + 1
    raise InputError(f"line {line}: not text in UTF-8: save it as UTF-8, or unpack it first")


def parse_float(text: str, what: str, line: int) -> float:
    """A finite number of at least 0. Raises InputError for anything else."""
    value = float(text) if len(text) <= MAX_NUMBER_CHARACTERS and _NUMBER.fullmatch(text) else -1.0
    if not 0 <= value < float("inf"):
        raise InputError(f"line {line}: {what} cannot be {shortened_repr(text)}")
    return value


def parse_int(text: str, what: str, line: int, minimum: int = 0) -> int:
    """A whole number, also where it is written 64.0. Raises InputError for anything else."""
    matched = len(text) <= MAX_NUMBER_CHARACTERS and _WHOLE.fullmatch(text)
    value = int(text.partition(".")[0]) if matched else -1
    if not minimum <= value < INT64_LIMIT:
        raise InputError(f"line {line}: {what} cannot be {shortened_repr(text)}")
    return value


def parse_microseconds(text: str, what: str, line: int) -> float:
    """Seconds."""
    return parse_seconds(text, what, line, 1e6)


def parse_seconds(text: str, what: str, line: int, units_per_second: float) -> float:
    """Of a time in a unit of which so many make a second. Raises InputError for what no call takes.

    Whoever writes such a number means another unit, or something else than a time.
    """
    value = parse_float(text, what, line) / units_per_second
    if value > MAX_SAMPLE_S:
        raise InputError(
            f"line {line}: {what} cannot be {shortened_repr(text)}, more than"
            f" {MAX_SAMPLE_S:.0f} s: correct it or its unit"
        )
    return value


def is_row(words: Sequence[str], columns: int) -> bool:
    """Whether a line within a table is meant as one of its rows, be it damaged.

    What begins with a number is, and what has as many fields of which a later one begins with one.
    Everything else is what launchers and libraries print in between.
    """
    if _NUMERIC.match(words[0]):
        return True
    return len(words) == columns and any(_NUMERIC.match(word) for word in words[1:])


def require_fields(words: Sequence[str], columns: int, line: int) -> None:
    """Raises InputError unless the row has one field per column."""
    if len(words) != columns:
        raise InputError(
            f"line {line}: {len(words)} fields where the header names {columns}: it is"
            " damaged or cut off; measure again, or delete the line"
        )
