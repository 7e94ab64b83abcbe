"""A PostgreSQL server that takes connections and says nothing: requests end, and go on after it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from tests.service.serving import a_study, a_table, good, problem, publish, running, served
from tests.support.postgres import new_database
from tests.support.waiting import until
from tuner import db
from tuner.api.settings import Settings
from tuner.db.transactions import advisory_lock

WAITS_LONG = text(  # for a lock, longer than any request is given
    "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    " and datname = current_database() and clock_timestamp() - query_start > interval '1 s'"
)
MANY = 60  # requests at once, more than a service has threads


@pytest.fixture
def url(postgres: Any, migrated: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database whose users are not patient."""
    monkeypatch.setattr("tuner.db.postgres.RESPONSE_TIMEOUT_S", 1.0)
    with new_database(postgres.get_uri(), migrated) as url:
        yield f"{url}{'&' if '?' in url else '?'}connect_timeout=2"


@contextmanager
def hanging(postmaster: int) -> Iterator[None]:
    """The server and all its processes stand still."""
    os.kill(postmaster, signal.SIGSTOP)  # first: from here on it starts no other
    listed = (file.read_text() for file in Path(f"/proc/{postmaster}/task").glob("*/children"))
    processes = [postmaster, *(int(number) for text in listed for number in text.split())]
    try:
        for process in processes[1:]:
            os.kill(process, signal.SIGSTOP)
        yield
    finally:
        for process in reversed(processes):
            os.kill(process, signal.SIGCONT)


def test_requests_end_while_the_server_hangs_and_succeed_afterwards(
    postgres: Any, url: str
) -> None:
    with served(Settings(database=url)) as client, ThreadPoolExecutor(MANY) as many:
        version = publish(client, a_table())
        with hanging(postgres.get_pid()):
            asked = [many.submit(client.get, "/v1/tables") for _ in range(MANY)]
            good(client.get("/v1/health"))
            assert not any(each.done() for each in asked)
            call: dict[str, Any] = {
                "library": "openmpi",
                "collective": "bcast",
                "nodes": 1,
                "ppn": 4,
                "nbytes": 1,
            }
            assert good(client.get("/v1/select", params=call))["version"] == version
            for each in asked:
                assert "try again" in problem(each.result(), 503) or "does not answer" in (
                    problem(each.result(), 503)
                )
            problem(client.get("/v1/ready"), 503)
            problem(client.post("/v1/tables", json=a_table("chain")), 503)
        until(lambda: client.get("/v1/ready").status_code == 200)
        assert len(good(client.get("/v1/tables"))["items"]) == 1
        assert publish(client, a_table("chain")) == version + 1


@pytest.mark.extended
def test_a_runner_goes_on_when_the_server_does(postgres: Any, url: str) -> None:
    with served(Settings(database=url)) as client, running(url):
        with hanging(postgres.get_pid()):
            problem(client.get("/v1/ready"), 503)
        until(lambda: client.get("/v1/ready").status_code == 200)
        job = good(client.post("/v1/studies", json=a_study()), 202)["id"]
        until(lambda: good(client.get(f"/v1/jobs/{job}"))["state"] == "done")


def test_statements_that_the_server_answers_late_are_given_up_alone(url: str) -> None:
    engine = db.open_database(url)
    with engine.connect() as other, db.read_session(engine) as session:
        before = session.connection().exec_driver_sql("select pg_backend_pid()").scalar_one()
        with (
            pytest.raises(db.UnavailableError, match="does not answer"),
            db.read_session(engine) as late,
        ):
            late.connection().exec_driver_sql("select pg_sleep(60)")
        assert other.exec_driver_sql("select 1").scalar_one() == 1
        after = session.connection().exec_driver_sql("select pg_backend_pid()").scalar_one()
    engine.dispose()
    assert before == after


def test_a_migration_takes_its_time(postgres: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.db.postgres.RESPONSE_TIMEOUT_S", 0.3)
    with new_database(postgres.get_uri()) as url, ThreadPoolExecutor(1) as other:
        holder = create_engine(url.replace("postgresql:", "postgresql+psycopg:", 1))
        watcher = holder.execution_options(isolation_level="AUTOCOMMIT")
        with holder.begin() as connection, watcher.connect() as looking:
            advisory_lock(connection, "migration")
            opened = other.submit(db.open_database, url)
            until(lambda: looking.execute(WAITS_LONG).scalar_one())
        opened.result().dispose()
        holder.dispose()
