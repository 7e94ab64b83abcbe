"""No part of the database's URL is in an answer, an error, a log line or the description."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import make_url

from tests.service.serving import (
    SOURCES,
    Program,
    a_study,
    a_table,
    end,
    good,
    publish,
    serving,
    tuner,
)
from tests.support.postgres import new_database
from tests.support.waiting import patience, until
from tuner import db
from tuner.base.errors import InputError

# Parts of URLs that occur nowhere else.
USER, PASSWORD, NAME, FOLDER = "uumarkeruu", "ppmarkerpp", "ddmarkerdd", "ffmarkerff"
CALL: dict[str, Any] = {
    "library": "openmpi",
    "collective": "bcast",
    "nodes": 1,
    "ppn": 4,
    "nbytes": 1,
}


def secrets_in(text: str, *more: str) -> list[str]:
    """Which parts of the URLs are in it."""
    parts = (USER, PASSWORD, NAME, FOLDER, "ostgresql:/", "sqlite:/", ".sqlite", "psycopg", *more)
    return [part for part in parts if part in text]


def everything(client: httpx.Client) -> list[httpx.Response]:
    """Ask everything that there is to ask, in good words and in bad ones."""
    document = json.loads(httpx.get(f"{client.base_url}/openapi.json", trust_env=False).content)
    answers = []
    for path, operations in document["paths"].items():
        if path.endswith("/events"):
            continue
        for version in ("1", "99", "x"):
            filled = path.replace(path[path.find("{") : path.find("}") + 1] or "{", version)
            for method in operations:
                bodies: list[Any] = [None] if method == "get" else [{}, a_table(), a_study(), "x\0"]
                for body in bodies:
                    answers.append(client.request(method, filled, json=body, params=CALL))
                    answers.append(client.request(method, filled, json=body))
    large = json.dumps(a_table("chain")) + " " * (300 << 10)
    headers = {"Content-Type": "application/json"}
    answers.append(client.post("/v1/tables", content=large, headers=headers))
    answers.append(client.post("/v1/measurements", content=b"\n" * (2 << 20)))
    return answers


def harmless(answers: list[httpx.Response], *more: str) -> list[httpx.Response]:
    for answer in answers:
        assert not secrets_in(answer.text + str(answer.headers), *more), answer.text
    return answers


def harmless_log(program: Program, access_log: Path, *more: str) -> str:
    """Return what the program has written to standard error, once it has ended."""
    program.process.send_signal(signal.SIGTERM)
    output, error = program.process.communicate(timeout=patience())
    assert not secrets_in(output + error, *more), output + error
    requests = access_log.read_text()
    assert requests.count("\n") > 10
    assert not secrets_in(requests, *more)
    return error


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / FOLDER
    folder.mkdir()
    return folder / f"{NAME}.sqlite"


@pytest.fixture
def access_log(tmp_path: Path) -> Path:
    """A file: of standard error, which is a pipe, only so much is kept until it is read."""
    return tmp_path / "access.log"


def options(access_log: Path) -> tuple[str, ...]:
    return ("--access-log", str(access_log), "--keep-jobs", "5")


@pytest.mark.extended
def test_a_service_in_order_says_nothing(path: Path, access_log: Path) -> None:
    with serving(f"sqlite:///{path}", *options(access_log)) as program:
        publish(program.client, a_table())
        answers = harmless(everything(program.client))
        assert {200, 201, 202, 404, 422} <= {answer.status_code for answer in answers}
        harmless_log(program, access_log)


def damaged(path: Path) -> None:
    """Overwrite the files in place: SQLite maps one of them, and the system kills a process that
    reads a mapped file after its end, as it is for a moment where a file is cut first.
    """
    for file in path.parent.iterdir():
        with file.open("r+b") as opened:
            opened.write(b"not a database at all" * 1000)


def emptied(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        tables = connection.execute("select name from sqlite_master where type = 'table'")
        for (name,) in tables.fetchall():
            connection.execute(f'drop table "{name}"')


def gone(path: Path) -> None:
    """Remove the folder, after its name: the service may be about to make a file in it."""
    shutil.rmtree(path.parent.rename(path.parent.with_name("removed")))


@pytest.mark.extended
@pytest.mark.parametrize("spoil", [damaged, emptied, gone])
@pytest.mark.parametrize("words", [(), ("--require-tokens",)])
def test_a_broken_file_says_nothing(
    path: Path, access_log: Path, spoil: Callable[[Path], None], words: tuple[str, ...]
) -> None:
    engine = db.open_database(f"sqlite:///{path}")
    with db.transaction(engine) as session:
        token = db.create_token(session, "all", db.SCOPES)
    engine.dispose()
    with serving(f"sqlite:///{path}", *options(access_log), *words) as program:
        program.client.headers["Authorization"] = f"Bearer {token}"
        publish(program.client, a_table())
        good(program.client.post("/v1/studies", json=a_study(20_000)), 202)
        spoil(path)
        answers = harmless(everything(program.client))
        assert 503 in {answer.status_code for answer in answers}
        assert "Traceback" not in harmless_log(program, access_log)


@contextmanager
def marked_server(postgres: Any) -> Iterator[str]:
    """The URL of a database whose every part is marked."""
    postgres.psql(f"create role {USER} login superuser password '{PASSWORD}';")
    try:
        with new_database(postgres.get_uri()) as usual:
            name = make_url(usual).database
            postgres.psql(f'alter database {name} rename to "{NAME}";')
            url = make_url(usual).set(username=USER, password=PASSWORD, database=NAME)
            yield url.render_as_string(False)
            postgres.psql(f'alter database "{NAME}" rename to {name};')
    finally:
        postgres.psql(f"drop role {USER};")


@pytest.mark.extended
def test_a_server_that_goes_away_says_nothing(postgres: Any, access_log: Path) -> None:
    socket = str(make_url(postgres.get_uri()).query["host"])
    stop = f"select pg_terminate_backend(pid) from pg_stat_activity where usename = '{USER}';"
    with marked_server(postgres) as url:
        with serving(url, *options(access_log), "--rate-limit", "0") as program:
            publish(program.client, a_table())
            good(program.client.post("/v1/studies", json=a_study(20_000)), 202)
            harmless(everything(program.client), socket)
            postgres.psql(stop)
            harmless(everything(program.client)[:20], socket)
            postgres.psql(f"alter role {USER} nologin;")
            postgres.psql(stop)
            answers = harmless(everything(program.client), socket)
            assert 503 in {answer.status_code for answer in answers}
            assert "jobs wait" in harmless_log(program, access_log, socket)
        postgres.psql(f"alter role {USER} login;")


def wrong_urls(postgres: Any) -> Iterator[str]:
    server = make_url(postgres.get_uri())
    marked = server.set(username=USER, password=PASSWORD, database=NAME)
    yield marked.render_as_string(False)
    yield server.set(database=NAME).render_as_string(False)
    yield f"postgresql://{USER}:{PASSWORD}@127.0.0.1:9/{NAME}"
    yield f"postgresql://{USER}:{PASSWORD}@{FOLDER}.invalid/{NAME}"
    yield f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{FOLDER}/{NAME}"
    yield f"postgresql://{USER}:{PASSWORD}@[{FOLDER}/{NAME}"
    yield f"postgresql://{USER}:{PASSWORD}@127.0.0.1:9/{NAME}?connect_timeout={FOLDER}"
    yield f"postgresql://{USER}:{PASSWORD}@127.0.0.1:9/{NAME}?{FOLDER}=1"
    yield f"postgresql://{USER}:{PASSWORD}@127.0.0.1:9/{NAME}?sslmode={FOLDER}"
    yield f"postgresql://{USER}:{PASSWORD}@127.0.0.1:9/{NAME}?sslmode=verify-full&sslrootcert=/{NAME}"
    yield f"postgresql+{FOLDER}://{USER}:{PASSWORD}@127.0.0.1/{NAME}"
    yield f"{FOLDER}://{USER}:{PASSWORD}@127.0.0.1/{NAME}"
    yield f"mysql://{USER}:{PASSWORD}@127.0.0.1/{NAME}"
    yield f"{FOLDER}/{NAME}"
    yield f"sqlite:////{FOLDER}/{NAME}"
    yield f"sqlite:///{NAME}.sqlite?{FOLDER}=1"
    yield f"sqlite:///{NAME}.sqlite?timeout={FOLDER}"
    yield f"sqlite:///file:/{FOLDER}/{NAME}?mode=ro&uri=true"
    yield "sqlite:////proc/self"


def test_urls_that_cannot_be_used_are_not_repeated(
    postgres: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url in wrong_urls(postgres):
        with pytest.raises(InputError) as caught:
            db.open_database(url)
        said = str(caught.value)
        assert not secrets_in(
            said.replace("postgresql://user:password@host/name", "").replace(
                "sqlite:///tuner.db", ""
            ),
            "127.0.0.1",
            "proc",
        ), (url, said)
        assert "\n" not in said


@pytest.mark.representative("verb0")
@pytest.mark.parametrize(
    "verb",
    [
        ("serve", "--port", "0"),
        ("serve", "--jobs-only"),
        ("token", "list"),
        ("db", "prune", "--keep-jobs", "1"),
    ],
)
def test_no_verb_repeats_the_url(path: Path, verb: tuple[str, ...]) -> None:
    path.write_bytes(b"not a database at all" * 1000)
    process = tuner(*verb, "--db", f"sqlite:///{path}")
    output, error = process.communicate(timeout=patience())
    assert end(process) == 1
    assert error == "tuner: the database is not an SQLite file; give another file\n"
    assert output == ""


@pytest.mark.extended
def test_a_job_says_nothing_in_its_error_or_log(path: Path, access_log: Path) -> None:
    """Its process finds the database gone, or without what it needs."""
    url = f"sqlite:///{path}"
    with serving(url, *options(access_log)) as program:
        job = good(program.client.post("/v1/studies", json=a_study(20_000)), 202)["id"]
        until(lambda: good(program.client.get(f"/v1/jobs/{job}"))["state"] == "running")
        for child in until(lambda: _job_processes(program.process.pid)):
            os.kill(child, signal.SIGKILL)
        until(lambda: good(program.client.get(f"/v1/jobs/{job}"))["attempts"] == 2)
        gone(path)
        harmless(everything(program.client))
        harmless_log(program, access_log)


@pytest.mark.extended
def test_the_program_passes_the_url_to_no_command_line(path: Path) -> None:
    """Everybody can read the command lines of processes: those of workers and jobs have no URL."""
    with serving(f"sqlite:///{path}") as program:
        good(program.client.post("/v1/studies", json=a_study(20_000)), 202)
        large = json.dumps(a_table()) + " " * (300 << 10)
        headers = {"Content-Type": "application/json"}
        good(program.client.post("/v1/tables", content=large, headers=headers), 201)
        children = until(lambda: len(found := list(_children(program.process.pid))) > 1 and found)
        for child in children:
            assert not secrets_in(Path(f"/proc/{child}/cmdline").read_text(), str(SOURCES) + "/x")


def _job_processes(service: int) -> list[int]:
    """Return those that run: a job counts as running a moment before its process does."""
    found = subprocess.run(
        ["pgrep", "-f", "-P", str(service), "tuner.jobs"], capture_output=True, text=True
    )
    return [int(number) for number in found.stdout.split()]


def _children(process: int) -> Iterator[int]:
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        yield from map(int, file.read_text().split())
