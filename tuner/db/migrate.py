"""Creation of the schema of a database and its migration, by one process at a time."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, text

from tuner.base import resources
from tuner.base.errors import InputError
from tuner.db.db_errors import UnavailableError, translate_errors
from tuner.db.models import Base
from tuner.db.transactions import advisory_lock, connect_read_only, without_timeout

if TYPE_CHECKING:
    from alembic.config import Config


def migrate(engine: Engine) -> None:
    """Give a database the newest schema; other processes that open it meanwhile wait.

    Raises InputError for a schema that is newer than the program, or older than its migrations.
    """
    known = _all_revisions(resources.data_directory("db"))
    with connect_read_only(engine) as connection:
        if _current_revision(connection) == known[0]:
            return
    with engine.begin() as connection:
        without_timeout(connection)
        advisory_lock(connection, "migration")
        current = _current_revision(connection)
        if current is None:
            _create_schema(connection, known[0])
        elif current in known:
            from alembic import command  # takes a tenth of a second, which a current schema saves

            command.upgrade(migration_settings(connection), "head")
        else:
            raise InputError(f"the database has schema {current}, {_refusal(current < known[-1])}")


def _refusal(is_older: bool) -> str:
    if is_older:
        return "from before version 0.2.0: give another database, and store your files there again"
    return "which is newer than this program: update tuner, or give another database"


def _create_schema(connection: Connection, revision: str) -> None:
    """Create the newest schema at once, the one to which all migrations lead."""
    Base.metadata.create_all(connection, checkfirst=False)
    connection.execute(
        text(
            "create table if not exists alembic_version (version_num varchar(32) not null,"
            " constraint alembic_version_pkc primary key (version_num))"
        )
    )
    connection.execute(
        text("insert into alembic_version values (:revision)"), {"revision": revision}
    )


def check_ready(engine: Engine) -> None:
    """Raise UnavailableError unless the database can be written to and has the newest schema.

    The number of the schema is written again: a file that may not be written to, a full disk and a
    standby server would pass a check that only reads.
    """
    newest = _all_revisions(resources.data_directory("db"))[0]
    with translate_errors(engine), engine.begin() as connection:
        current = _current_revision(connection)
        if current == newest:
            connection.execute(text("update alembic_version set version_num = version_num"))
    if current != newest:
        raise UnavailableError(
            f"the database has schema {current}, but this program needs {newest}: start the"
            " service again, which migrates the database"
        )


def migration_settings(connection: Connection) -> Config:
    """Return the settings that make Alembic's commands use this open connection."""
    from alembic.config import Config

    settings = Config()
    settings.set_main_option(
        "script_location", str(resources.data_directory("db")).replace("%", "%%")
    )
    settings.attributes["connection"] = connection
    return settings


def _current_revision(connection: Connection) -> str | None:
    """Return the revision of the schema; None for a database without one."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.scalar(text("select version_num from alembic_version"))
    return revision


@cache
def _all_revisions(scripts: Path) -> tuple[str, ...]:
    """Return all revisions, newest first: the numbers with which the scripts' names begin."""
    names = (path.name for path in (scripts / "versions").glob("[0-9]*_*.py"))
    return tuple(sorted((name.partition("_")[0] for name in names), reverse=True))
