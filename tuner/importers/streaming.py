"""Large files, compressed by gzip or not, read line by line in the memory of one line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from tuner.base.errors import InputError
from tuner.base.progress import ProgressCallback, no_progress
from tuner.importers.text import MAX_LINE_CHARACTERS

HEAD_BYTES = 1 << 16  # bytes of a file that are used to detect its format
_GZIP = b"\x1f\x8b"
_PROGRESS_LINES = 1 << 14  # lines between two reports of progress


@dataclass(frozen=True, slots=True)
class RawLine:
    """A line of a file; `is_complete` is False for a last line without a line break."""

    number: int
    content: bytes
    is_complete: bool = True


def iter_files(
    paths: Sequence[Path], progress: ProgressCallback = no_progress
) -> Iterator[tuple[Path, bytes, Iterator[RawLine]]]:
    """Yield each file with its first bytes and its lines; a file that is named twice comes once.

    progress    called with the bytes read so far, and in all

    Raises InputError with the file where it cannot be opened. Reading the lines raises InputError
    without the file, also for a line that is too long.
    """
    different = list({path.resolve(): path for path in paths}.values())
    sizes = [file_size(path) for path in different]
    total, done = sum(sizes), 0
    for path, size in zip(different, sizes, strict=True):

        def count(own: int, done: int = done) -> None:
            progress(min(done + own, total), total)

        try:
            begin = read_head(path)
        except InputError as reason:
            raise InputError(f"{path}: {reason}") from None
        yield path, begin, _lines(path, count)
        done += size


def file_size(path: Path) -> int:
    """Return the size of a file in bytes; raise InputError where there is none or no permission."""
    try:
        if not path.is_file():
            raise InputError(f"{path}: expected the path of a file")
        return path.stat().st_size
    except OSError as reason:
        raise InputError(f"{path}: {_unreadable(reason)}") from None


def read_head(path: Path) -> bytes:
    """Return the first bytes of a file; raise InputError where it cannot be read."""
    try:
        with path.open("rb") as raw, _decompressed(raw) as file:
            return file.read(HEAD_BYTES)
    except (OSError, EOFError, zlib.error) as reason:
        raise _unreadable(reason) from None


def _lines(path: Path, progress: Callable[[int], None]) -> Iterator[RawLine]:
    number = 0
    try:
        with path.open("rb") as raw, _decompressed(raw) as file:
            while content := file.readline(MAX_LINE_CHARACTERS + 1):
                number += 1
                if len(content) > MAX_LINE_CHARACTERS:
                    raise InputError(
                        f"line {number}: longer than {MAX_LINE_CHARACTERS} characters; these"
                        " are not results"
                    )
                if number % _PROGRESS_LINES == 0:
                    progress(raw.tell())
                yield RawLine(number, content, content.endswith(b"\n"))
    except (OSError, EOFError, zlib.error) as reason:
        raise _unreadable(reason) from None


def _decompressed(raw: IO[bytes]) -> IO[bytes]:
    packed = raw.read(len(_GZIP)) == _GZIP
    raw.seek(0)
    return cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if packed else raw


def _unreadable(reason: OSError | EOFError | zlib.error) -> InputError:
    why = (isinstance(reason, OSError) and reason.strerror) or "packed by gzip, and damaged"
    return InputError(f"cannot be read: {why}")
