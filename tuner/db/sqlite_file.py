"""The files of an SQLite database: their path, and their permissions, which are for their owner.

No function here opens a file that exists: POSIX drops all locks that a process has on a file as
soon as the process closes any descriptor of it, those of SQLite included. Another process would
then take itself for the only one, and delete the log of the database while this one writes to it
(https://sqlite.org/howtocorrupt.html, 2.2).
"""

from __future__ import annotations

import os
import stat
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sqlalchemy import URL, Engine

from tuner.base.errors import InputError
from tuner.db.db_errors import UnavailableError

PRIVATE_MODE = 0o600
SUFFIXES = ("", "-wal", "-shm")  # of the names of a database's files
_CREATING = threading.Lock()  # no other thread may have a new file open when it is closed here


def create_private_file(url: URL) -> None:
    """Create the file of a new SQLite database with mode 0600, which -wal and -shm inherit.

    A file that exists is not opened. Errors are ignored here, as SQLite reports them when it opens
    the file.
    """
    path = path_of(url)
    if path is not None and url.query.get("mode", "rwc") == "rwc":
        with _CREATING, suppress(OSError):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(path, flags, PRIVATE_MODE))


def require_file(url: URL) -> None:
    """Raise UnavailableError if the file of an SQLite database does not exist."""
    path = path_of(url)
    if path is not None and not path.exists():
        raise UnavailableError(
            "the file of the database does not exist: restore it from a backup, or name"
            " another one with --db"
        )


def exposed_modes(engine: Engine) -> dict[str, int]:
    """Return the modes of the database's files that other users may read or write.

    The keys are the suffixes "", "-wal" and "-shm". PostgreSQL and in-memory databases have no
    files.
    """
    path = path_of(engine.url)
    if path is None:
        return {}
    modes = {}
    for suffix in SUFFIXES:
        with suppress(OSError):
            modes[suffix] = stat.S_IMODE(Path(f"{path}{suffix}").stat().st_mode)
    return {suffix: mode for suffix, mode in modes.items() if mode & ~PRIVATE_MODE & 0o077}


def path_of(url: URL) -> Path | None:
    """Return the path of an SQLite database, without symbolic links.

    None for in-memory and other databases. Raises InputError for links that lead in a circle.
    """
    name = url.database or ""
    if url.get_backend_name() != "sqlite" or name in ("", ":memory:"):
        return None
    if not (name.startswith("file:") and "uri" in url.query):
        return _resolved(name)
    path = unquote(urlsplit(name).path)
    is_in_memory = path == ":memory:" or url.query.get("mode") == "memory"
    return None if is_in_memory else _resolved(path)


def _resolved(name: str) -> Path:
    try:
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            Path(name).stat()  # raises for circular links, which `resolve` may leave as they are
        return Path(name).resolve()
    except OSError as reason:
        raise InputError(
            f"the path of the database cannot be followed ({reason.strerror}): name another one"
            " with --db"
        ) from None
