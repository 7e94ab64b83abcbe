"""Whether the files of SQLite that this process has open are still those at their paths.

A file that was deleted can be written to as before, and is gone when the last process closes it: a
service would acknowledge what cannot be found again. SQLite itself does not notice in WAL mode.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from weakref import WeakSet

from tuner.db.db_errors import UnavailableError
from tuner.db.sqlite_file import SUFFIXES

_Identity = tuple[int, int] | None  # device and inode; None where there is no file


class WatchedConnection(sqlite3.Connection):
    """A connection of sqlite3 that knows the files of its database; `watch` sets `files`."""

    files: OpenFiles | None = None

    def close(self) -> None:
        """Close the connection, which then no longer counts."""
        if self.files is None:
            super().close()
        else:
            self.files.close(self, super().close)


class OpenFiles:
    """The files of one database that the connections of this process have open.

    None of them is ever replaced while a connection is open, unless by hand: SQLite deletes -wal
    and -shm when the last connection of all processes is closed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connections: WeakSet[WatchedConnection] = WeakSet()
        self._identities: Mapping[str, _Identity] = {}
        self._lock = threading.RLock()

    def watch(self, connection: WatchedConnection) -> None:
        """Count a connection that has read from its database, and so has all of its files open."""
        with self._lock:
            if not self._connections:
                self._identities = {suffix: self._identity(suffix) for suffix in SUFFIXES}
            connection.files = self
            self._connections.add(connection)
        self.check()

    def close(self, connection: WatchedConnection, close: Callable[[], None]) -> None:
        """Close a connection and no longer count it, while no other thread checks the files.

        The last connection deletes -wal and -shm.
        """
        with self._lock:
            close()
            self._connections.discard(connection)

    def check(self) -> None:
        """Raise UnavailableError where a file was deleted or replaced while it was open."""
        with self._lock:
            opened = self._identities if self._connections else {}
            for suffix, identity in opened.items():
                if identity is not None and self._identity(suffix) != identity:
                    raise UnavailableError(_moved_message(suffix))

    def _identity(self, suffix: str) -> _Identity:
        try:
            found = Path(f"{self._path}{suffix}").stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino


@cache
def open_files(path: Path) -> OpenFiles:
    """Return the files of the database at a resolved path, which all engines of a process share."""
    return OpenFiles(path)


def _moved_message(suffix: str) -> str:
    if suffix:
        return (
            f"the file of the database that ends in {suffix} was deleted or replaced while it was"
            " in use, so nothing is stored: end all programs that use the database, then start them"
            " again"
        )
    return (
        "the file of the database was deleted or replaced while it was in use, so nothing is"
        " stored: put it back or restore it from a backup, and start this program again"
    )
