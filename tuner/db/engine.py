"""Opening a database at the newest schema, and transactions that succeed or leave no trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.orm import Session

from tuner import resources
from tuner.errors import InputError

LOCK_WAIT = 10.0  # seconds; storing a whole probe takes well under one
_REMEDIES = {  # what SQLite says -> what it means for the person at the terminal
    "file is not a database": "is not a database; give another file",
    "malformed": "is damaged; restore it from a backup or start a new file",
    "locked": "is in use by another program; try again when that has ended",
    "unable to open": "cannot be opened; check that its directory exists and may be written to",
    "readonly": "may not be written to; check its permissions",
    "full": "cannot grow, the disk is full; nothing was stored, free some space",
    "disk I/O error": "cannot be written, the disk is full or failing; nothing was stored",
}


def open_database(url: str) -> Engine:
    """Connect (`sqlite:///tuner.db`, or a PostgreSQL URL) and migrate to the newest schema.

    SQLite runs in WAL mode with foreign keys enforced. Raises InputError: no such driver,
    unreadable, locked, or written by a newer version of the program.
    """
    try:
        engine = create_engine(url)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as reason:
        raise InputError(
            f"this database URL cannot be used ({reason}); write it like sqlite:///tuner.db"
        ) from None
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    try:
        with _clear_errors(engine), engine.begin() as connection:
            _migrate(connection)
    except InputError:
        engine.dispose()
        raise
    return engine


@contextmanager
def transaction(engine: Engine) -> Iterator[Session]:
    """A session that commits at the end, or stores nothing when anything inside fails.

    Raises InputError for a locked, unreadable or full database.
    """
    with _clear_errors(engine), Session(engine) as session, session.begin():
        yield session


def migration_settings(connection: Connection) -> Config:
    """What Alembic's commands need to work on this open connection."""
    settings = Config()
    settings.set_main_option("script_location", str(resources.directory("db")).replace("%", "%%"))
    settings.attributes["connection"] = connection
    return settings


def _migrate(connection: Connection) -> None:
    settings = migration_settings(connection)
    current = MigrationContext.configure(connection).get_current_revision()
    known = {script.revision for script in ScriptDirectory.from_config(settings).walk_revisions()}
    if current is not None and current not in known:
        raise InputError(
            f"{_name(connection.engine)}: its schema {current} is newer than this program;"
            " update tuner or give another database"
        )
    command.upgrade(settings, "head")


def _prepare_sqlite(connection: Any, _record: object) -> None:
    for pragma in (
        f"busy_timeout = {int(LOCK_WAIT * 1000)}", "journal_mode = WAL", "foreign_keys = ON",
    ):  # fmt: skip
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    # The driver would not begin a transaction for CREATE TABLE, and a failed migration must be
    # undone whole. IMMEDIATE: one that reads and then writes would fail, not wait, beside a writer.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


@contextmanager
def _clear_errors(engine: Engine) -> Iterator[None]:
    try:
        yield
    except DBAPIError as reason:
        said = str(reason.orig)
        for words, remedy in _REMEDIES.items():
            if words in said:
                raise InputError(f"{_name(engine)}: {remedy}") from None
        raise InputError(f"{_name(engine)}: the database refused: {said}") from None


def _name(engine: Engine) -> str:
    if engine.dialect.name == "sqlite":
        return engine.url.database or "the database in memory"
    return engine.url.render_as_string(hide_password=True)
