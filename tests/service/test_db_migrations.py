"""Migrations forward, back and forward on data, by one process or several; errors of a server."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, inspect, make_url, text

from tests.conftest import ROOT
from tests.support.children import Child, open_and_check
from tests.support.postgres import new_database
from tests.support.stored import LIBRARY, calibration, measurements_file, probe, table
from tuner import db
from tuner.base.atomic_io import encode_infinities
from tuner.base.errors import InputError
from tuner.core.path_classes import CYCLIC
from tuner.core.table import Evidence
from tuner.db import UnavailableError
from tuner.db.migrate import migration_settings
from tuner.db.models import Base, utc_now

# Rows of every table that the first schema had.
OLD: dict[str, list[dict[str, Any]]] = {
    "clusters": [
        {"id": 1, "name": "ares", "nodes": 1, "cores": 2, "cpu": "any cpu", "memory": 2**40}
    ],
    "probes": [
        {
            "id": 1,
            "cluster_id": 1,
            "library": LIBRARY,
            "digest": "old",
            "provenance": {"seed": 7, "launches": ["one"]},
        }
    ],
    "series": [
        {
            "id": i + 1,
            "probe_id": 1,
            "ordinal": i,
            "kind": "collective",
            "subject": "bcast",
            "nodes": 1,
            "ppn": 4,
            "p": 4,
            "nbytes": 2**33 + i,
            "algorithm": "chain",
            "params": {"segment": 4096, "chains": 4},
            "memory": "host",
            "launch": 0,
            "samples": [0.1 + i / 3, 1e-7],
        }
        for i in range(3)
    ],
    "tuning_tables": [
        {
            "version": version,
            "cluster_id": 1,
            "probe_id": 1,
            "library": LIBRARY,
            "provenance": {"noise": 0.02},
        }
        for version in (1, 2, 3)
    ],
    "rules": [
        {
            "version": version,
            "ordinal": 0,
            "collective": "bcast",
            "nodes": 1,
            "ppn": 4,
            "memory": "host",
            "operators": "any",
            "lo": 0,
            "hi": None,
            "algorithm": algorithm,
            "params": {},
            "evidence": encode_infinities(asdict(Evidence("measured", (8,), gain=1.5))),
        }
        for version, algorithm in ((1, "chain"), (2, "chain"), (3, "pipeline"))
    ],
    "proofs": [
        {
            "version": 2,
            "collective": "bcast",
            "p": 4,
            "nbytes": 8,
            "expected": "chain",
            "executed": "chain",
            "confirmed": True,
            "reason": "",
        }
    ],
}


def migrate(engine: Engine, direction: str, revision: str) -> None:
    with engine.begin() as connection:
        getattr(command, direction)(migration_settings(connection), revision)


def fill_old(engine: Engine) -> None:
    """Data as the first schema held it."""
    with engine.begin() as connection:
        for name, rows in OLD.items():
            for row in rows:
                values: dict[str, Any] = {
                    key: json.dumps(value) if isinstance(value, dict | list) else value
                    for key, value in row.items()
                    if key != "id" and (key, name) != ("version", "tuning_tables")
                }  # the database counts them, from 1
                if name in ("probes", "tuning_tables"):
                    values["stored_at"] = "2026-01-01 00:00:00"
                names = ", ".join(values)
                marks = ", ".join(f":{key}" for key in values)
                connection.execute(text(f"insert into {name} ({names}) values ({marks})"), values)


def table_names(engine: Engine) -> set[str]:
    return set(inspect(engine).get_table_names())


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


def test_a_new_database_has_the_schema_to_which_all_migrations_lead(engine: Engine) -> None:
    new = schema(engine)
    migrate(engine, "downgrade", "base")
    migrate(engine, "upgrade", "head")
    assert len(new) > 10
    assert schema(engine) == new
    with engine.connect() as connection:
        settings = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=settings)
        assert compare_metadata(context, Base.metadata) == []


def test_names_of_scripts_begin_with_their_revisions() -> None:
    scripts = list(ScriptDirectory(str(ROOT / "db")).walk_revisions())
    assert len(scripts) > 1
    for script in scripts:
        assert Path(script.path).name.startswith(f"{script.revision}_")
    assert [script.revision for script in scripts] == sorted(
        (script.revision for script in scripts), reverse=True
    )


def test_old_data_comes_along_and_goes_back(engine: Engine, tmp_path: Path) -> None:
    migrate(engine, "downgrade", "0001")
    fill_old(engine)
    migrate(engine, "upgrade", "head")
    content = measurements_file(tmp_path / "m.ndjson", probe()).read_bytes()
    with db.transaction(engine) as session:
        assert db.load_measurements(session, 1) == probe()
        described = db.describe_measurements(session, 1)
        assert (described.series, described.digest) == (3, hashlib.sha256(content).hexdigest())
        assert [entry.version for entry in db.list_tables(session).items] == [1, 2, 3]
        assert db.load_table(session, 2).rules == db.load_table(session, 1).rules
        assert db.store_table(session, db.load_table(session, 1)).id == 2  # the newest of equals
        assert db.store_table(session, db.load_table(session, 3)).id == 3
        assert len(db.load_validations(session, 2)) == 1
        foreign = db.store_table(session, table(via="schedule")).id
        db.publish(session, foreign)
        db.store_calibration(session, calibration(), 1)
    spaced = tmp_path / "spaced.ndjson"
    spaced.write_bytes(content.replace(b'"samples"', b' "samples"'))
    assert db.ingest(engine, spaced).is_new
    migrate(engine, "downgrade", "0001")
    with engine.connect() as connection:
        versions = connection.scalars(text("select version from tuning_tables order by version"))
        assert versions.all() == [1, 2, 3]
        assert connection.scalars(text("select id from probes")).all() == [1]
        assert connection.scalar(text("select count(*) from series")) == 3
        assert connection.scalar(text("select count(*) from calibrations")) == 1
        assert connection.scalar(text("select digest from probes")) == OLD_DIGEST
    assert "jobs" not in table_names(engine)
    migrate(engine, "upgrade", "head")
    with db.read_session(engine) as session:
        assert db.load_measurements(session, 1) == probe()
        assert len(db.load_validations(session, 2)) == 1
    with db.transaction(engine) as session:
        assert not db.store_calibration(session, calibration(), 1).is_new


# SHA-256 of {"cluster", "library", "provenance", "series"} of `probe()` as JSON with sorted keys.
OLD_DIGEST = hashlib.sha256(
    json.dumps(
        {
            "cluster": {
                key: OLD["clusters"][0][key] for key in ("name", "nodes", "cores", "cpu", "memory")
            },
            "library": LIBRARY,
            "provenance": OLD["probes"][0]["provenance"],
            "series": [
                {
                    key: value
                    for key, value in row.items()
                    if key not in ("id", "probe_id", "ordinal")
                }
                for row in OLD["series"]
            ],
        },
        sort_keys=True,
    ).encode()
).hexdigest()


def test_cyclic_ranks_are_not_taken_for_consecutive_ones_by_a_schema_without_either(
    engine: Engine,
) -> None:
    dealt = replace(probe().series[0], nodes=2, ppn=2, placement=CYCLIC)
    with db.transaction(engine) as session:
        number = db.store_measurements(session, replace(probe(), series=(dealt,))).id
    with pytest.raises(ValueError, match="series: other placements than consecutive"):
        migrate(engine, "downgrade", "0004")
    with db.read_session(engine) as session:
        assert db.load_measurements(session, number).series == (dealt,)


def test_tokens_from_before_there_was_an_expiry_go_on(engine: Engine) -> None:
    migrate(engine, "downgrade", "0005")
    token = "tuner_of-an-earlier-version"
    values = {"digest": hashlib.sha256(token.encode()).hexdigest(), "at": "2026-01-01 00:00:00"}
    with engine.begin() as connection:
        insert = "insert into tokens (name, scopes, digest, created_at) values"
        connection.execute(text(f"{insert} ('old', '[\"read\"]', :digest, :at)"), values)
    migrate(engine, "upgrade", "head")
    known = db.check_token(engine, token)
    assert known is not None
    assert (known.name, known.expires_at, known.expired) == ("old", None, False)


def test_a_token_that_expires_does_not_last_for_ever_without_the_column(engine: Engine) -> None:
    with db.transaction(engine) as session:
        brief = db.create_token(session, "brief", ["read"], utc_now() + timedelta(days=90))
        lasting = db.create_token(session, "lasting", ["read"])
    migrate(engine, "downgrade", "0005")
    migrate(engine, "upgrade", "head")
    assert db.check_token(engine, brief) is None
    assert db.check_token(engine, lasting) is not None


def test_everything_can_be_taken_back(engine: Engine) -> None:
    with db.transaction(engine) as session:
        probed = db.store_measurements(session, probe()).id
        db.store_table(session, table(), probed)
    migrate(engine, "downgrade", "base")
    assert table_names(engine) == {"alembic_version"}
    with pytest.raises(UnavailableError, match="has schema None"):
        db.check_ready(engine)
    url = engine.url.render_as_string(hide_password=False)
    again = db.open_database(url)
    with db.transaction(again) as session:
        assert db.store_table(session, table()).id == 1
    db.check_ready(again)
    again.dispose()


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
