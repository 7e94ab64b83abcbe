"""Permissions of SQLite's files, which only the user of the service may read and write."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sqlalchemy import URL, Engine

from tuner.base.errors import InputError

PRIVATE_MODE = 0o600
_SUFFIXES = ("", "-wal", "-shm")


def create_private_file(url: URL) -> None:
    """Create the file of a new SQLite database with mode 0600, which -wal and -shm inherit.

    Errors are ignored here, as SQLite reports them when it opens the file.
    """
    path = _path(url)
    if path is not None and url.query.get("mode", "rwc") == "rwc":
        with suppress(OSError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_MODE))


def require_file(url: URL) -> None:
    """Raise InputError if the file of an SQLite database does not exist."""
    path = _path(url)
    if path is not None and not Path(path).exists():
        raise InputError(f"{path}: there is no such database: name another one with --db")


def exposed_modes(engine: Engine) -> dict[str, int]:
    """Return the modes of the database's files that other users may read or write.

    The keys are the suffixes "", "-wal" and "-shm". PostgreSQL and in-memory databases have no
    files.
    """
    path = _path(engine.url)
    if path is None:
        return {}
    modes = {}
    for suffix in _SUFFIXES:
        with suppress(OSError):
            modes[suffix] = stat.S_IMODE(Path(f"{path}{suffix}").stat().st_mode)
    return {suffix: mode for suffix, mode in modes.items() if mode & ~PRIVATE_MODE & 0o077}


def _path(url: URL) -> Path | None:
    """Return the path of an SQLite database, or None for in-memory and other databases."""
    name = url.database or ""
    if url.get_backend_name() != "sqlite" or name in ("", ":memory:"):
        return None
    if not (name.startswith("file:") and "uri" in url.query):
        return Path(name)
    path = unquote(urlsplit(name).path)
    is_in_memory = path == ":memory:" or url.query.get("mode") == "memory"
    return None if is_in_memory else Path(path)
