"""What rank 0 says to a service, against real servers: good ones, slow ones and broken ones."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from mpi4py import MPI

from tests.support import services
from tests.support.ladders import CLUSTER, table_of
from tests.support.services import (
    ETAG,
    GOOD,
    LIBRARY,
    Reply,
    Seen,
    always,
    good,
    misbehaving,
    serving,
    text_of,
    wanted,
)
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.runtime import service_client, table_cache, tune
from tuner.runtime.agreement import library_name
from tuner.runtime.table_source import TableRequest, resolve_request

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.slow]


def published(request: Seen) -> dict[str, list[str]]:
    """The query of a request for the published table."""
    parts = urlsplit(request.path)
    assert parts.path == "/v1/tables/published"
    return parse_qs(parts.query)


def test_the_table_comes_with_its_version_and_from_the_right_place() -> None:
    with serving(good) as service:
        fetched = service_client.fetch_table(wanted(service.url, cluster="test", token="secret"))
    (request,) = service.seen
    assert published(request) == {"library": [LIBRARY], "cluster": ["test"]}
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.headers["Accept"] == service_client.TABLE_MEDIA_TYPE
    assert "If-None-Match" not in request.headers
    assert fetched.text.encode() == GOOD
    assert (fetched.version, fetched.note) == (7, "")
    assert service.url in fetched.origin


def test_the_same_table_is_not_sent_again() -> None:
    def unless_known(request: Seen) -> Reply:
        known = request.headers.get("If-None-Match") == ETAG
        return Reply(status=304, headers={"ETag": ETAG}) if known else good(request)

    with serving(unless_known) as service:
        first, second = (service_client.fetch_table(wanted(service.url)) for _ in range(2))
        assert [request.headers.get("If-None-Match") for request in service.seen] == [None, ETAG]
        service.reply = always(Reply(text_of("linear").encode(), headers={"ETag": '"8-a"'}))
        third = service_client.fetch_table(wanted(service.url))
    assert first == second
    assert (third.version, third.text) == (8, text_of("linear"))


def test_the_token_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    with serving(good) as service:
        service_client.fetch_table(wanted(service.url, token_file=file))
        assert service.seen[0].headers["Authorization"] == "Bearer secret"
        file.write_text("a\nb")
        with pytest.raises(InputError, match="copy it again"):
            service_client.fetch_table(wanted(service.url, token_file=file))
        with pytest.raises(InputError, match="no token can be read"):
            service_client.fetch_table(wanted(service.url, token_file=tmp_path / "none"))
        assert len(service.seen) == 1


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_service_in_trouble_is_asked_again(status: int) -> None:
    answers = [Reply(status=status), Reply(status=status), Reply(GOOD)]
    with serving(lambda _: answers.pop(0)) as service:
        assert service_client.fetch_table(wanted(service.url)).text.encode() == GOOD
    assert len(service.seen) == 3


def test_a_service_in_lasting_trouble_is_asked_three_times() -> None:
    detail = json.dumps({"detail": "the database is down"}).encode()
    with serving(always(Reply(detail, status=500))) as service:
        with pytest.raises(InputError, match=r"status 500.*the database is down"):
            service_client.fetch_table(wanted(service.url))
        assert len(service.seen) == 3


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 204])
def test_a_refusal_is_final(status: int) -> None:
    body = b"" if status == 204 else json.dumps({"detail": "two clusters have one"}).encode()
    with serving(always(Reply(body, status=status))) as service:
        with pytest.raises(InputError, match=f"status {status}") as refused:
            service_client.fetch_table(wanted(service.url))
        assert len(service.seen) == 1
    assert ("two clusters" in str(refused.value)) == (status != 204)


def test_retry_after_is_kept_to_within_the_deadline() -> None:
    asked: list[float] = []

    def busy_once(request: Seen) -> Reply:
        asked.append(time.monotonic())
        busy = Reply(status=429, headers={"Retry-After": "1"})
        return busy if len(asked) == 1 else good(request)

    with serving(busy_once) as service:
        service_client.fetch_table(wanted(service.url, timeout_s=5.0))
    assert asked[1] - asked[0] >= 1.0


@pytest.mark.parametrize(
    "later",
    ["3600", formatdate(time.time() + 3600, usegmt=True), "9" * 400],
    ids=["seconds", "date", "digits"],
)
def test_a_service_that_wants_more_time_than_there_is_is_not_waited_for(later: str) -> None:
    with serving(always(Reply(status=503, headers={"Retry-After": later}))) as service:
        with pytest.raises(InputError, match="status 503"):
            service_client.fetch_table(wanted(service.url, timeout_s=60.0))
        assert len(service.seen) == 1


@pytest.mark.parametrize("odd", ["soon", "", "²", "Fri, 99 Nov 99999999 99:99:99 GMT"])
def test_an_odd_retry_after_is_ignored(odd: str) -> None:
    answers = [Reply(status=503, headers={"Retry-After": odd}), Reply(GOOD)]
    with serving(lambda _: answers.pop(0)) as service:
        assert service_client.fetch_table(wanted(service.url)).text.encode() == GOOD


@pytest.mark.parametrize("behave", [services.hang, services.drip, services.drip_headers])
def test_the_deadline_covers_everything(behave: Callable[[Any], None]) -> None:
    with misbehaving(behave) as url, pytest.raises(InputError, match=r"within 0.3 s|timed out"):
        service_client.fetch_table(wanted(url, timeout_s=0.3))


@pytest.mark.parametrize(
    ("behave", "sentence"),
    [
        (services.garbage, r"http://127\.0\.0\.1:\d+: no HTTP: '\S+"),
        (services.truncate, "ended after 16 of 1000 B"),
        (services.endless, "the answer is larger than a table may be, 1 MiB"),
        (lambda connection: None, r"http://127\.0\.0\.1:\d+: Remote end closed connection"),
    ],
)
def test_an_answer_that_is_none(
    behave: Callable[[Any], None], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_client, "MAX_TABLE_BYTES", 2**20)
    with misbehaving(behave) as url, pytest.raises(InputError, match=sentence) as refused:
        service_client.fetch_table(wanted(url, timeout_s=20.0))
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"<html>Welcome!</html>", "not a tuning table"),
        (b"\xff\xfe\x00garbage", "utf-8"),
        (GOOD[:-20], "not a tuning table"),
        (GOOD.replace(b'"version": 1', b'"version": 2'), "another version of tuner has written it"),
        (text_of(library="mpich 5.0.2").encode(), "for 'mpich 5.0.2', but this is openmpi 5.0.11"),
        (b"[" * 100_000, "not a tuning table"),
    ],
)
def test_an_answer_that_is_no_table_for_us_is_neither_used_nor_kept(
    body: bytes, sentence: str
) -> None:
    with serving(always(Reply(body, headers={"ETag": ETAG}))) as service:
        with pytest.raises(InputError, match=sentence) as refused:
            service_client.fetch_table(wanted(service.url))
        assert table_cache.load(wanted(service.url)) is None
    assert service.url in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_table_of_another_cluster_is_refused() -> None:
    with serving(good) as service, pytest.raises(InputError, match=f"'{CLUSTER.name}', not of 'x'"):
        service_client.fetch_table(wanted(service.url, cluster="x"))


def test_a_length_that_is_too_small_leaves_no_table() -> None:
    short = {"Content-Length": str(len(GOOD) - 9), "Connection": "close"}
    service = serving(always(Reply(GOOD, headers=short)))
    with service as short_one, pytest.raises(InputError, match="not a tuning table"):
        service_client.fetch_table(wanted(short_one.url))


def test_the_token_stays_with_the_service() -> None:
    with serving(good) as other, serving(good) as service:
        away = {"Location": f"{other.url}/v1/tables/published"}
        service.reply = always(Reply(status=302, headers=away))
        assert service_client.fetch_table(wanted(service.url, token="secret")).version == 7
        assert "Authorization" not in other.seen[0].headers
        onward = {"Location": "/v1/tables/published?again"}
        service.reply = lambda request: (
            good(request) if "again" in request.path else Reply(status=307, headers=onward)
        )
        service_client.fetch_table(wanted(service.url, token="secret"))
        assert service.seen[-1].headers["Authorization"] == "Bearer secret"


def test_a_redirect_is_followed_before_it_has_ended() -> None:
    with serving(good) as service:

        def redirect(connection: Any) -> None:
            head = f"HTTP/1.1 302 Found\r\nLocation: {service.url}/v1/tables/published\r\n\r\n"
            connection.sendall(head.encode())
            services.hang(connection)

        with misbehaving(redirect) as url:
            assert service_client.fetch_table(wanted(url)).version == 7


def test_a_tag_that_is_no_version_is_none() -> None:
    for digits, version in (("7", 7), ("9" * 5000, None)):
        answer = Reply(GOOD, headers={"ETag": f'"{digits}-a"'})
        with serving(always(answer)) as service:
            assert service_client.fetch_table(wanted(service.url)).version == version


def test_a_token_is_never_printed() -> None:
    assert "secret" not in repr(wanted("http://x", token="secret"))


def test_redirects_lead_nowhere_else_than_to_http(tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    file.write_bytes(GOOD)
    for place in (file.as_uri(), "ftp://127.0.0.1/x", "data:application/json,1", "/loop"):
        away = Reply(status=302, headers={"Location": place})
        with serving(always(away)) as service, pytest.raises(InputError, match=service.url):
            service_client.fetch_table(wanted(service.url))


@pytest.mark.parametrize(
    "url",
    [
        "head:8000",
        "ftp://head",
        "http://",
        "http://a b",
        "http://me:pw@head",
        "http://head?x=1",
        "http://head:port",
        "http://[::1",
        "http://head\n:8000",
        "file:///etc/passwd",
    ],
)
def test_what_is_no_service(url: str) -> None:
    with pytest.raises(InputError, match="write it like http://head:8765"):
        service_client.fetch_table(wanted(url))


def test_a_host_that_does_not_exist_is_one_sentence() -> None:
    for host in ("tuner.invalid", "x" * 70):
        with pytest.raises(InputError) as refused:
            service_client.fetch_table(wanted(f"http://{host}:8000", timeout_s=10.0))
        assert host in str(refused.value)


def test_feedback_is_posted_as_json() -> None:
    answers = [Reply(status=503), Reply(b'{"id": 3}', status=201)]
    with serving(lambda _: answers.pop(0)) as service:
        stored = service_client.post_record(
            wanted(service.url, token="secret"), "/v1/feedback", {"version": 7}
        )
        assert stored == {"id": 3}
        assert [request.method for request in service.seen] == ["POST", "POST"]
        assert json.loads(service.seen[-1].body) == {"version": 7}
        assert service.seen[-1].headers["Content-Type"] == "application/json"
        assert service.seen[-1].headers["Authorization"] == "Bearer secret"
        service.reply = always(Reply(b'{"detail": "no scope"}', status=403))
        with pytest.raises(InputError, match="status 403: no scope"):
            service_client.post_record(wanted(service.url), "/v1/feedback", {})
        remedy = {"detail": f"several tables: {'x' * 150} (--cluster)"}
        service.reply = always(Reply(json.dumps(remedy).encode(), status=409))
        with pytest.raises(InputError, match=r"status 409: several tables: x+ \(--cluster\)"):
            service_client.post_record(wanted(service.url), "/v1/feedback", {})
        service.reply = always(Reply(b"<html>", status=200))
        with pytest.raises(InputError, match="is not JSON"):
            service_client.post_record(wanted(service.url), "/v1/feedback", {})


def test_a_file_beside_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory of a rank may be gone, and the other ranks wait for what it says."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(InputError, match="is relative to a directory that cannot be found"):
        resolve_request(LIBRARY, "table.json", environment={})


@pytest.mark.parametrize("named", ["by argument", "by variable"])
def test_a_relative_path_means_the_same_file_wherever_the_program_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    def followed(comm: Any) -> str | None:
        return str(comm.table.rules[0].choice) if comm.table else None

    def write(algorithm: str) -> None:
        (tmp_path / "table.json").write_text(text_of(algorithm, library_name()))

    monkeypatch.chdir(tmp_path)
    if named == "by variable":
        monkeypatch.setenv("TUNER_TABLE", "table.json")
    write("ring")
    tuned = tune(MPI.COMM_SELF, "table.json" if named == "by argument" else None)
    twin = tuned.Dup()
    assert followed(tuned) == "ring"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    write("linear")
    for comm in (tuned, twin):
        comm.refresh()
        assert followed(comm) == "linear"
    twin.Free()


def test_arguments_win_over_the_environment() -> None:
    environment = {
        "TUNER_TABLE": "/a",
        "TUNER_SERVICE": "http://b/",
        "TUNER_CLUSTER": "c",
        "TUNER_TOKEN": "d",
        "TUNER_TIMEOUT": "250ms",
    }
    table = table_of({(Collective.BCAST, 2): [(0, AlgorithmChoice())]})

    def made(
        table: Any = None, service: str | None = None, cluster: str | None = None
    ) -> TableRequest:
        return resolve_request(LIBRARY, table, service, cluster, environment=environment)

    assert made() == TableRequest(LIBRARY, path=Path("/a"), cluster="c", token="d", timeout_s=0.25)
    assert made("/x").name == "/x"
    assert made(None, "http://y").name == "http://y cluster c"
    assert made(table).name.startswith("a table with SHA-256 ")
    del environment["TUNER_TABLE"]
    assert made(None, None, "e").name == "http://b cluster e"
    environment.clear()
    assert made().name == ""
    assert made().timeout_s == 5.0
    for words in ((table, "http://y"), (5,)):
        with pytest.raises(InputError):
            made(*words)
    for odd in ("5", "0s", "2h", "1e300s"):
        environment["TUNER_TIMEOUT"] = odd
        with pytest.raises(InputError, match=r"90s|5s"):
            made()
