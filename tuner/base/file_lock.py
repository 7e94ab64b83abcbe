"""A lock between processes that names its holder; the system releases it when the holder ends."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.base.errors import InputError


@contextmanager
def hold_lock(path: Path, activity: str, remedy: str) -> Iterator[None]:
    """Hold the lock of a file, which is created and stays; it contains the holder's name.

    activity    what a holder does, such as `tuner quickstart is at work in DIRECTORY`
    remedy      what to do besides waiting, such as `or choose another directory`

    Raises InputError where another process holds the lock, or the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    except OSError as reason:
        raise InputError(f"{path}: cannot be written: {reason.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise InputError(
                f"{activity} already ({holder}): wait until it has ended, {remedy}"
            ) from None
        except OSError as reason:
            raise InputError(f"{path}: cannot be locked: {reason.strerror}") from None
        try:
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
        except OSError as reason:
            raise InputError(f"{path}: cannot be written: {reason.strerror}") from None
        yield
