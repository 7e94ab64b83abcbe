"""The access log has one JSON object per request, and no secret in it."""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.serving import (
    a_table,
    end,
    good,
    problem,
    publish,
    served,
    serving,
    token,
    tuner,
)
from tests.support.waiting import patience, until
from tuner.api.settings import Settings
from tuner.base.errors import InputError

SELECT = "/v1/select?collective=bcast&nodes=1&ppn=4&nbytes=1&library=openmpi"
FIELDS = ["time", "client", "token", "method", "path", "status", "bytes", "ms", "id"]


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'tuner.sqlite'}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "access.log"


Lines = Callable[[], list[dict[str, Any]]]


@contextmanager
def logged(settings: Settings) -> Iterator[tuple[httpx.Client, Lines]]:
    """A service, and what its log says; a line is there soon after its answer."""
    file = Path(settings.access_log or "")

    def lines() -> list[dict[str, Any]]:
        return [json.loads(line) for line in file.read_text().splitlines()]

    with served(settings) as client:
        yield client, lines


def test_every_request_is_one_line(database: str, file: Path) -> None:
    with logged(Settings(database=database, access_log=str(file))) as (client, lines):
        version = publish(client, a_table())
        answer = client.get(SELECT)
        assert client.head("/v1/health").content == b""
        problem(client.get("/v1/nothing"), 404)
        problem(client.post("/v1/clusters", content=b" " * (1 << 20)), 413)
        until(lambda: len(lines()) == 6)
        logged_lines = lines()
    shown = [(line["method"], line["path"], line["status"]) for line in logged_lines]
    assert shown == [
        ("POST", "/v1/tables", 201),
        ("POST", "/v1/publications", 201),
        ("GET", SELECT, 200),
        ("HEAD", "/v1/health", 200),
        ("GET", "/v1/nothing", 404),
        ("POST", "/v1/clusters", 413),
    ]
    select = logged_lines[2]
    assert list(select) == FIELDS
    assert select["client"] == "127.0.0.1"
    assert select["token"] is None
    assert select["bytes"] == len(answer.content) > 100
    assert 0 < select["ms"] < patience() * 1000
    assert select["id"] == answer.headers["x-request-id"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", select["time"])
    assert datetime.now(UTC) - datetime.fromisoformat(select["time"]) < timedelta(minutes=5)
    assert len({line["id"] for line in logged_lines}) == 6
    assert version == 1


def test_a_sound_id_of_the_client_is_kept(database: str, file: Path) -> None:
    secret = token(database, "reader", "read")["Authorization"].removeprefix("Bearer ")
    sent = ["abc-1.2:3_4", "x" * 65, 'a"b', "line\\nbreak", "", secret, f"id-{secret}"]
    with logged(Settings(database=database, access_log=str(file))) as (client, lines):
        for each in sent:
            client.get("/v1/health", headers={"X-Request-Id": each})
        until(lambda: len(lines()) == len(sent))
        kept = [line["id"] for line in lines()]
    assert kept[0] == sent[0]
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in kept[1:])


def test_the_name_of_the_token_is_logged_and_nothing_secret(database: str, file: Path) -> None:
    headers = token(database, "reader", "read")
    secret = headers["Authorization"].removeprefix("Bearer ")
    settings = Settings(database=database, access_log=str(file), require_tokens=True)
    with logged(settings) as (client, lines):
        client.get("/v1/tables?limit=5", headers=headers)
        client.get("/v1/tables", headers={"Authorization": f"Bearer {secret}x"})
        client.get(f"/v1/tables?token={secret}&limit=5&password=hush", headers=headers)
        client.get(f"/v1/tables?library={secret}&{secret}=1&hush", headers=headers)
        client.get(f"/v1/{secret}/hush%0A%22", headers=headers)
        client.get("/v1/tables?" + "limit=5&" * 2000, headers=headers)
        until(lambda: len(lines()) == 6)
        shown = [(line["token"], line["path"], line["status"]) for line in lines()]
    assert shown[:5] == [
        ("reader", "/v1/tables?limit=5", 200),
        (None, "/v1/tables", 401),
        ("reader", "/v1/tables?***=***&limit=5&***=***", 422),
        ("reader", "/v1/tables?library=***&***=***&***=***", 422),
        ("reader", '/v1/***/hush\n"', 404),
    ]
    assert len(shown[5][1]) == 2000
    assert secret not in file.read_text()
    assert file.read_text().count("\n") == 6


def test_what_fails_inside_is_logged_under_the_id_that_the_client_gets(
    database: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of the program")

    monkeypatch.setattr("tuner.db.list_clusters", fail)
    with logged(Settings(database=database, access_log=str(file))) as (client, lines):
        answer = client.get("/v1/clusters")
        problem(answer, 500)
        until(lambda: len(lines()) == 1)
        assert (lines()[0]["status"], lines()[0]["id"]) == (500, answer.headers["x-request-id"])


def test_a_client_that_goes_away_is_logged(database: str, file: Path) -> None:
    with logged(Settings(database=database, access_log=str(file))) as (client, lines):
        address = (client.base_url.host, client.base_url.port)
        with socket.create_connection(address) as connection:
            connection.sendall(
                b"POST /v1/tables HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
            )
        until(lambda: len(lines()) == 1)
        assert lines()[0]["status"] == 400


def test_a_file_that_is_moved_away_is_opened_again(database: str, file: Path) -> None:
    with logged(Settings(database=database, access_log=str(file))) as (client, lines):
        good(client.get("/v1/health"))
        until(lambda: len(lines()) == 1)
        moved = file.rename(file.with_suffix(".1"))
        good(client.get("/v1/health"))
        until(file.exists)
        until(lambda: len(lines()) == 1)
        assert moved.read_text().count("\n") == 1
        with file.open("r+") as log:  # as logrotate's copytruncate does
            log.truncate(0)
        good(client.get("/v1/health"))
        until(lambda: len(lines()) == 1)
        assert "\0" not in file.read_text()


def test_a_full_disk_fails_no_request_and_is_said_once(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    with served(Settings(database=database, access_log="/dev/full")) as client:
        with caplog.at_level(logging.WARNING, "tuner.api.access_log"):
            for _ in range(5):
                good(client.get("/v1/health"))
            until(lambda: caplog.messages)
        assert [line for line in caplog.messages if "access log" in line] == [
            "the access log cannot be written: [Errno 28] No space left on device"
        ]


@pytest.mark.extended
def test_the_program_logs_to_standard_error_or_a_file(database: str, file: Path) -> None:
    with serving(database, "--no-jobs", "--access-log", "-") as program:
        good(program.client.get("/v1/health"))
        program.process.terminate()
        assert program.process.stderr is not None
        lines = program.process.stderr.read().splitlines()
    (line,) = map(json.loads, lines)
    assert (line["path"], line["status"]) == ("/v1/health", 200)
    words = ("--no-jobs", "--access-log", str(file), "--processes", "2")
    with serving(database, *words) as program:
        for _ in range(20):
            address = f"{program.client.base_url}/v1/health"
            good(httpx.get(address, trust_env=False, timeout=patience()))
        until(lambda: file.read_text().count("\n") == 20)
    assert all(json.loads(line)["status"] == 200 for line in file.read_text().splitlines())


def test_without_the_option_nothing_is_logged_and_no_id_given(
    database: str, tmp_path: Path
) -> None:
    with served(Settings(database=database)) as client:
        assert "x-request-id" not in client.get("/v1/health").headers
    assert {file.name.partition("-")[0] for file in tmp_path.iterdir()} == {"tuner.sqlite"}


def test_a_file_that_cannot_be_written_is_refused_at_the_start(
    database: str, tmp_path: Path
) -> None:
    target = tmp_path / "absent" / "access.log"
    process = tuner("serve", "--port", "0", "--db", database, "--access-log", str(target))
    _, error = process.communicate(timeout=patience())
    assert end(process) == 1
    assert error == (
        f"tuner: the access log {target} cannot be opened: No such file or directory; give another"
        " file, or - for standard error\n"
    )
    with pytest.raises(InputError), served(Settings(database=database, access_log=str(target))):
        pass
