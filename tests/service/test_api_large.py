"""Large bodies are answered by worker processes as small ones are by the service itself."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Connection, Engine, event

from tests.service.serving import (
    FOUR,
    LIBRARY,
    a_study,
    a_table,
    good,
    problem,
    publish,
    served,
    serving,
    token,
)
from tests.support.waiting import expiring, until
from tuner.api.routes import calibrations
from tuner.api.settings import Settings

CALL = {"collective": "bcast", "nodes": 1, "ppn": 4, "nbytes": 5000}


@pytest.fixture(autouse=True)
def _everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.api.large_requests.MAX_INLINE_BODY_BYTES", 100)


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'tuner.sqlite'}"


@pytest.fixture
def client(database: str) -> Iterator[httpx.Client]:
    with served(Settings(database=database)) as client:
        yield client


@pytest.fixture
def written() -> Iterator[list[str]]:
    """What this process, and no worker, writes into any database."""
    statements: list[str] = []

    def listen(_c: Connection, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith(("INSERT", "UPDATE", "DELETE")):
            statements.append(statement)

    event.listen(Engine, "before_cursor_execute", listen)
    yield statements
    event.remove(Engine, "before_cursor_execute", listen)


def workers() -> list[int]:
    """Worker processes of services in this process."""
    return [child.pid for child in multiprocessing.active_children() if child.daemon and child.pid]


def report(items: int, version: int) -> dict[str, Any]:
    item = {**CALL, "algorithm": "binomial", "calls": 10, "median_s": 1e-5, "max_s": 1e-4}
    items_ = [{**item, "nbytes": nbytes} for nbytes in range(items)]
    about = {"version": version, "cluster": "test", "library": LIBRARY, "ranks": 4}
    return {**about, "items": items_}


@pytest.mark.representative("sqlite")
def test_every_large_body_is_worked_on_elsewhere(
    database_url: str, uploads: Path, written: list[str]
) -> None:
    with served(Settings(database=database_url)) as client:
        written.clear()  # of what opening the database has written
        post_everything(client)
        assert written == []
        assert len(workers()) == 1
        assert list(uploads.iterdir()) == []
        counted = 'tuner_requests_total{method="POST",route="/v1/tables",status="201"} 1.0'
        assert counted in client.get("/metrics").text


def post_everything(client: httpx.Client) -> None:
    """Post what may be large; each is stored, once, and comes back."""
    made = good(client.post("/v1/tables", json=a_table()), 201)
    assert good(client.post("/v1/tables", json=a_table())) == made
    assert good(client.get("/v1/tables"))["items"] == [made]
    stored = good(client.post("/v1/calibrations", json=calibrations.EXAMPLE), 201)["id"]
    assert good(client.get(f"/v1/calibrations/{stored}"))["cluster"] == "one"
    text = f"# {'-' * 100}\n{FOUR}\n"
    topology = good(client.post("/v1/topologies", content=text), 201)
    assert client.get(f"/v1/topologies/{topology['id']}/source").text == text
    reported = good(client.post("/v1/feedback", json=report(3, made["version"])), 201)
    assert good(client.post("/v1/feedback", json=report(3, made["version"]))) == reported
    study = good(client.post("/v1/studies", json=a_study()), 202)
    assert good(client.get(f"/v1/studies/{study['id']}"))["spec"]["name"] == "more of it"
    assert study["job"]["by"] == "127.0.0.1"


def test_what_is_wrong_with_a_large_body_is_said_as_of_a_small_one(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[tuple[str, Any]] = [
        ("/v1/tables", {**a_table(), "kind": "x" * 100}),
        ("/v1/tables?measurements=9", a_table()),
        ("/v1/tables?wrong=9", a_table()),
        ("/v1/feedback", {**report(1, 1), "ranks": 0}),
        ("/v1/feedback", report(1, 99)),
        ("/v1/studies", {**a_study(), "sizes": []}),
        ("/v1/select", {"library": "none at all", "calls": [CALL]}),
        ("/v1/calibrations", [1] * 100),
    ]
    bodies = [json.dumps(body) for _, body in requests] + ['{"half": ' + " " * 200]
    paths = [path for path, _ in requests] + ["/v1/feedback"]
    headers = {"Content-Type": "application/json"}

    def answers() -> list[tuple[int, str, dict[str, Any]]]:
        given = [
            client.post(path, content=body, headers=headers)
            for path, body in zip(paths, bodies, strict=True)
        ]
        return [(each.status_code, each.headers["content-type"], each.json()) for each in given]

    large = answers()
    monkeypatch.setattr("tuner.api.large_requests.MAX_INLINE_BODY_BYTES", 1 << 20)
    assert large == answers()
    assert {status for status, _, _ in large} == {404, 422}


def test_bodies_in_chunks_are_large_or_small(client: httpx.Client, written: list[str]) -> None:
    body = json.dumps(a_table()).encode()
    pieces = (body[start : start + 50] for start in range(0, len(body), 50))
    headers = {"Content-Type": "application/json"}
    made = good(client.post("/v1/tables", content=pieces, headers=headers), 201)
    assert written == []
    few = (piece for piece in (b'{"library": "openmpi",', b' "calls": []}'))
    assert "calls" in problem(client.post("/v1/select", content=few, headers=headers), 422)
    good(client.post("/v1/publications", json={"version": made["version"]}), 201)


def test_a_worker_knows_what_was_published_a_moment_ago(client: httpx.Client) -> None:
    asked = {"library": LIBRARY, "calls": [CALL] * 10}
    for algorithm in ("binomial", "chain"):
        version = publish(client, a_table(algorithm))
        decided = good(client.post("/v1/select", json=asked))
        assert decided["version"] == version
        assert [item["algorithm"] for item in decided["items"]] == [algorithm] * 10
    assert len(workers()) == 1


@pytest.mark.parametrize("query", ["", "?format=yaml"])
def test_yaml_is_refused_by_its_length_before_a_worker_starts(
    client: httpx.Client, query: str
) -> None:
    text = f"# {'é' * 600_000}\n{FOUR}\n"
    answer = client.post(f"/v1/topologies{query}", content=text)
    said = f"{len(text.encode())} bytes of YAML are too many: at most 1048576"
    assert said in problem(answer, 422)
    assert workers() == []


def test_nobody_without_a_token_gets_a_worker(database: str) -> None:
    headers = token(database, "submitter", "submit")
    with served(Settings(database=database, require_tokens=True)) as client:
        problem(client.post("/v1/studies", json=a_study()), 401)
        problem(client.post("/v1/tables", json=a_table(), headers=headers), 403)
        assert workers() == []
        study = good(client.post("/v1/studies", json=a_study(), headers=headers), 202)
        assert study["job"]["by"] == "submitter"


@pytest.mark.extended
def test_a_worker_that_dies_fails_one_request_alone(client: httpx.Client) -> None:
    good(client.post("/v1/tables", json=a_table()), 201)
    (worker,) = workers()
    os.kill(worker, signal.SIGSTOP)
    answers: list[httpx.Response] = []
    asking = threading.Thread(
        target=lambda: answers.append(client.post("/v1/tables", json=a_table("chain")))
    )
    asking.start()
    asking.join(expiring(0.5))
    assert asking.is_alive()
    os.kill(worker, signal.SIGKILL)
    asking.join()
    assert "send it again" in problem(answers[0], 503)
    good(client.post("/v1/tables", json=a_table("chain")), 201)
    assert worker not in workers()


@pytest.mark.extended
def test_idle_workers_end_and_are_replaced(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    good(client.post("/v1/tables", json=a_table()), 201)
    (first,) = workers()
    monkeypatch.setattr("tuner.api.workers.IDLE_SECONDS", 0.0)
    good(client.post("/v1/tables", json=a_table("chain")), 201)
    assert workers() != [first]


def test_workers_end_with_the_service(database: str) -> None:
    with served(Settings(database=database)) as client:
        good(client.post("/v1/tables", json=a_table()), 201)
        assert len(workers()) == 1
    until(lambda: workers() == [])


@pytest.mark.representative("15")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_program(database: str, number: int) -> None:
    padded = json.dumps(a_table()) + " " * (300 << 10)
    headers = {"Content-Type": "application/json"}
    with serving(database, "--no-jobs") as program:
        good(program.client.post("/v1/tables", content=padded, headers=headers), 201)
        listed = Path(f"/proc/{program.process.pid}/task").glob("*/children")
        children = {int(child) for file in listed for child in file.read_text().split()}
        assert children
        program.process.send_signal(number)
        program.process.wait()
    until(lambda: not any(Path(f"/proc/{child}/exe").exists() for child in children))


def test_small_resources_take_small_bodies(client: httpx.Client) -> None:
    for path in ("clusters", "jobs", "jobs/1/cancel", "publications"):
        answer = client.post(f"/v1/{path}", content=b" " * (300 << 10))
        assert "256KiB" in problem(answer, 413)
