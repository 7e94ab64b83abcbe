"""Parsing of untrusted text in bounded time and memory: lines, fields and numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from tuner.base.errors import InputError, shortened_repr
from tuner.core.measurement import MAX_SAMPLE_S

MAX_FILE_BYTES = 64 << 20
MAX_LINES = 1 << 20
MAX_LINE_CHARACTERS = 1 << 20  # characters
MAX_LABEL_CHARACTERS = 200
MAX_LABELS_TRIED = 100  # labels of titles; a pattern is compiled for each
MAX_NUMBER_CHARACTERS = 40  # characters; parsing a million digits takes minutes
INT64_LIMIT = 2**63  # integers of a measurement are smaller
# The label that `mpirun --tag-output`, `mpiexec -l` and `srun --label` put before each line.
_LABEL = re.compile(
    r"\[[0-9]{1,9},[0-9]{1,9}\]<std(?:out|err)>: ?|\[[0-9]{1,9}\] |[ \t]*[0-9]{1,9}: "
)
_TITLE_BEGIN = re.compile(r"#|Collective:")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_WHOLE = re.compile(r"[0-9]+(?:\.0*)?")


@dataclass(frozen=True)
class TextLines:
    """The lines of a text.

    truncated   whether the last line has no line break
    skipped     numbers of the lines between rows that are neither rows nor comments
    notes       sentences on what the text says and its reader does not use
    """

    source: str
    lines: Sequence[str]
    truncated: bool = False
    skipped: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def numbered(self) -> Iterator[tuple[int, str]]:
        """Return the lines with their numbers, from 1."""
        return enumerate(self.lines, 1)

    def note_unused_columns(self, number: int, names: Sequence[str]) -> None:
        """Note that the columns of these names, in the header at this line, are not used."""
        if names:
            named = ", ".join(map(shortened_repr, names[:8]))
            more = ", ..." if len(names) > 8 else ""
            self.notes.append(f"{self.source}: line {number}: columns not used: {named}{more}")

    def check_complete(self, number: int) -> None:
        """Raise InputError where the row at this line is truncated."""
        if self.truncated and number == len(self.lines):
            raise InputError(
                f"line {number}: cut off, the line does not end: measure again, or delete the line"
            )


def split_lines(text: str, source: str) -> TextLines:
    """Return the lines of a text; raise InputError where one is too long."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    cut = lines[-1] != ""
    lines = lines if cut else lines[:-1]
    longest = next((i for i, line in enumerate(lines, 1) if len(line) > MAX_LINE_CHARACTERS), None)
    if longest is not None:
        raise InputError(
            f"line {longest}: longer than {MAX_LINE_CHARACTERS} characters; these are not results"
        )
    return TextLines(
        source,
        [_LABEL.sub("", line, count=1) if _LABEL.match(line) else line for line in lines],
        cut,
    )


def remove_labels(lines: TextLines, titles: Sequence[re.Pattern[str]]) -> TextLines:
    """Return the lines without what a launcher or a job system puts before each of them.

    titles      patterns of lines that begin as a title does, of which one ends its line's label

    The label of the first title whose next line has it, too, counts; other labels may differ from
    it in numbers and spaces. Titles before that one are noted. Where a title without a label comes
    first, or none has such a label, the lines are returned as they are.
    """
    titled = (each for each in lines.numbered() if find_title(each[1], titles) >= 0)
    for number, line in islice(titled, MAX_LABELS_TRIED):
        label = _label_pattern(line[: find_title(line, titles)])
        if label is None:
            return lines
        if all(map(label.match, lines.lines[number : number + 1])):
            found = ((label.match(each), each) for each in lines.lines)
            return replace(lines, lines=[each[m.end() if m else 0 :] for m, each in found])
        lines.notes.append(
            f"{lines.source}: line {number}: not used, a title whose label the next line lacks:"
            f" {shortened_repr(line)}"
        )
    return lines


def find_title(line: str, titles: Sequence[re.Pattern[str]]) -> int:
    """Return where a title begins in a line, after a label or none; -1 where there is none."""
    begin = _TITLE_BEGIN.search(line, 0, MAX_LABEL_CHARACTERS)
    is_title = begin and any(title.match(line, begin.start()) for title in titles)
    return begin.start() if begin and is_title else -1


def _label_pattern(label: str) -> re.Pattern[str] | None:
    """Return the pattern of labels like this one, None for white space alone."""
    parts = re.findall(r"[0-9]+|\s+|[^0-9\s]+", label.strip())
    alike = (
        "[0-9]+" if p[0] in "0123456789" else r"\s+" if p.isspace() else re.escape(p) for p in parts
    )
    return re.compile(rf"\s*{''.join(alike)} ?") if parts else None


def read_lines(path: Path) -> TextLines:
    """Return the lines of a file.

    Raises InputError where it cannot be read, is too large or is not text.
    """
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder: name the files in it")
        if not path.is_file():
            raise InputError(f"{path}: expected the path of a file")
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
    """Return a finite number of at least 0; raise InputError for anything else."""
    value = float(text) if len(text) <= MAX_NUMBER_CHARACTERS and _NUMBER.fullmatch(text) else -1.0
    if not 0 <= value < float("inf"):
        raise InputError(f"line {line}: {what} cannot be {shortened_repr(text)}")
    return value


def parse_int(text: str, what: str, line: int, minimum: int = 0) -> int:
    """Return an integer, which may be written as 64.0; raise InputError for anything else."""
    matched = len(text) <= MAX_NUMBER_CHARACTERS and _WHOLE.fullmatch(text)
    value = int(text.partition(".")[0]) if matched else -1
    if not minimum <= value < INT64_LIMIT:
        raise InputError(f"line {line}: {what} cannot be {shortened_repr(text)}")
    return value


def parse_microseconds(text: str, what: str, line: int) -> float:
    """Return a time in microseconds as seconds; raises as `parse_seconds` does."""
    return parse_seconds(text, what, line, 1e6)


def parse_seconds(text: str, what: str, line: int, units_per_second: float) -> float:
    """Return a time in seconds.

    units_per_second    how many units of the text make a second

    Raises InputError for a time that is too long for a call, which indicates a wrong unit or a
    number that is not a time.
    """
    value = parse_float(text, what, line) / units_per_second
    if value > MAX_SAMPLE_S:
        raise InputError(
            f"line {line}: {what} cannot be {shortened_repr(text)}, more than"
            f" {MAX_SAMPLE_S:.0f} s: correct it or its unit"
        )
    return value


def is_row(words: Sequence[str], columns: int) -> bool:
    """Return whether a line within a table is one of its rows, even if damaged.

    A row begins with a number. One that is damaged, or has N/A in place of a number, has one field
    per column, and begins with a digit or N/A or has numbers in all other fields. All other lines
    are output of launchers and programs.
    """
    if _is_number(words[0]):
        return True
    others = [_is_number(word) for word in words[1:]]
    begins = words[0][0].isdecimal() or words[0] == "N/A"
    return len(words) == columns and any(others) and (begins or all(others))


def _is_number(word: str) -> bool:
    return _NUMBER.fullmatch(word[:MAX_NUMBER_CHARACTERS]) is not None


def require_fields(words: Sequence[str], columns: int, line: int) -> None:
    """Raise InputError unless the row has one field per column."""
    if len(words) != columns:
        raise InputError(
            f"line {line}: {len(words)} fields where the header names {columns}: it is"
            " damaged or cut off; measure again, or delete the line"
        )
