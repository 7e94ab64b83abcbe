"""Fresh databases on a PostgreSQL server."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import create_engine, make_url, text


@contextmanager
def new_database(server: str, template: str = "template1") -> Iterator[str]:
    """The URL of a new database, a copy of `template`; it is dropped afterwards."""
    url, name = make_url(server), f"tuner_{secrets.token_hex(4)}"
    maintenance = create_engine(
        url.set(drivername="postgresql+psycopg", database="postgres"), isolation_level="AUTOCOMMIT"
    )
    with maintenance.connect() as connection:
        connection.execute(text(f"create database {name} template {template}"))
        yield url.set(drivername="postgresql", database=name).render_as_string(False)
        connection.execute(text(f"drop database {name} with (force)"))
    maintenance.dispose()


def programs_of(server: str) -> str:
    """Return the folder of the server's own programs; an older pg_dump refuses a newer server."""
    engine = create_engine(make_url(server).set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        query = text("select setting from pg_config where name = 'BINDIR'")
        folder: str = connection.execute(query).scalar_one()
    engine.dispose()
    return folder
