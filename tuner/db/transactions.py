"""Transactions, which are atomic, and read sessions, which never wait for writers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.orm import Session

from tuner.db.db_errors import translate_errors

READING = "reading"  # execution option of a connection that only reads


def connect_read_only(engine: Engine) -> Connection:
    """Return a connection whose statements all see one state of the database.

    A transaction of SQLite does so by itself. One of PostgreSQL would show every statement what
    was committed before that statement, so that a job could have ended between two of them.
    """
    options: dict[str, Any] = {READING: True}
    if engine.dialect.name == "postgresql":
        options |= {"postgresql_readonly": True, "isolation_level": "REPEATABLE READ"}
    return engine.connect().execution_options(**options)


@contextmanager
def transaction(engine: Engine) -> Iterator[Session]:
    """Return a session that commits at the end, or rolls back when anything inside fails.

    Raises InputError for what the database refuses, UnavailableError where it is locked, full or
    does not answer.
    """
    with translate_errors(engine), Session(engine) as session, session.begin():
        yield session


@contextmanager
def read_session(engine: Engine) -> Iterator[Session]:
    """Return a read-only session on one state of the database; it raises like `transaction`.

    It never waits for writers.
    """
    with (
        translate_errors(engine),
        connect_read_only(engine) as connection,
        Session(connection) as session,
    ):
        yield session


def begin_sqlite(connection: Connection) -> None:
    """Begin a transaction explicitly.

    The driver would not begin one for CREATE TABLE, and a failed migration must be undone as a
    whole. It is IMMEDIATE because a transaction that reads and then writes would fail beside a
    writer instead of waiting for it.
    """
    reads = connection.get_execution_options().get(READING, False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def advisory_lock(connection: Connection, name: str) -> None:
    """Lock a name until the end of this transaction; SQLite needs no lock as it has one writer."""
    if connection.dialect.name == "postgresql":
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
        connection.execute(select(func.pg_advisory_xact_lock(number)))


def without_timeout(connection: Connection) -> None:
    """Remove the response timeout of this connection and detach it from the pool.

    This is for statements that may take longer than those of any request.
    """
    if connection.dialect.name == "postgresql":
        bounded: Any = connection.connection.driver_connection
        bounded.response_timeout_s = math.inf
        connection.detach()


def database_now(session: Session) -> datetime:
    """Return the time by the clock that all users of this database share."""
    if session.get_bind().dialect.name == "postgresql":
        time: datetime = session.execute(select(func.clock_timestamp())).scalar_one()
        return time.astimezone(UTC)
    return datetime.now(UTC)  # users of one file share a computer
