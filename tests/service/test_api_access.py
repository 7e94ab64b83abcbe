"""Who may do what, and how much of it."""

from __future__ import annotations

import json
import math
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.serving import a_table, good, probe_file, problem, publish, served, token
from tests.support.waiting import patience, until
from tuner import db
from tuner.api.access import required_scope
from tuner.api.app import create_app
from tuner.api.http_limits import RateLimiter
from tuner.api.problems import Problem
from tuner.api.server import serve
from tuner.api.settings import Settings, is_loopback
from tuner.base.errors import InputError
from tuner.cli.commands.serve import parse_networks

READS = ("/v1/clusters", "/v1/tables", "/v1/jobs", "/metrics")
OPEN = ("/v1/health", "/v1/ready", "/openapi.json")


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'tuner.sqlite'}"


@pytest.fixture
def client(database: str) -> Iterator[httpx.Client]:
    with served(Settings(database=database)) as client:
        yield client


@pytest.mark.parametrize(
    ("scopes", "read", "submit", "publishing"),
    [
        (("read",), 200, 403, 403),
        (("submit",), 403, 201, 403),
        (("publish",), 403, 403, 201),
        (("read", "submit"), 200, 201, 403),
        (("read", "submit", "publish"), 200, 201, 201),
    ],
)
def test_a_token_opens_what_its_scopes_name(
    database_url: str, scopes: tuple[str, ...], read: int, submit: int, publishing: int
) -> None:
    headers = token(database_url, "someone", *scopes)
    with served(Settings(database=database_url, require_tokens=True)) as client:
        client.headers.update(headers)
        for path in READS:
            assert client.get(path).status_code == read, path
        select = {
            "library": "openmpi",
            "calls": [{"collective": "bcast", "nodes": 1, "ppn": 4, "nbytes": 1}],
        }
        assert client.post("/v1/select", json=select).status_code == (404 if read == 200 else 403)
        cluster = {"name": "c", "nodes": 1, "cores": 1}
        assert client.post("/v1/clusters", json=cluster).status_code == submit
        assert client.post("/v1/tables", json=a_table()).status_code == publishing
        said = client.post("/v1/publications", json={"version": 1})
        assert said.status_code == publishing
        if publishing == 403:
            assert "lacks the scope publish" in problem(said, 403)
        elif read == 200:
            assert good(client.get("/v1/publications"))["items"][0]["by"] == "someone"


def test_publishing_through_a_job_needs_the_scope_too(database: str) -> None:
    headers = token(database, "prober", "read", "submit")
    with served(Settings(database=database, require_tokens=True)) as client:
        client.headers.update(headers)
        source = good(client.post("/v1/measurements", content=probe_file()), 201)["id"]
        job = {"kind": "tune", "measurements": source}
        good(client.post("/v1/jobs", json=job), 202)
        problem(client.post("/v1/jobs", json={**job, "publish": True}), 403)


def test_without_a_token_only_the_state_of_the_service_is_shown(database: str) -> None:
    with served(Settings(database=database, require_tokens=True)) as client:
        for path in OPEN:
            assert client.get(path).status_code == 200
        for path in (*READS, "/v1/nothing", "/v1/select?library=a"):
            response = client.get(path)
            assert "Bearer" in problem(response, 401)
            assert response.headers["www-authenticate"] == "Bearer"
        for path in ("/v1/clusters", "/v1/measurements", "/v1/tables"):
            problem(client.post(path, content=b"{}"), 401)


@pytest.mark.parametrize("header", ["Bearer nonsense", "Bearer", "Basic YTpi", "Bearer \xff"])
def test_a_wrong_token_is_refused_even_where_none_is_needed(
    client: httpx.Client, header: str
) -> None:
    encoded = {b"Authorization": header.encode("latin-1")}
    for path in (*READS, *OPEN):
        problem(client.get(path, headers=encoded), 401)


def test_a_revoked_token_closes_soon(database: str) -> None:
    headers = token(database, "gone", "read")
    with served(Settings(database=database, require_tokens=True)) as client:
        assert client.get("/v1/tables", headers=headers).status_code == 200
        engine = db.open_database(database)
        with db.transaction(engine) as session:
            db.revoke_token(session, "gone")
        engine.dispose()
        until(lambda: client.get("/v1/tables", headers=headers).status_code == 401)


def test_an_expired_token_is_refused_with_the_reason(database: str) -> None:
    headers = token(database, "brief", "read", seconds=1.5)
    with served(Settings(database=database, require_tokens=True)) as client:
        assert client.get("/v1/tables", headers=headers).status_code == 200
        until(lambda: client.get("/v1/tables", headers=headers).status_code == 401)
        refused = client.get("/v1/tables", headers=headers)
        sentence = r"the token brief expired at [\dT:-]+Z; ask the operator for another"
        assert re.fullmatch(sentence, problem(refused, 401))
        assert refused.headers["www-authenticate"] == "Bearer"


def test_a_web_page_of_another_site_cannot_use_an_open_service(client: httpx.Client) -> None:
    for name in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", ""):
        problem(client.get("/v1/tables", headers={"Host": name}), 400)
    for name in ("localhost", "localhost:8765", "127.0.0.1", "127.0.0.2:1", "[::1]:8765"):
        assert client.get("/v1/tables", headers={"Host": name}).status_code == 200
    for origin in ("http://evil.example", "null", "http://localhost.evil.example"):
        problem(client.post("/v1/clusters", json={}, headers={"Origin": origin}), 403)
    problem(client.post("/v1/clusters", json={}, headers={"Origin": "http://localhost:1"}), 422)


def test_behind_a_proxy_the_host_is_the_proxys(database: str) -> None:
    headers = {**token(database, "reader", "read"), "Host": "tuner.example"}
    with served(Settings(database=database, require_tokens=True)) as client:
        assert client.get("/v1/tables", headers=headers).status_code == 200


PROXIES = ("127.0.0.1", "10.1.0.0/16")
ONE_REQUEST = 0.001  # requests per second: one at once, and the next after a quarter of an hour


def asked_through(client: httpx.Client, forwarded: str, **headers: str) -> httpx.Response:
    """Ask as a proxy does on behalf of somebody."""
    return client.get("/v1/tables", headers={"X-Forwarded-For": forwarded, **headers})


def test_limits_are_those_of_the_client_behind_a_trusted_proxy(database: str) -> None:
    settings = Settings(database=database, rate_limit=ONE_REQUEST, trusted_proxies=PROXIES)
    with served(settings) as client:
        for address in ("192.0.2.1", "192.0.2.2, 10.1.2.3", "2001:db8::1"):
            statuses = [asked_through(client, address).status_code for _ in range(2)]
            assert statuses == [401, 429], address
        spoofed = asked_through(client, "198.51.100.7, 192.0.2.1")
        assert spoofed.status_code == 429  # the proxy says who it was, the client does not


def test_nobody_else_is_believed_to_be_a_proxy(database: str) -> None:
    for proxies in ((), ("10.1.0.0/16",)):
        settings = Settings(
            database=database, rate_limit=ONE_REQUEST, trusted_proxies=proxies, require_tokens=True
        )
        with served(settings) as client:
            addresses = ("192.0.2.1", "192.0.2.2")
            statuses = [asked_through(client, address).status_code for address in addresses]
            assert statuses == [401, 429]


def test_behind_a_proxy_nothing_is_open(database: str) -> None:
    settings = Settings(database=database, trusted_proxies=PROXIES)
    assert (settings.is_open, settings.rate) == (False, 200)
    with served(settings) as client:
        problem(client.get("/v1/tables", headers={"Host": "localhost"}), 401)
        problem(asked_through(client, "127.0.0.1", Host="localhost"), 401)


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        ({"trusted_proxies": PROXIES}, "reach the proxy .* or leave --proxy-headers out"),
        ({"require_tokens": True}, "^--require-tokens refuses everyone .* or leave it out$"),
        ({"host": "0.0.0.0"}, r"reach 0\.0\.0\.0 could .* or serve on 127\.0\.0\.1$"),
    ],
)
def test_a_service_without_tokens_says_why_it_needs_one(
    known: dict[str, Any], sentence: str, database: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        serve(Settings(database=database, port=0, **known), lambda address: pytest.fail(address))


def test_the_log_has_the_client_behind_the_proxy(database: str, tmp_path: Path) -> None:
    file = tmp_path / "access.log"
    settings = Settings(database=database, trusted_proxies=PROXIES, access_log=str(file))
    with served(settings) as client:
        asked_through(client, "198.51.100.7, 192.0.2.1:4321, 10.1.9.9")
        until(lambda: file.read_text())
        assert json.loads(file.read_text())["client"] == "192.0.2.1"


@pytest.mark.parametrize("wrong", ["*", "proxy.example", "10.1.0.5/16", "", "127.0.0.1,,::1"])
def test_proxies_are_addresses_and_networks(wrong: str) -> None:
    with pytest.raises(InputError, match=r"expected an address or network such as 127\.0\.0\.1"):
        parse_networks(wrong)
    assert parse_networks("127.0.0.1, ::1,10.1.0.0/16") == ("127.0.0.1", "::1", "10.1.0.0/16")


def test_every_operation_but_the_open_ones_needs_a_scope(database: str) -> None:
    document = create_app(Settings(database=database)).openapi()
    needed = {
        (method.upper(), path): required_scope(method.upper(), path)
        for path, operations in document["paths"].items()
        for method in operations
    }
    unguarded = {path for (_, path), scope in needed.items() if scope is None}
    assert unguarded == {"/v1/health", "/v1/ready"}
    assert {scope for (method, _), scope in needed.items() if method == "GET"} == {None, "read"}
    publishing = {path for (_, path), scope in needed.items() if scope == "publish"}
    assert publishing == {"/v1/tables", "/v1/publications", "/v1/publications/rollback"}


def test_who_sends_too_much_can_read_why(client: httpx.Client) -> None:
    address = (client.base_url.host, client.base_url.port)
    head = "POST /v1/clusters HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n"
    body = b" " * (8 << 20)  # more than both sides' buffers hold
    with socket.create_connection(address, timeout=patience()) as connection:
        connection.sendall(head.format(len(body)).encode() + body)
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"256KiB" in answer


def test_bodies_are_limited(database: str) -> None:
    settings = Settings(database=database, measurements_limit=2000, body_limit=1000)
    with served(settings) as client:
        problem(client.post("/v1/measurements", content=b"x" * 2001), 413)
        problem(client.post("/v1/measurements", content=b"x" * 2000), 422)
        problem(client.post("/v1/tables", content=b"x" * 1001), 413)
        problem(client.post("/v1/topologies", content=(b"x" * 600 for _ in range(2))), 413)
        problem(client.post("/v1/measurements", content=(b"x" * 600 for _ in range(4))), 413)
        problem(client.post("/v1/clusters", content=(b" " * 600 for _ in range(2))), 413)


def test_nested_bodies_are_refused(client: httpx.Client) -> None:
    json = {"Content-Type": "application/json"}
    for path in ("clusters", "studies", "feedback", "select"):
        bomb = b'{"name": ' + b"[" * 100_000
        response = client.post(f"/v1/{path}", content=bomb, headers=json)
        assert response.status_code in (400, 422)
        problem(response, response.status_code)
    deep = b'{"name": ' + b"[" * 100 + b"]" * 100 + b"}"
    assert "deep" in problem(client.post("/v1/studies", content=deep, headers=json), 422)


def test_requests_are_limited_per_client(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.api.access.TOKEN_CACHE_S", math.inf)
    headers = token(database, "fast", "read")
    with served(Settings(database=database, rate_limit=ONE_REQUEST)) as client:
        # Until the token is known its request counts for the address.
        assert client.get("/v1/tables", headers=headers).status_code == 200
        refused = client.get("/v1/health")
        assert "requests per second" in problem(refused, 429)
        assert int(refused.headers["retry-after"]) > 100
        assert client.get("/v1/tables", headers=headers).status_code == 200
        problem(client.get("/v1/tables", headers=headers), 429)


def test_a_bucket_fills_with_time() -> None:
    now = 0.0
    buckets = RateLimiter(10, clock=lambda: now)
    for _ in range(20):
        buckets.consume("a")
    with pytest.raises(Problem, match="10 requests per second"):
        buckets.consume("a")
    buckets.consume("b")
    now = 0.1
    buckets.consume("a")
    with pytest.raises(Problem):
        buckets.consume("a")
    now = 100.0
    for _ in range(20):
        buckets.consume("a")
    with pytest.raises(Problem):
        buckets.consume("a")


def test_a_crowd_of_clients_is_forgotten_in_time() -> None:
    now = 0.0
    buckets = RateLimiter(1, clock=lambda: now)
    for number in range(30_000):
        now += 0.001
        buckets.consume(str(number))
    assert len(buckets._tokens) <= 10_000


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("example.org", False),
        ("", False),
        ("127.0.0.1.nip.io", False),
    ],
)
def test_loopback_is_recognised(host: str, loopback: bool) -> None:
    assert is_loopback(host) == loopback
    assert Settings(host=host).is_open == loopback
    assert Settings(host=host).rate == (0 if loopback else 200)


def test_a_published_table_is_for_readers_alone(database: str) -> None:
    writer = token(database, "writer", "publish")
    with served(Settings(database=database, require_tokens=True)) as client:
        client.headers.update(writer)
        publish(client, a_table())
        call: dict[str, Any] = {
            "library": "openmpi",
            "collective": "bcast",
            "nodes": 1,
            "ppn": 4,
            "nbytes": 1,
        }
        for path in ("/v1/tables/published", "/v1/select"):
            problem(client.get(path, params=call), 403)
