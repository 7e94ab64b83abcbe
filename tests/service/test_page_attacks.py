"""Requests that try to get more from the pages than they offer."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.service.serving import served, token
from tuner.api.settings import Settings

PATHS = (
    "/studio/../pyproject.toml",
    "/studio/..%2f..%2f..%2fetc/passwd",
    "/studio/%2e%2e/%2e%2e/etc/passwd",
    "/studio/....//....//etc/passwd",
    "/studio//etc/passwd",
    "/studio/..\\..\\etc\\passwd",
    "/studio/studio.js/../../assets.py",
    "/studio/__init__.py",
    "/studio/studio.js%00.html",
    "/studio/docs/../assets.py",
    "/studio/files/../assets.py",
    "/studio/files/..%2f..%2fassets.py",
    "/docs/../etc/passwd",
)


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'tuner.sqlite'}"


@pytest.fixture
def client(database: str) -> Iterator[httpx.Client]:
    with served(Settings(database=database, require_tokens=True)) as client:
        yield client


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_out_of_the_pages(client: httpx.Client, path: str) -> None:
    with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as raw:
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    status, _, body = answer.partition(b"\r\n")
    assert b" 40" in status, status  # 400, 401 or 404
    assert b"root:" not in body
    assert b"import" not in body


@pytest.mark.parametrize(
    "cookie", ["tuner_session=", "tuner_session=x; tuner_session=y", "tuner_session=../../etc"]
)
def test_a_forged_session_reads_nothing(client: httpx.Client, cookie: str) -> None:
    sent = client.get("/v1/what-if/catalogue", headers={"Cookie": cookie})
    assert sent.status_code == 401


def test_a_session_alone_changes_nothing(client: httpx.Client, database: str) -> None:
    made = token(database, "owner", "read", "submit")["Authorization"].split()[1]
    cookie = {"Cookie": f"tuner_session={made}"}
    for headers in ({}, {"Origin": "https://example.org"}, {"Sec-Fetch-Site": "cross-site"}):
        sent = client.post("/v1/topologies", content="name: x", headers={**cookie, **headers})
        assert sent.status_code in (401, 403), headers
    assert client.get("/v1/topologies", headers=cookie).json()["items"] == []
