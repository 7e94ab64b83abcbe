"""`tuner serve` and `tuner token` as users run them: real programs, real signals."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.serving import (
    LONG,
    a_study,
    a_table,
    children_of,
    end,
    good,
    has,
    problem,
    publish,
    said,
    served,
    serving,
    tuner,
)
from tests.support.postgres import new_database
from tests.support.waiting import patience, until
from tuner import db
from tuner.api.settings import Settings
from tuner.cli.main import main

CALL: dict[str, Any] = {
    "library": "openmpi",
    "collective": "bcast",
    "nodes": 1,
    "ppn": 4,
    "nbytes": 1,
}


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'tuner.sqlite'}"


Says = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Says:
    """Return a function that runs a command line which must fail, and returns its message."""

    def run(*words: str, status: int = 1) -> str:
        assert main(words) == status
        return capsys.readouterr().err

    return run


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Says:
    """What a command line prints that does what it should."""

    def run(*words: str) -> str:
        assert main(words) == 0
        return capsys.readouterr().out

    return run


def _ended(client: httpx.Client, job: int) -> dict[str, Any] | None:
    """The job, once it has ended."""
    found: dict[str, Any] = good(client.get(f"/v1/jobs/{job}"))
    return found if found["ended_at"] else None


def jobs_in(database: str) -> list[Any]:
    engine = db.open_database(database)
    with db.read_session(engine) as session:
        jobs = db.list_jobs(session, limit=1000).items
    engine.dispose()
    return jobs


@pytest.fixture
def postgres_url(postgres: Any) -> Iterator[str]:
    with new_database(postgres.get_uri()) as url:
        yield url


@pytest.mark.representative("2")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_cleanly_with_a_job_and_a_listener(database: str, number: int) -> None:
    with serving(database) as program:
        job = good(program.client.post("/v1/studies", json=a_study(LONG)), 202)["id"]
        with program.client.stream("GET", f"/v1/jobs/{job}/events") as events:
            lines = events.iter_lines()
            until(lambda: '"running"' in next(lines))
            program.process.send_signal(number)
        assert program.process.wait(patience()) == 0
        assert program.process.stderr is not None
        assert "Traceback" not in program.process.stderr.read()
    (left,) = jobs_in(database)
    assert (left.state, left.error) == ("queued", None)


def test_a_port_that_is_taken_is_said_in_one_sentence(
    database: str, refused: Says, printed: Says
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        error = refused("serve", "--port", port, "--db", database)
    assert error == (
        f"tuner: 127.0.0.1 port {port} is in use: end the program that has it, or choose another"
        " --port\n"
    )
    elsewhere = ("serve", "--host", "203.0.113.9", "--port", "0")
    printed("token", "create", "any", "--scope", "read", "--db", database)
    assert "cannot be served on" in refused(*elsewhere, "--db", database)
    assert "--port" in refused("serve", "--port", "70000", "--db", database, status=2)
    assert "sqlite:///tuner.db" in refused("serve", "--db", "nonsense")


def test_beyond_loopback_there_must_be_a_token(database: str, refused: Says, printed: Says) -> None:
    words = ("serve", "--host", "0.0.0.0", "--port", "0", "--db", database)
    said = refused(*words)
    assert "tuner token create programs --scope read`, and with the --db of the service" in said
    assert not {"URL", "NAME", database} & set(said.split())
    assert "tuner token create" in refused("serve", "--require-tokens", "--db", database)
    token = printed("token", "create", "reader", "--scope", "read", "--db", database).strip()
    with serving(database, "--host", "0.0.0.0") as program:
        problem(program.client.get("/v1/tables"), 401)
        headers = {"Authorization": f"Bearer {token}", "Host": "tuner.example"}
        assert program.client.get("/v1/tables", headers=headers).status_code == 200
    printed("token", "revoke", "reader", "--db", database)
    assert "tuner token create" in refused(*words)


def test_verbs_about_tokens_make_no_database(refused: Says, tmp_path: Path) -> None:
    path = tmp_path / "missing.db"
    for words in (("list",), ("revoke", "reader")):
        said = refused("token", *words, "--db", f"sqlite:///{path}")
        assert said.startswith("tuner: the file of the database does not exist: ")
        assert not path.exists()


def test_tokens_are_listed_without_being_shown(database: str, refused: Says, printed: Says) -> None:
    token = printed("token", "create", "reader", "--scope", "read,submit", "--db", database)
    listed = printed("token", "list", "--db", database)
    assert "reader" in listed
    assert "read, submit" in listed
    assert token.strip() not in listed
    again = refused("token", "create", "reader", "--scope", "read", "--db", database)
    assert "reader" in again
    assert "'all'" in refused("token", "create", "b", "--scope", "all", "--db", database, status=2)
    assert "nobody" in refused("token", "revoke", "nobody", "--db", database)


def test_tokens_expire_when_the_command_line_says(
    database: str, refused: Says, printed: Says
) -> None:
    def create(name: str, *words: str) -> dict[str, Any]:
        create = ("token", "create", name, "--scope", "read", "--db", database, "--json")
        made: dict[str, Any] = json.loads(printed(*create, *words))
        return made

    assert create("forever")["expires_at"] is None
    assert create("date", "--expires", "2999-01-31")["expires_at"] == "2999-01-31T00:00:00Z"
    zoned = create("zoned", "--expires", "2999-01-31T12:00:00+02:00")
    assert zoned["expires_at"] == "2999-01-31T10:00:00Z"
    after = datetime.fromisoformat(create("days", "--expires", "90d")["expires_at"])
    assert abs(after - datetime.now(UTC) - timedelta(days=90)) < timedelta(minutes=1)
    listed = printed("token", "list", "--db", database)
    assert "2999-01-31 00:00" in listed
    assert listed.count("valid") == 4
    for wrong in ("soon", "90", "2027-02-31"):
        words = ("token", "create", "x", "--scope", "read", "--expires", wrong, "--db", database)
        assert main(words) == 2
    past = ("token", "create", "x", "--scope", "read", "--expires", "2020-01-31", "--db", database)
    assert "in the past" in refused(*past)


def test_an_operator_prunes_by_hand(database: str, refused: Says, printed: Says) -> None:
    engine = db.open_database(database)
    with db.transaction(engine) as session:
        for number in range(3):
            db.cancel_job(session, db.enqueue_job(session, "tune", {"measurements": number}))
    engine.dispose()
    words = ("db", "prune", "--keep-jobs", "1", "--db", database)
    assert printed(*words, "--dry-run") == "would delete 2 jobs (1, 2) and 0 table versions\n"
    assert len(jobs_in(database)) == 3
    found = json.loads(printed(*words, "--json"))
    assert found == {"jobs": [1, 2], "tables": [], "dry_run": False}
    assert printed(*words) == "deleted 0 jobs and 0 table versions\n"
    assert "--keep-jobs-for 90d" in refused("db", "prune", "--db", database, status=2)
    for wrong in ("90", "1000000d"):
        assert main(("db", "prune", "--keep-jobs-for", wrong, "--db", database)) == 2
    absent = Path(database.removeprefix("sqlite:///")).with_name("absent.sqlite")
    missing = ("db", "prune", "--keep-jobs", "1", "--dry-run", "--db", f"sqlite:///{absent}")
    assert "the file of the database does not exist" in refused(*missing)
    assert not absent.exists()


def test_a_service_prunes_in_the_background(database: str) -> None:
    engine = db.open_database(database)
    with db.transaction(engine) as session:
        for number in range(3):
            db.cancel_job(session, db.enqueue_job(session, "tune", {"measurements": number}))
    engine.dispose()
    with serving(database, "--keep-jobs", "1", "--no-jobs"):
        until(lambda: len(jobs_in(database)) == 1)


def test_who_carries_out_jobs_alone_begins_without_what_answers(database: str) -> None:
    runner = tuner("serve", "--jobs-only", "--db", database)
    try:
        assert said(runner).startswith("tuner carries out jobs")
        assert has(runner.pid, "/sqlalchemy/")
        assert not has(runner.pid, "/llvmlite/")  # which predictions need
    finally:
        end(runner)


@pytest.mark.extended
def test_a_job_survives_the_death_of_the_service(database_url: str) -> None:
    points = 200  # some seconds
    with serving(database_url) as program:
        version = publish(program.client, a_table())
        job = good(program.client.post("/v1/studies", json=a_study(points)), 202)["id"]
        until(lambda: good(program.client.get(f"/v1/jobs/{job}"))["progress"] > 0)
        program.kill()
    with serving(database_url) as program:
        done = until(partial(_ended, program.client, job))
        assert (done["state"], done["attempts"]) == ("done", 2)
        assert len(done["result"]["points"]) == points
        assert good(program.client.get("/v1/select", params=CALL))["version"] == version


@pytest.mark.extended
def test_processes_share_a_port_and_what_is_published(database_url: str) -> None:
    with serving(database_url, "--processes", "2", "--no-jobs") as program:
        version = publish(program.client, a_table())

        def ask(_number: int) -> int:
            address = str(program.client.base_url)
            answer = httpx.get(f"{address}/v1/select", params=CALL, trust_env=False)
            return int(answer.json().get("version", 0))

        with ThreadPoolExecutor(8) as many:
            until(lambda: set(many.map(ask, range(40))) == {version})
            list(many.map(ask, range(40)))
        assert program.process.poll() is None
        counted = re.findall(
            r'tuner_requests_total\{.*"/v1/select".*\} (\S+)', program.client.get("/metrics").text
        )
        assert sum(map(float, counted)) >= 80
    assert program.process.returncode == 0


@pytest.mark.extended
def test_a_process_that_dies_is_replaced_and_none_outlives_the_service(database: str) -> None:
    with serving(database, "--processes", "2", "--no-jobs") as program:
        address = f"{program.client.base_url}/v1/health"
        first = until(lambda: children_of(program.process.pid, b"spawn_main"))
        for child in first:
            os.kill(child, signal.SIGKILL)
        until(lambda: len({*children_of(program.process.pid, b"spawn_main")} - {*first}) == 2)
        assert httpx.get(address, trust_env=False, timeout=patience()).status_code == 200
        program.kill()
        until(lambda: _is_closed(address))


def _is_closed(address: str) -> bool:
    try:
        httpx.get(address, trust_env=False)
    except httpx.ConnectError:
        return True
    except httpx.TransportError:  # a process that is about to end
        return False
    return False


@pytest.mark.extended
def test_two_services_and_two_runners_do_every_job_once(postgres_url: str) -> None:
    runners = [tuner("serve", "--jobs-only", "--db", postgres_url) for _ in range(2)]
    try:
        for runner in runners:
            assert said(runner).startswith("tuner carries out jobs")
        chosen = Settings(database=postgres_url)
        with served(chosen) as one, served(chosen) as two:
            jobs = [
                good(client.post("/v1/studies", json=a_study()), 202)["id"]
                for client in (one, two) * 3
            ]
            ended = [
                until(partial(_ended, client, job))
                for job, client in zip(jobs, (two, one) * 3, strict=True)
            ]
    finally:
        statuses = [end(runner) for runner in runners]
    assert statuses == [0, 0]
    assert [job["state"] for job in ended] == ["done"] * 6
    assert [job["attempts"] for job in ended] == [1] * 6
