"""Opening of databases: SQLite by default without set-up, PostgreSQL by URL."""

from __future__ import annotations

import sqlite3
import time
from typing import Any
from warnings import catch_warnings, simplefilter

from sqlalchemy import URL, Engine, ExceptionContext, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SAWarning

from tuner.base.errors import InputError
from tuner.db.db_errors import encode_json, is_read_only, translate_errors
from tuner.db.migrate import migrate
from tuner.db.open_files import OpenFiles, WatchedConnection, open_files
from tuner.db.sqlite_file import create_private_file, path_of, require_file
from tuner.db.transactions import begin_sqlite

LOCK_TIMEOUT_S = 10.0  # seconds; every transaction takes well under one
RETRY_INTERVAL_S = 0.01  # seconds between tries
CONNECT_TIMEOUT_S = 10  # whole seconds, as libpq requires
CACHE_BYTES = 32 << 20  # bytes of SQLite's page cache, per connection


def open_database(url: str, must_exist: bool = False) -> Engine:
    """Connect to a database and migrate it to the newest schema; return its engine.

    url         `sqlite:///tuner.db` or `postgresql://user:password@host/name`
    must_exist  whether the file of an SQLite database must exist; by default it is created

    Any number of processes may do this at once. SQLite runs in WAL mode with foreign keys enforced.
    Raises InputError where there is no such driver or file, or where a newer version of the
    program wrote the database, UnavailableError where the database is unreadable, refuses the
    connection, is locked or does not answer, and ModuleNotFoundError for PostgreSQL where psycopg
    is missing.
    """
    try:
        engine = _make_engine(make_url(url))
    except ModuleNotFoundError as reason:
        if reason.name == "psycopg":
            raise
        raise _unusable_url() from None
    except (ArgumentError, NoSuchModuleError, SAWarning, ValueError):
        raise _unusable_url() from None
    try:
        if must_exist:
            require_file(engine.url)
        create_private_file(engine.url)
        with translate_errors(engine):
            migrate(engine)
    except InputError:
        engine.dispose()
        raise
    except (TypeError, ValueError):  # raised by drivers for parameters in the URL
        engine.dispose()
        raise _unusable_url() from None
    return engine


def _unusable_url() -> InputError:
    """Return the error without the URL, which may contain a password anywhere."""
    return InputError(
        "the URL of the database cannot be used: write it like sqlite:///tuner.db or"
        " postgresql://user:password@host/name"
    )


def _make_engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        return _make_sqlite_engine(url)
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if "connect_timeout" not in url.query:
        url = url.update_query_dict({"connect_timeout": str(CONNECT_TIMEOUT_S)})
    engine = create_engine(url, json_serializer=encode_json, pool_pre_ping=True)
    event.listen(engine, "handle_error", _reopen_if_read_only)
    event.listen(engine, "checkin", _let_server_decide)
    return _with_timeouts(engine)


def _make_sqlite_engine(url: URL) -> Engine:
    with catch_warnings():
        simplefilter("error", SAWarning)  # parameters that would be ignored are errors
        engine = create_engine(
            url, json_serializer=encode_json, connect_args={"factory": WatchedConnection}
        )
    event.listen(engine, "connect", _prepare_sqlite)
    path = path_of(engine.url)
    if path is not None:
        _watch_files(engine, open_files(path))
    event.listen(engine, "begin", begin_sqlite)
    event.listen(engine, "handle_error", _reopen_if_read_only)
    return engine


def _watch_files(engine: Engine, files: OpenFiles) -> None:
    """Refuse to connect, to begin and to commit where files were deleted while they were open.

    No new connection may open what is at the path then: its log would not be that of the others.
    """
    event.listen(engine, "do_connect", lambda *_: files.check())
    event.listen(engine, "connect", lambda connection, _record: files.watch(connection))
    for name in ("begin", "commit", "handle_error"):
        event.listen(engine, name, lambda _: files.check())


def _reopen_if_read_only(context: ExceptionContext) -> None:
    """Drop connections that may not write, as only new ones see that this was mended."""
    if is_read_only(context.original_exception):
        context.is_disconnect = True


def _let_server_decide(connection: Any, _record: object) -> None:
    """Begin the next transaction without READ WRITE, which SQLAlchemy sets after a read-only one.

    It would write where `default_transaction_read_only` is set, and fail on a standby.
    """
    if connection is not None:
        connection.read_only = None


def _with_timeouts(engine: Engine) -> Engine:
    """Add response timeouts to a PostgreSQL engine.

    The driver is imported here because SQLite does not need it.
    """
    from tuner.db.postgres import ConnectionFactory

    event.listen(engine, "do_connect", ConnectionFactory().connect)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.execute(f"PRAGMA busy_timeout = {int(LOCK_TIMEOUT_S * 1000)}")
    _enable_wal(connection)
    connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1")  # opens -wal and -shm
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA cache_size = {-CACHE_BYTES // 1024}")


def _enable_wal(connection: Any) -> None:
    """Enable WAL mode, retrying while others open the same new database."""
    patience = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as reason:
            if reason.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > patience:
                raise
            time.sleep(RETRY_INTERVAL_S)
