"""The service killed during jobs, again and again.

    python -m tests.bench.crash_recovery_jobs [KILLS]

In each round jobs are asked for, the service is killed (SIGKILL) at a random moment while one runs,
and started again on the same database, first on SQLite and then, where its programs are installed,
on PostgreSQL. At the end every job that was acknowledged must be done,
with one result: two calibrations or tables of the same measurements are one, so that a second
result would show as a second publication or a job that was run after it was done.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from tests.service.serving import Program, a_study, good, probe_file, serving
from tests.support.databases import kinds
from tests.support.waiting import until
from tuner import db

KILLS = 50
SEED = 20240301
POINTS = 100  # of each study: about a second


def ask(client: httpx.Client, source: int) -> list[int]:
    """A study and a table; their ids, once they are acknowledged."""
    study = good(client.post("/v1/studies", json=a_study(POINTS)), 202)["id"]
    tune = {"kind": "tune", "measurements": source, "publish": True}
    return [study, good(client.post("/v1/jobs", json=tune), 202)["id"]]


def killed(program: Program, job: int, draw: random.Random) -> None:
    """Once the job runs, at any moment of the next second."""
    until(lambda: good(program.client.get(f"/v1/jobs/{job}"))["state"] != "queued")
    time.sleep(draw.random())
    program.kill()


def all_ended(client: httpx.Client) -> bool:
    """Nothing waits or runs any more."""
    return all(
        not good(client.get("/v1/jobs", params={"state": state, "limit": 1}))["items"]
        for state in ("queued", "running")
    )


def verdict(url: str, acknowledged: list[int]) -> dict[str, Any]:
    """What the database holds in the end; raises AssertionError when something is wrong."""
    engine = db.open_database(url)
    with db.read_session(engine) as session:
        jobs = {number: db.load_job(session, number) for number in acknowledged}
        results = [db.load_result(session, number) for number in acknowledged]
        tables = db.list_tables(session, limit=1000).items
        publications = db.list_publications(session, limit=1000).items
    engine.dispose()
    states = [job.state for job in jobs.values()]
    assert set(states) == {"done"}, states
    assert all(results), "a job is done without a result"
    assert len(tables) == len(publications) == 1, "a result was stored twice"
    retried = sum(job.attempts > 1 for job in jobs.values())
    assert max(job.attempts for job in jobs.values()) <= 2, "a job was run a third time"
    return {"acknowledged": len(jobs), "done": states.count("done"), "retried": retried}


def fifty(url: str, kills: int) -> dict[str, Any]:
    """One kill each; the verdict on all of them."""
    draw = random.Random(SEED)
    acknowledged: list[int] = []
    with serving(url) as program:
        source = good(program.client.post("/v1/measurements", content=probe_file()), 201)["id"]
    for kill in range(kills):
        with serving(url) as program:
            until(partial(all_ended, program.client))
            asked = ask(program.client, source)
            acknowledged += asked
            killed(program, asked[kill % 2], draw)
    with serving(url) as program:
        until(partial(all_ended, program.client))
    return verdict(url, acknowledged)


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else KILLS
    with tempfile.TemporaryDirectory(prefix="tuner-kills-") as scratch:
        for kind, fresh in kinds(Path(scratch)):
            with fresh() as database:
                print(f"{kind}: {number} kills: {fifty(database, number)}", flush=True)
