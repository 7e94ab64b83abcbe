"""What fails around a request: it is counted, what was done is acknowledged, others go on."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import DatabaseError

from tests.service.serving import LIBRARY, a_study, a_table, good, probe_file, problem, served
from tests.support.waiting import be_slow, patience, until
from tuner import db
from tuner.api.app import create_app
from tuner.api.settings import Settings


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'tuner.sqlite'}"


def ask(app: FastAPI, method: str, path: str, **what: Any) -> httpx.Response:
    """One request, without a network between."""

    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **what)

    return asyncio.run(asked())


@contextmanager
def statements(app: FastAPI, seen: Any) -> Iterator[None]:
    """`seen` gets every statement that the service is about to execute."""

    def listen(_c: Connection, _cursor: object, statement: str, *_: object) -> None:
        seen(statement)

    event.listen(app.state.service.engine, "before_cursor_execute", listen)
    try:
        yield
    finally:
        event.remove(app.state.service.engine, "before_cursor_execute", listen)


def test_what_fails_inside_is_counted(database: str) -> None:
    def fail() -> None:
        raise RuntimeError("a fault of the program")

    app = create_app(Settings(database=database))
    app.add_api_route("/v1/fails", fail)
    assert "log" in problem(ask(app, "GET", "/v1/fails"), 500)
    counted = 'tuner_requests_total{method="GET",route="/v1/fails",status="500"} 1.0'
    assert counted in ask(app, "GET", "/metrics").text


def test_a_database_out_of_order_is_no_fault_of_the_request(database: str) -> None:
    app = create_app(Settings(database=database))
    engine = db.open_database(database)
    with engine.begin() as connection:
        connection.execute(text("drop table feedback"))
    engine.dispose()
    assert ask(app, "POST", "/v1/tables", json=a_table()).status_code == 201
    assert "feedback" in problem(ask(app, "GET", "/v1/tables/1/feedback"), 503)


def test_while_tokens_cannot_be_looked_up_nobody_is_let_in(database: str) -> None:
    app = create_app(Settings(database=database, require_tokens=True))
    engine = db.open_database(database)
    with engine.begin() as connection:
        connection.execute(text("drop table tokens"))
    engine.dispose()
    asked = ask(app, "GET", "/v1/tables", headers={"Authorization": "Bearer tuner_any"})
    said = problem(asked, 503)
    assert "try again" in said
    assert "sqlite" not in said
    assert asked.headers["retry-after"]


@pytest.mark.parametrize("path", ["/v1/measurements", "/v1/tables", "/v1/clusters"])
def test_an_upload_that_breaks_off_is_no_failure_of_the_service(database: str, path: str) -> None:
    with served(Settings(database=database)) as client:
        address = (client.base_url.host, client.base_url.port)
        with socket.create_connection(address) as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
            connection.sendall(head.encode() + b"{")
        counted = f'tuner_requests_total{{method="POST",route="{path}",status="'
        until(lambda: counted in client.get("/metrics").text)
        assert f'{counted}400"}} 1.0' in client.get("/metrics").text


def said(client: httpx.Client, *pieces: bytes) -> bytes:
    """All that is answered to these bytes until the service closes the connection."""
    address = (client.base_url.host, client.base_url.port)
    with socket.create_connection(address, timeout=patience()) as connection:
        for piece in pieces:
            connection.sendall(piece)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@pytest.mark.parametrize(
    ("start", "status"),
    [
        (b"nonsense\r\n\r\n", b"400 "),
        (b"GET /v1/health HTTP/1.1\r\nX-A: " + b"a" * (100 << 10), b"431 "),
        (b"GET /" + b"a" * (100 << 10), b"431 "),
        (b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * (20 << 10), b"431 "),
    ],
)
def test_what_never_becomes_a_request_is_refused(
    database: str, start: bytes, status: bytes
) -> None:
    with served(Settings(database=database)) as client:
        answer = said(client, start)
        assert answer.startswith(b"HTTP/1.1 " + status)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"application/problem+json" in head
        assert json.loads(body)["status"] == int(status)


def test_a_request_in_endless_drops_is_given_up(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.api.protocol.TIMEOUT_S", 0.3)
    with served(Settings(database=database)) as client:
        assert said(client) == said(client, b"GET /v1/hea") == b""
        whole = b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        answer = said(client, whole, b"GET /v1/hea")  # on a connection that was good before
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.count(b"HTTP/1.1") == 1
        good(client.get("/v1/health"))
        be_slow(0.5)  # between requests a connection may rest longer
        good(client.get("/v1/health"))


def test_only_the_operator_learns_what_the_database_said(database: str) -> None:
    for closed in (False, True):
        app = create_app(Settings(database=database, require_tokens=closed))
        with statements(app, _refuse):
            said = problem(ask(app, "GET", "/v1/ready"), 503)
        assert ("not an SQLite file" in said) != closed


def _refuse(statement: str) -> None:
    try:
        sqlite3.connect(__file__).execute("select 1 from sqlite_schema")
    except sqlite3.DatabaseError as reason:
        raise DatabaseError(statement, {}, reason) from None


def test_a_disk_without_room_is_no_failure_of_the_service(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(prefix: str) -> IO[bytes]:
        return Path("/dev/full").open("wb", buffering=0)

    app = create_app(Settings(database=database))
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    said = problem(ask(app, "POST", "/v1/measurements", content=probe_file()), 503)
    assert "no room" in said
    assert good(ask(app, "GET", "/v1/measurements"))["items"] == []


def test_events_go_on_when_the_database_answers_again(database: str) -> None:
    away, refused = threading.Event(), threading.Event()

    def refuse(_c: Connection, _cursor: object, statement: str, *_: object) -> None:
        if away.is_set() and "FROM jobs" in statement:
            refused.set()
            raise db.UnavailableError("away")

    with served(Settings(database=database)) as client:
        job = good(client.post("/v1/studies", json=a_study()), 202)["id"]
        event.listen(Engine, "before_cursor_execute", refuse)
        try:
            with client.stream("GET", f"/v1/jobs/{job}/events") as response:
                lines = response.iter_lines()
                until(lambda: '"state":"queued"' in next(lines))
                away.set()
                assert refused.wait(patience())
                away.clear()
                good(client.post(f"/v1/jobs/{job}/cancel"), 202)
                until(lambda: '"state":"cancelled"' in next(lines))
        finally:
            event.remove(Engine, "before_cursor_execute", refuse)


def test_a_rollback_that_was_committed_is_acknowledged(database: str) -> None:
    app = create_app(Settings(database=database))
    for algorithm in ("chain", "linear", "binomial"):
        version = ask(app, "POST", "/v1/tables", json=a_table(algorithm)).json()["version"]
        good(ask(app, "POST", "/v1/publications", json={"version": version}), 201)
    refused = []

    def busy(statement: str) -> None:
        if "max(publications.id)" in statement:
            refused.append(statement)
            raise db.UnavailableError("busy")

    with statements(app, busy):
        body = {"cluster": "test", "library": LIBRARY}
        done = good(ask(app, "POST", "/v1/publications/rollback", json=body), 201)
    assert done["version"] == 2
    assert refused


def test_a_study_that_cannot_be_asked_keeps_no_writer_waiting(database: str) -> None:
    with served(Settings(database=database)) as client:
        engine = db.open_database(database)
        with db.transaction(engine) as session:
            session.execute(text("select 1"))  # from here on it has the lock
            said = client.post("/v1/studies", json={**a_study(), "topology": "99"})
            assert "no topology 99" in problem(said, 422)
        engine.dispose()


def test_streams_of_events_are_limited(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.api.routes.jobs.MAX_STREAMS", 1)
    with served(Settings(database=database)) as client:
        job = good(client.post("/v1/studies", json=a_study()), 202)["id"]
        path = f"/v1/jobs/{job}/events"
        with client.stream("GET", path) as response:
            lines = response.iter_lines()  # kept: the response is closed with it
            assert next(lines)
            assert "follow" in problem(client.get(path), 503)
        good(client.post(f"/v1/jobs/{job}/cancel"), 202)
        until(lambda: client.get(path).status_code == 200)


def test_a_large_upload_is_stored_by_a_process_of_its_own(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.api.uploads.MAX_INLINE_INGEST_BYTES", 0)
    app = create_app(Settings(database=database))
    seen: list[str] = []
    with statements(app, seen.append):
        file = probe_file()
        stored = good(ask(app, "POST", "/v1/measurements", content=file), 201)
        assert good(ask(app, "POST", "/v1/measurements", content=file)) == stored
        damaged = file.replace('"launch"', '"lunch"')
        assert "the upload, line 2" in problem(
            ask(app, "POST", "/v1/measurements", content=damaged), 422
        )
    assert seen
    assert not any(statement.startswith("INSERT") for statement in seen)
    assert ask(app, "GET", f"/v1/measurements/{stored['id']}/file").text == file
    app.state.service.workers.close()
