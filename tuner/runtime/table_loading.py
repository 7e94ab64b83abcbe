"""The loading of a requested table, from its file or its service; this module starts no MPI."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tuner.base.errors import InputError
from tuner.runtime.table_source import MAX_TABLE_BYTES, FetchedTable, TableRequest


def load_table(request: TableRequest) -> FetchedTable:
    """Return the table of a request, checked; raises InputError where there is none."""
    if request.table_json:
        return FetchedTable(request.table_json, "the program")
    if request.path is not None:
        return _read(request, request.path)
    from tuner.runtime import service_client  # urllib is slow to import

    return service_client.fetch_table(request)


def _read(request: TableRequest, path: Path) -> FetchedTable:
    """Read a table file; raises InputError where it is unreadable or not for this request."""
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InputError("not a regular file")
            content = file.read(MAX_TABLE_BYTES + 1)
        if len(content) > MAX_TABLE_BYTES:
            raise InputError(f"larger than a table may be, {MAX_TABLE_BYTES >> 20} MiB")
        request.parse_and_check(content)
        return FetchedTable(content.decode("utf-8"), str(path))
    except OSError as reason:
        raise InputError(f"{path}: cannot be read: {reason.strerror}") from None
    except (InputError, UnicodeDecodeError) as reason:
        raise InputError(f"{path}: {reason}") from None


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe that nothing writes to is opened as well, and does not block."""
    return os.open(path, flags | os.O_NONBLOCK)
