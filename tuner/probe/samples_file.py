"""Write a probe's samples to its file, from rank 0 (rank side)."""

from __future__ import annotations

import os
from pathlib import Path

from tuner.base.errors import ProbeError


class SampleWriter:
    """A writer that appends finished points, each of them completely or not at all.

    The file is opened once. When another run resumes the probe it replaces the file: ranks that
    have outlived their launcher then notice, and end.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND)
        except OSError as reason:
            raise ProbeError(
                f"{path} cannot be opened on {os.uname().nodename}: {reason.strerror}; choose an"
                " --out in a directory that the first host sees too"
            ) from None

    def append(self, text: str) -> None:
        """Append text and flush it to disk.

        Raises ProbeError when there is no room, with the file as it was before, or when another
        run has taken the file over.
        """
        before = os.fstat(self._file)
        try:
            if self._path.stat().st_ino != before.st_ino:
                raise ProbeError(f"{self._path}: another run goes on with it; this one ends")
            rest = memoryview(text.encode())
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except OSError as reason:
            os.ftruncate(self._file, before.st_size)
            raise ProbeError(
                f"{self._path}: cannot be written: {reason.strerror}; what was measured until then"
                " is kept: make room and run the same command again"
            ) from None
