"""Contents of untrusted files, which may be compressed, in bounded memory."""

from __future__ import annotations

import zlib
from pathlib import Path

from tuner.base.errors import InputError

MAX_BYTES = 256 << 20  # of a file, after decompression
GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 16 + zlib.MAX_WBITS  # zlib's number for files of gzip


def read_contents(path: Path) -> bytes:
    """Return the bytes of a file, decompressed if it is one of gzip.

    Raises InputError for a file that cannot be read, is empty, or is larger than MAX_BYTES.
    """
    try:
        if not path.is_file():
            raise InputError("expected the path of a file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as reason:
        raise InputError(f"cannot be read: {reason.strerror}") from None
    if data.startswith(GZIP_MAGIC):
        data = _decompress(data)
    if len(data) > MAX_BYTES:
        raise InputError(f"more than {MAX_BYTES >> 20} MiB: record fewer iterations")
    if not data.strip():
        raise InputError("the file is empty")
    return data


def _decompress(data: bytes) -> bytes:
    """Return the contents of a file of gzip, at most one byte more than MAX_BYTES."""
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    try:
        unpacked = unpacker.decompress(data, MAX_BYTES + 1)
    except zlib.error:
        raise InputError("not a file of gzip that can be unpacked") from None
    if not unpacker.eof and len(unpacked) <= MAX_BYTES:
        raise InputError("truncated gzip file")
    return unpacked


def is_text(data: bytes) -> bool:
    """Return whether bytes are text in UTF-8 without control characters at the beginning."""
    try:
        head = data.decode("utf-8")[:100]
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character.isspace() for character in head)


def text_lines(data: bytes) -> list[str]:
    """Return the lines of text, without white space at their ends."""
    text = data.decode("utf-8").removeprefix("\ufeff")
    return [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
