"""The documented commands for backup and restore, run while a service is being used."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.serving import (
    LIBRARY,
    SOURCES,
    a_table,
    good,
    probe_file,
    publish,
    serving,
    token,
)
from tests.support.postgres import new_database, programs_of
from tests.support.waiting import until
from tuner import db

PAGE = SOURCES / "docs" / "how-to" / "run-a-service.md"
PUBLISHED = f"/v1/select?library={LIBRARY}&collective=bcast&nodes=1&ppn=4"


def documented(*words: str) -> list[str]:
    """Return the commands of the section about backups that have one of these words, in order."""
    section = PAGE.read_text().partition("## Backup and restore\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```bash\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    commands = [line for block in blocks for line in block.splitlines()]
    found = [line for line in commands if any(word in line for word in words)]
    assert len(found) >= len(words)
    return found


def run(command: str, folder: Path, **environment: str) -> None:
    """Run a documented command below a folder of the test, without another user's rights."""
    command = command.replace("sudo ", "").replace("-o tuner -g tuner ", "")
    command = command.replace("/var/lib/tuner", f"{folder}/state")
    command = command.replace("/backup", f"{folder}/backup")
    subprocess.run(["bash", "-c", command], env={**os.environ, **environment}, check=True)


@contextmanager
def reports(client: httpx.Client, version: int) -> Iterator[list[int]]:
    """Post one report after the other in the background; yield the ids that were acknowledged."""
    acknowledged: list[int] = []
    ended = threading.Event()

    def post() -> None:
        item = {
            "collective": "bcast",
            "nodes": 1,
            "ppn": 4,
            "algorithm": "binomial",
            "calls": 10,
            "median_s": 1e-5,
            "max_s": 1e-4,
        }
        while not ended.is_set():
            items = [{**item, "nbytes": len(acknowledged)}]
            about = {"version": version, "cluster": "test", "library": LIBRARY, "ranks": 4}
            answer = client.post("/v1/feedback", json={**about, "items": items})
            acknowledged.append(good(answer, 201)["id"])

    thread = threading.Thread(target=post)
    thread.start()
    try:
        yield acknowledged
    finally:
        ended.set()
        thread.join()


def fill(client: httpx.Client) -> tuple[int, int]:
    """Store measurements and publish a table; return their ids."""
    measurements = good(client.post("/v1/measurements", content=probe_file()), 201)["id"]
    return measurements, publish(client, a_table())


def require_all(url: str, measurements: int, version: int, reported: list[int]) -> None:
    """A service on the restored database has what was acknowledged, and can be written to."""
    with serving(url, "--no-jobs") as program:
        decided = good(program.client.get(f"{PUBLISHED}&nbytes=5000"))
        assert (decided["version"], decided["algorithm"]) == (version, "binomial")
        assert program.client.get(f"/v1/measurements/{measurements}/file").text == probe_file()
        assert publish(program.client, a_table("chain")) > version
    engine = db.open_database(url)
    with db.read_session(engine) as session:
        page = db.list_feedback(session, version, limit=len(reported) + 100)
        assert {entry.id for entry in page.items} >= set(reported)
    engine.dispose()


@pytest.mark.extended
@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="the program sqlite3 is not installed")
def test_an_sqlite_database_is_backed_up_while_it_is_used(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    database = state / "tuner.sqlite"
    url = f"sqlite:///{database}"
    headers = token(url, "reader", "read")
    with serving(url, "--no-jobs") as program:
        measurements, version = fill(program.client)
        with reports(program.client, version) as acknowledged:
            until(lambda: len(acknowledged) > 5)
            before = list(acknowledged)
            for command in documented("mkdir", "sqlite3"):
                run(command, tmp_path)
            until(lambda: len(acknowledged) > len(before))
        program.kill()
    database.write_bytes(b"damaged" * 1000)
    for command in documented("rm -f", "install"):
        run(command, tmp_path)
    assert stat.S_IMODE(database.stat().st_mode) == 0o600
    with serving(url, "--no-jobs", "--require-tokens") as program:
        assert program.client.get("/v1/tables", headers=headers).status_code == 200
    require_all(url, measurements, version, before)


@pytest.mark.extended
def test_a_postgresql_database_is_backed_up_while_it_is_used(postgres: Any, tmp_path: Path) -> None:
    path = f"{programs_of(postgres.get_uri())}:{os.environ['PATH']}"
    (tmp_path / "backup").mkdir()
    with new_database(postgres.get_uri()) as url, serving(url, "--no-jobs") as program:
        measurements, version = fill(program.client)
        with reports(program.client, version) as acknowledged:
            until(lambda: len(acknowledged) > 5)
            before = list(acknowledged)
            for command in documented("pg_dump"):
                run(command, tmp_path, URL=url, PATH=path)
            until(lambda: len(acknowledged) > len(before))
    with new_database(postgres.get_uri()) as url:
        for command in documented("pg_restore"):
            run(command, tmp_path, URL=url, PATH=path)
        require_all(url, measurements, version, before)
