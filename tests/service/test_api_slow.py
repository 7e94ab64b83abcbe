"""Bodies that hardly move are given up; those that move slowly are not."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import time
from collections.abc import Iterator
from functools import partial
from http.client import HTTPResponse
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from tests.service.serving import good, served
from tests.support.waiting import be_slow, expiring, patience, until
from tuner.api.http_limits import BodyLimitMiddleware
from tuner.api.problems import Problem
from tuner.api.settings import Settings

SHORT = 1.0  # seconds that the service of these tests waits
DROP = 0.05  # seconds between two drops
HEAD = b"HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LONG = b"Content-Length: 1000\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def client(
    tmp_path: Path, uploads: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[httpx.Client]:
    monkeypatch.setattr("tuner.api.http_limits.TIMEOUT_S", SHORT)
    monkeypatch.setattr("tuner.api.http_limits.MIN_BYTES_PER_TIMEOUT", 40)
    monkeypatch.setattr("tuner.api.protocol.TIMEOUT_S", SHORT)
    with served(Settings(database=f"sqlite:///{tmp_path / 'tuner.sqlite'}")) as client:
        yield client


def connected(client: httpx.Client) -> socket.socket:
    address = (client.base_url.host, client.base_url.port)
    return socket.create_connection(address, timeout=patience())


def dripped(client: httpx.Client, start: bytes, drop: bytes) -> bytes:
    """Return the answer to a request in drops, read until the service closes."""
    with connected(client) as connection:
        connection.sendall(start)
        connection.settimeout(expiring(DROP))
        answer, deadline = b"", time.monotonic() + patience()
        while time.monotonic() < deadline:
            try:
                connection.sendall(drop)
                piece = connection.recv(1 << 16)
            except TimeoutError:
                continue
            except ConnectionError:
                return answer
            if not piece:
                return answer
            answer += piece
    raise AssertionError(f"still open: {answer!r}")


@pytest.mark.parametrize(
    ("path", "more", "drop"),
    [
        ("measurements", LONG, b" "),
        ("measurements", CHUNKED, b"1\r\n \r\n"),
        ("tables", LONG, b" "),
        ("topologies", CHUNKED, b"1\r\n \r\n"),
        ("clusters", LONG, b" "),
        ("select", LONG, b" "),
    ],
)
def test_a_body_in_endless_drops_is_given_up(
    client: httpx.Client, uploads: Path, path: str, more: bytes, drop: bytes
) -> None:
    answer = dripped(client, b"POST /v1/%s " % path.encode() + HEAD + more, drop)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"application/problem+json" in head
    assert b"connection: close" in head.lower()
    told = json.loads(body)
    assert (told["status"], told["instance"]) == (408, f"/v1/{path}")
    assert "hardly moves" in told["detail"]
    assert list(uploads.iterdir()) == []
    assert path == "select" or good(client.get(f"/v1/{path}"))["items"] == []
    counted = f'tuner_requests_total{{method="POST",route="/v1/{path}",status="408"}} 1.0'
    until(lambda: counted in client.get("/metrics").text)


@pytest.mark.parametrize(("piece", "arrives"), [(b"x" * 50, True), (b"x" * 10, False)])
def test_a_slow_body_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, piece: bytes, arrives: bool
) -> None:
    """By the clock of the service each piece takes 40 s, and 40 bytes have to arrive every 60 s."""
    clock = SimpleNamespace(monotonic=partial(next, itertools.count(0.0, 40.0)))
    monkeypatch.setattr("tuner.api.http_limits.time", clock)
    monkeypatch.setattr("tuner.api.http_limits.TIMEOUT_S", 60.0)
    monkeypatch.setattr("tuner.api.http_limits.MIN_BYTES_PER_TIMEOUT", 40)
    left, received = [piece] * 10, bytearray()

    async def receive() -> Message:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": left.pop(), "more_body": bool(left)}

    async def keep(_: Scope, limited: Receive, __: Send) -> None:
        while (message := await limited())["more_body"]:
            received.extend(message["body"])

    async def ignore(_: Message) -> None:
        return

    scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
    limits = BodyLimitMiddleware(keep, lambda _: 1000)
    if arrives:
        asyncio.run(limits(scope, receive, ignore))
        assert received == piece * 9  # the last one ends the loop
        return
    with pytest.raises(Problem, match="hardly moves"):
        asyncio.run(limits(scope, receive, ignore))


@pytest.mark.parametrize("request_line", [b"GET /v1/health ", b"POST /v1/nowhere "])
def test_a_body_that_nobody_reads_holds_no_connection(
    client: httpx.Client, request_line: bytes
) -> None:
    answer = dripped(client, request_line + HEAD + LONG, b" ")
    assert answer.startswith(b"HTTP/1.1 ")
    assert answer.count(b"HTTP/1.1") == 1


def test_between_requests_a_connection_may_rest_longer(client: httpx.Client) -> None:
    with connected(client) as connection:
        for _ in range(2):
            connection.sendall(b"POST /v1/nowhere " + HEAD + b"Content-Length: 2\r\n\r\n{}")
            with HTTPResponse(connection) as answer:
                answer.begin()
                assert answer.status == 404
                answer.read()
            be_slow(2 * SHORT)
