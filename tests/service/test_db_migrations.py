"""Databases of earlier versions; new ones by one process or several; errors of a server."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, inspect, make_url, text

from tests.conftest import ROOT
from tests.support.children import Child, open_and_check
from tests.support.postgres import new_database
from tests.support.stored import (
    CLUSTER,
    LIBRARY,
    calibration,
    measurements_file,
    probe,
    report,
    table,
)
from tuner import db
from tuner.base.errors import InputError
from tuner.core.table import table_record
from tuner.db import UnavailableError
from tuner.db.models import Base
from tuner.machines.topology_files import parse_topology
from tuner.topology.readers.serialization import topology_from_record

DUMPS = Path(__file__).parent / "databases"  # of each kind, by the program of schema 0008


@pytest.fixture
def filled(empty_url: str) -> Iterator[Engine]:
    """A database that version 0.2.0 filled, with rows in every table, opened again."""
    url = make_url(empty_url)
    dump = (DUMPS / f"0008.{url.get_backend_name()}.sql").read_text()
    if url.get_backend_name() == "sqlite":
        with closing(sqlite3.connect(str(url.database))) as connection:
            connection.executescript(dump)
    else:
        with psycopg.connect(empty_url, autocommit=True) as server:
            server.execute(dump.encode())
    engine = db.open_database(empty_url)
    yield engine
    engine.dispose()


def schema(engine: Engine) -> dict[str, dict[str, list[str]]]:
    """Describe every table: its columns, keys, constraints and indexes, in any order."""
    inspector = inspect(engine)
    parts: dict[str, Callable[[str], list[Any]]] = {
        "columns": inspector.get_columns,
        "primary key": lambda name: [inspector.get_pk_constraint(name)],
        "foreign keys": inspector.get_foreign_keys,
        "unique": inspector.get_unique_constraints,
        "checks": inspector.get_check_constraints,
        "indexes": inspector.get_indexes,
    }
    return {
        name: {part: sorted(map(described, listed(name))) for part, listed in parts.items()}
        for name in inspector.get_table_names()
    }


def described(part: Any) -> str:
    return repr(sorted((key, str(value)) for key, value in part.items()))


def test_a_new_database_has_the_schema_to_which_all_migrations_lead(filled: Engine) -> None:
    migrated = schema(filled)
    with filled.connect() as connection:
        settings = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=settings)
        assert compare_metadata(context, Base.metadata) == []
    with filled.begin() as connection:
        Base.metadata.drop_all(connection)
        connection.execute(text("drop table alembic_version"))
    with pytest.raises(UnavailableError, match="has schema None"):
        db.check_ready(filled)
    again = db.open_database(filled.url.render_as_string(hide_password=False))
    db.check_ready(again)
    assert len(migrated) > 10
    assert schema(again) == migrated
    again.dispose()


def test_names_of_scripts_begin_with_their_revisions() -> None:
    scripts = list(ScriptDirectory(str(ROOT / "db")).walk_revisions())
    assert [script.revision for script in scripts][-1] == "0008"
    for script in scripts:
        assert Path(script.path).name.startswith(f"{script.revision}_")
    assert [script.revision for script in scripts] == sorted(
        (script.revision for script in scripts), reverse=True
    )


def test_old_measurements_and_tables_come_along(filled: Engine) -> None:
    with db.transaction(filled) as session:
        assert db.load_measurements(session, 1) == probe()
        assert db.load_calibration(session, 1) == calibration()
        for version, expected in ((1, table()), (2, table(via="schedule"))):
            assert table_record(db.load_table(session, version)) == table_record(expected)
        published = db.current_publication(session, CLUSTER.name, LIBRARY)
        assert published is not None
        assert (published.version, published.by) == (2, "ada")
        assert len(db.load_validations(session, 1)) == 1
        assert len(db.load_heldout(session, 1)) == 1
        assert len(db.list_feedback(session, 1).items) == 1
        topology = db.load_topology(session, 1)
        assert topology_from_record(topology.record) == parse_topology(topology.source)[1]


def test_old_content_that_comes_again_is_known(filled: Engine, tmp_path: Path) -> None:
    assert not db.ingest(filled, measurements_file(tmp_path / "m.ndjson", probe())).is_new
    with db.transaction(filled) as session:
        assert not db.store_calibration(session, calibration(), 1).is_new
        assert db.store_table(session, table()).id == 1
        assert not db.store_feedback(session, 1, report(1.0)).is_new


def test_old_jobs_and_tokens_go_on(filled: Engine) -> None:
    with db.read_session(filled) as session:
        jobs = [(job.kind, job.state) for job in db.list_jobs(session).items]
        assert sorted(jobs) == [("study", "queued"), ("tune", "done")]
        assert [entry.text for entry in db.list_job_log(session, 2).items] == ["fitting"]
    known = db.check_token(filled, "tuner_of-an-earlier-version")
    assert known is not None
    assert (known.name, known.expires_at, known.expired) == ("nightly", None, False)
    assert db.check_token(filled, "tuner_that-was-revoked") is None
    brief = db.check_token(filled, "tuner_that-expires")
    assert brief is not None
    assert brief.expires_at is not None


@pytest.mark.parametrize(
    ("revision", "sentence"),
    [
        ("0007", "schema 0007, from before version 0.2.0: give another database"),
        ("9999", "schema 9999, which is newer than this program: update tuner"),
    ],
)
def test_a_schema_without_a_migration_is_refused(
    engine: Engine, revision: str, sentence: str
) -> None:
    with engine.begin() as connection:
        connection.execute(text("update alembic_version set version_num = :it"), {"it": revision})
    with pytest.raises(InputError, match=sentence):
        db.open_database(engine.url.render_as_string(hide_password=False))


def test_several_processes_open_a_new_database_at_once(empty_url: str) -> None:
    openers = [Child(open_and_check, empty_url) for _ in range(8)]
    assert [opener.everything() for opener in openers] == [["ready"]] * 8


@pytest.fixture
def server(postgres: Any) -> str:
    """The URL of the PostgreSQL server."""
    return str(postgres.get_uri())


def test_a_server_that_is_down() -> None:
    for host in ("127.0.0.1:9", "nosuch.invalid"):
        with pytest.raises(
            UnavailableError, match=r"^the database (does not|is on a host)"
        ) as caught:
            db.open_database(f"postgresql://ada:secret@{host}/x?connect_timeout=2")
        assert "secret" not in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1


def test_no_such_database_or_user(server: str) -> None:
    url = make_url(server)
    with pytest.raises(InputError, match="no such database; create it with createdb"):
        db.open_database(url.set(database="absent").render_as_string(False))
    with pytest.raises(InputError, match="no such user"):
        db.open_database(url.set(username="nobody").render_as_string(False))


def test_no_part_of_a_url_is_in_a_message() -> None:
    url = "postgresql://me:hush@127.0.0.1:1/any?sslpassword=whisper&application_name=me"
    with pytest.raises(InputError, match=r"^the database does not answer") as caught:
        db.open_database(url)
    parts = {"me", "hush", "127", "any", "whisper"}
    assert not parts & set(re.findall(r"\w+", str(caught.value)))


def test_a_wrong_password(postgres: Any, server: str) -> None:
    rules = Path(postgres.pgdata, "pg_hba.conf")
    usual = rules.read_text()
    with new_database(server) as url:
        postgres.psql("create role guarded login password 'right';")
        rules.write_text("local all guarded scram-sha-256\n" + usual)
        postgres.psql("select pg_reload_conf();")
        try:
            wrong = make_url(url).set(username="guarded", password="wrong")
            with pytest.raises(InputError, match="refused the user or the password") as caught:
                db.open_database(wrong.render_as_string(False))
            assert "wrong" not in str(caught.value).replace("password", "")
            right = wrong.set(password="right").render_as_string(False)
            with pytest.raises(InputError, match="does not let this user"):
                db.open_database(right)
        finally:
            rules.write_text(usual)
            postgres.psql("select pg_reload_conf();")
    postgres.psql("drop role guarded;")


def test_a_server_that_stops_a_connection_is_asked_again(server: str) -> None:
    with new_database(server) as url:
        engine = db.open_database(url)
        kill = text("select pg_terminate_backend(pid) from pg_stat_activity where datname = :name")
        other = create_engine(make_url(server).set(drivername="postgresql+psycopg"))
        with db.transaction(engine) as session:
            session.execute(text("select 1"))
        with other.connect() as connection:
            connection.execute(kill, {"name": make_url(url).database})
        with db.read_session(engine) as session:
            assert db.list_tables(session).items == []

        def cut_off() -> None:
            with db.read_session(engine) as session, other.connect() as connection:
                session.execute(text("select 1"))
                connection.execute(kill, {"name": make_url(url).database})
                session.execute(text("select 1"))

        with pytest.raises(UnavailableError, match="try again"):
            cut_off()
        other.dispose()
        engine.dispose()
