"""Bodies that hardly move are given up; those that move slowly are not."""

from __future__ import annotations

import json
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.service.serving import PATIENCE, a_table, good, served
from tuner.api.settings import Settings

SHORT = 0.4  # seconds that the service of these tests waits
DROP = 0.05  # seconds between two drops
HEAD = b"HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LONG = b"Content-Length: 1000\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where uploads are kept while they arrive."""
    place = tmp_path / "uploads"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


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
    return socket.create_connection(address, timeout=PATIENCE)


def dripped(client: httpx.Client, start: bytes, drop: bytes, seconds: float = PATIENCE) -> bytes:
    """What is answered to a request in drops until the service closes, or the time is over."""
    with connected(client) as connection:
        connection.sendall(start)
        connection.settimeout(DROP)
        answer, deadline = b"", time.monotonic() + seconds
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
    assert counted in client.get("/metrics").text


def test_a_slow_body_is_waited_for(client: httpx.Client) -> None:
    text = json.dumps(a_table()).encode()
    with connected(client) as connection:
        length = b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(text)
        connection.sendall(b"POST /v1/tables " + HEAD + length)
        begun = time.monotonic()
        for start in range(0, len(text), 50):
            connection.sendall(text[start : start + 50])
            time.sleep(DROP)
        assert time.monotonic() - begun > 2 * SHORT
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 201 ")


@pytest.mark.parametrize("request_line", [b"GET /v1/health ", b"POST /v1/nowhere "])
def test_a_body_that_nobody_reads_holds_no_connection(
    client: httpx.Client, request_line: bytes
) -> None:
    answer = dripped(client, request_line + HEAD + LONG, b" ", 20 * SHORT)
    assert answer.startswith(b"HTTP/1.1 ")
    assert answer.count(b"HTTP/1.1") == 1


def test_between_requests_a_connection_may_rest_longer(client: httpx.Client) -> None:
    with connected(client) as connection:
        for _ in range(2):
            connection.sendall(b"POST /v1/nowhere " + HEAD + b"Content-Length: 2\r\n\r\n{}")
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 404 ")
            time.sleep(2 * SHORT)
