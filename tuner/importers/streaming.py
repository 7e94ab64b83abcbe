"""Large files line by line, packed by gzip or not, in the memory of one line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from tuner.base.errors import InputError
from tuner.base.progress import Counted, quietly
from tuner.importers.text import LONGEST_LINE

BEGIN = 1 << 16  # bytes of a file that tell whose it is
_GZIP = b"\x1f\x8b"
_EACH = 1 << 14  # lines between two reports of progress


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file; `ended` is False for a last line without a line break."""

    number: int
    content: bytes
    ended: bool = True


def streamed_files(
    paths: Sequence[Path], progress: Counted = quietly
) -> Iterator[tuple[Path, bytes, Iterator[Line]]]:
    """Yield each file with its first bytes and its lines; one that is named twice comes once.

    progress    in bytes

    Raises InputError that names the file for what cannot be opened; reading the lines raises one
    that does not, for a line that is too long as well.
    """
    different = list({path.resolve(): path for path in paths}.values())
    sizes = [size_of(path) for path in different]
    total, done = sum(sizes), 0
    for path, size in zip(different, sizes, strict=True):

        def count(own: int, done: int = done) -> None:
            progress(min(done + own, total), total)

        try:
            begin = beginning(path)
        except InputError as reason:
            raise InputError(f"{path}: {reason}") from None
        yield path, begin, _lines(path, count)
        done += size


def size_of(path: Path) -> int:
    """Return the bytes of a file. Raises InputError where there is none, or nobody may ask."""
    try:
        if not path.is_file():
            raise InputError(f"there is no file {path}")
        return path.stat().st_size
    except OSError as reason:
        raise InputError(f"{path}: {_unreadable(reason)}") from None


def beginning(path: Path) -> bytes:
    """Return the first bytes of a file. Raises InputError for what cannot be read."""
    try:
        with path.open("rb") as raw, _unpacked(raw) as file:
            return file.read(BEGIN)
    except (OSError, EOFError, zlib.error) as reason:
        raise _unreadable(reason) from None


def _lines(path: Path, progress: Callable[[int], None]) -> Iterator[Line]:
    number = 0
    try:
        with path.open("rb") as raw, _unpacked(raw) as file:
            while content := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(content) > LONGEST_LINE:
                    raise InputError(
                        f"line {number}: longer than {LONGEST_LINE} characters; these"
                        " are no results"
                    )
                if number % _EACH == 0:
                    progress(raw.tell())
                yield Line(number, content, content.endswith(b"\n"))
    except (OSError, EOFError, zlib.error) as reason:
        raise _unreadable(reason) from None


def _unpacked(raw: IO[bytes]) -> IO[bytes]:
    packed = raw.read(len(_GZIP)) == _GZIP
    raw.seek(0)
    return cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if packed else raw


def _unreadable(reason: OSError | EOFError | zlib.error) -> InputError:
    why = (isinstance(reason, OSError) and reason.strerror) or "packed by gzip, and damaged"
    return InputError(f"cannot be read: {why}")
