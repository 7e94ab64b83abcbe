"""Jobs: queued over HTTP, carried out by a runner, watched and cancelled while they run."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.serving import (
    FOUR,
    LIBRARY,
    LONG,
    a_study,
    a_table,
    children_of,
    cluster_file,
    good,
    has,
    jobs_of,
    probe_file,
    problem,
    publish,
    running,
    served,
    token,
)
from tests.support.probed import SHORT
from tests.support.waiting import until
from tuner.api.settings import Settings

SPAWNED = b"spawn_main"  # by multiprocessing


@pytest.fixture
def client(database_url: str) -> Iterator[httpx.Client]:
    with served(Settings(database=database_url)) as client:
        yield client


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'tuner.sqlite'}"


@pytest.fixture
def own(file_url: str) -> Iterator[httpx.Client]:
    """A service on SQLite, for what does not depend on the database."""
    with served(Settings(database=file_url)) as client:
        yield client


def ended(client: httpx.Client, number: int) -> dict[str, Any]:
    """The job once it has ended."""
    job: dict[str, Any] = until(
        lambda: (found := good(client.get(f"/v1/jobs/{number}")))["ended_at"] and found
    )
    return job


def events(client: httpx.Client, number: int, last: str = "") -> Iterator[tuple[str, Any]]:
    """(id, job) of every event; comments between them keep the connection open, no more."""
    headers = {"Last-Event-ID": last} if last else {}
    with client.stream("GET", f"/v1/jobs/{number}/events", headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        event: dict[str, str] = {}
        for line in response.iter_lines():
            if line:
                name, _, value = line.partition(": ")
                event[name] = value
            elif "data" in event:
                assert event["event"] == "progress"
                yield event["id"], json.loads(event["data"])
                event = {}


@pytest.mark.representative("postgresql")
def test_calibrating_and_tuning_make_what_the_command_line_makes(
    client: httpx.Client, database_url: str
) -> None:
    source = good(client.post("/v1/measurements", content=probe_file()), 201)["id"]
    jobs = [
        good(client.post("/v1/jobs", json={"measurements": source, **job}), 202)
        for job in ({"kind": "calibrate"}, {"kind": "tune", "publish": True})
    ]
    assert [job["state"] for job in jobs] == ["queued", "queued"]
    assert [job["id"] for job in good(client.get("/v1/jobs?state=queued"))["items"]] == [
        job["id"] for job in jobs
    ]
    with running(database_url):
        calibrated, tuned = (ended(client, job["id"]) for job in jobs)
    assert (calibrated["state"], tuned["state"]) == ("done", "done")
    assert (tuned["progress"], tuned["attempts"], tuned["error"]) == (1.0, 1, None)
    made = tuned["result"]
    assert made["calibration"] == calibrated["result"]["calibration"]
    assert good(client.get(f"/v1/calibrations/{made['calibration']}"))["cluster"] == "ares"
    (summary,) = good(client.get("/v1/tables"))["items"]
    assert (summary["version"], summary["measurements_id"]) == (made["table"], source)
    call: dict[str, Any] = {
        "collective": "bcast",
        "nodes": 1,
        "ppn": 4,
        "nbytes": 512,
        "library": LIBRARY,
    }
    until(lambda: client.get("/v1/select", params=call).status_code == 200)
    decision = good(client.get("/v1/select", params=call))
    assert (decision["algorithm"], decision["version"]) == ("binomial", made["table"])


def test_queued_jobs_are_limited_for_each_client(database_url: str) -> None:
    ada, bob = (token(database_url, name, "read", "submit") for name in ("ada", "bob"))
    limited = Settings(database=database_url, require_tokens=True, max_queued_jobs=2)
    with served(limited) as client:
        source = client.post("/v1/measurements", content=probe_file(), headers=ada).json()["id"]
        tune = {"kind": "tune", "measurements": source}
        first = good(client.post("/v1/studies", json=a_study(), headers=ada), 202)["id"]
        good(client.post("/v1/jobs", json=tune, headers=ada), 202)
        for path, body in (("/v1/jobs", tune), ("/v1/studies", a_study())):
            refused = client.post(path, json=body, headers=ada)
            assert problem(refused, 429) == (
                "ada has 2 queued jobs already, which is the limit: wait until one of them has"
                " started, or cancel one"
            )
            assert int(refused.headers["retry-after"]) > 0
        good(client.post("/v1/studies", json=a_study(), headers=bob), 202)
        good(client.post(f"/v1/jobs/{first}/cancel", headers=ada), 202)
        good(client.post("/v1/jobs", json=tune, headers=ada), 202)
        assert len(good(client.get("/v1/jobs?state=queued", headers=ada))["items"]) == 3


def test_of_many_requests_at_once_as_many_as_the_limit_succeed(database_url: str) -> None:
    settings = Settings(database=database_url, max_queued_jobs=3)
    with served(settings) as client, ThreadPoolExecutor(12) as many:
        asked = many.map(lambda _: client.post("/v1/studies", json=a_study()), range(12))
        statuses = Counter(each.status_code for each in asked)
    assert statuses == {202: 3, 429: 9}


def test_there_may_be_no_limit_and_a_usual_one(file_url: str) -> None:
    assert Settings().max_queued_jobs == 100
    with served(Settings(database=file_url, max_queued_jobs=0)) as client:
        for _ in range(5):
            good(client.post("/v1/studies", json=a_study()), 202)


@pytest.mark.extended
def test_a_cluster_is_calibrated_and_tuned_on_its_stored_topology(
    own: httpx.Client, file_url: str
) -> None:
    source = good(own.post("/v1/measurements", content=cluster_file()), 201)["id"]
    topology = good(own.post("/v1/topologies", content=FOUR), 201)["id"]
    jobs = [
        good(own.post("/v1/jobs", json={"measurements": source, **job}), 202)["id"]
        for job in (
            {"kind": "calibrate", "topology": topology},
            {"kind": "tune", "topology": topology},
            {"kind": "tune"},
        )
    ]
    with running(file_url):
        calibrated, tuned, alone = (ended(own, job) for job in jobs)
    stored = calibrated["result"]["calibration"]
    assert tuned["result"]["calibration"] == stored
    paths = good(own.get(f"/v1/calibrations/{stored}"))["paths"]
    (network,) = (path for path in paths if path["path_class"] == "network")
    alpha = network["segments"][0]["alpha"]["value"]
    assert alpha == pytest.approx(SHORT[0], rel=0.1)  # the latency of links is in the topology
    rules = good(own.get(f"/v1/tables/{tuned['result']['table']}"))["rules"]
    assert {(rule["key"]["nodes"], rule["choice"]["algorithm"]) for rule in rules} == {
        (4, "default"),
        (4, "binomial"),
    }
    flat = good(own.get(f"/v1/tables/{alone['result']['table']}"))["rules"]
    assert {rule["key"]["nodes"] for rule in flat} == {4}  # as if at one switch
    wanted = {"kind": "tune", "measurements": source, "topology": 99}
    assert "no topology 99" in problem(own.post("/v1/jobs", json=wanted), 404)


def test_a_job_that_cannot_be_done_says_why(own: httpx.Client, file_url: str) -> None:
    file = probe_file().splitlines()
    lines = [file[0], *(line for line in file if '"collective"' in line)]
    lines.append(json.dumps({"kind": "end", "lines": len(lines) - 1}))
    source = good(own.post("/v1/measurements", content="\n".join([*lines, ""])), 201)["id"]
    job = good(own.post("/v1/jobs", json={"kind": "tune", "measurements": source}), 202)
    with running(file_url):
        failed = ended(own, job["id"])
    assert (failed["state"], failed["attempts"]) == ("failed", 1)
    assert "lacks what a calibration needs" in failed["error"]
    assert good(own.get("/v1/tables"))["items"] == []
    problem(own.post(f"/v1/jobs/{job['id']}/cancel"), 409)


@pytest.mark.representative("sqlite")
def test_a_study_is_answered(client: httpx.Client, database_url: str) -> None:
    flat = "name: stored\nnodes: 8\nlatency: 2us\nbandwidth: 12.5GB/s\n"
    topology = good(client.post("/v1/topologies", content=flat), 201)["id"]
    version = publish(client, a_table(p=1))
    spec = {**a_study(2), "topology": str(topology), "table": str(version), "cost": {"node": 10}}
    queued = good(client.post("/v1/studies", json=spec), 202)
    with running(database_url):
        job = ended(client, queued["job"]["id"])
    study = good(client.get(f"/v1/studies/{queued['id']}"))
    assert study["job"]["state"] == "done"
    assert study["spec"]["topology"]["name"] == "stored"
    assert study["result"] == job["result"]
    points = study["result"]["points"]
    assert len(points) == 2
    assert all(point["sensitivities"] for point in points)
    assert [one["price"] for one in study["result"]["machine_values"]] == [80.0, 80.0]
    assert [item["id"] for item in good(client.get("/v1/studies"))["items"]] == [queued["id"]]


@pytest.mark.extended
def test_a_study_of_a_stored_preset_has_its_costs(own: httpx.Client, file_url: str) -> None:
    text = "preset: dgx-h100\nnodes: 2\n"
    topology = good(own.post("/v1/topologies", content=text), 201)["id"]
    asked = [
        good(own.post("/v1/studies", json={**a_study(), "vary": {}, "topology": name}), 202)["id"]
        for name in (str(topology), "preset:dgx-h100:2")
    ]
    with running(file_url):
        stored, named = (ended(own, number)["result"]["points"] for number in asked)
    assert stored == named


def test_a_study_that_cannot_be_asked_is_refused_at_once(own: httpx.Client) -> None:
    for changes, message in (
        ({"topology": "99"}, "no topology 99"),
        ({"topology": "../../etc/passwd"}, "is not an id"),
        ({"collectives": ["bbcast"]}, "bbcast"),
        ({"limits": "no"}, "limits must be true or false"),
        ({"cost": {"nodes": 1}}, "cost has an unknown key 'nodes'"),
        ({"vary": {"ppn": list(range(1, 100)), "nodes": list(range(1, 2000))}}, "points"),
    ):
        said = problem(own.post("/v1/studies", json={**a_study(), **changes}), 422)
        assert message in said
    assert good(own.get("/v1/jobs"))["items"] == []
    problem(own.get("/v1/studies/99"), 404)
    for path in ("/v1/jobs/99", "/v1/jobs/99/events"):
        problem(own.get(path), 404)
    problem(own.post("/v1/jobs/99/cancel"), 404)
    problem(own.post("/v1/jobs", json={"kind": "tune", "measurements": 99}), 404)
    problem(own.post("/v1/jobs", json={"kind": "study", "measurements": 1}), 422)


@pytest.mark.representative("sqlite")
def test_events_follow_a_job_to_its_end_and_resume(client: httpx.Client, database_url: str) -> None:
    number = good(client.post("/v1/studies", json=a_study(LONG)), 202)["id"]
    seen: list[tuple[str, Any]] = []
    with running(database_url):
        for event, job in events(client, number):
            seen.append((event, job))
            if job["progress"] > 0 and not job["cancel_requested"]:
                good(client.post(f"/v1/jobs/{number}/cancel"), 202)
    states = [job["state"] for _, job in seen]
    assert states[0] in ("queued", "running")  # who runs it may be faster than who asks
    assert "running" in states
    assert states[-1] == "cancelled"
    assert all(before != after for (before, _), (after, _) in pairwise(seen))  # each is news
    progress = [job["progress"] for _, job in seen]
    assert progress == sorted(progress)
    ((event, job),) = events(client, number, last=seen[-2][0])
    assert (event, job["state"]) == (seen[-1][0], "cancelled")
    over = client.get(f"/v1/jobs/{number}/events", headers={"Last-Event-ID": event})
    assert (over.status_code, over.content) == (204, b"")


def test_a_queued_job_is_cancelled_at_once(own: httpx.Client, file_url: str) -> None:
    number = good(own.post("/v1/studies", json=a_study()), 202)["id"]
    assert good(own.post(f"/v1/jobs/{number}/cancel"), 202)["state"] == "cancelled"
    assert good(own.post(f"/v1/jobs/{number}/cancel"), 202)["state"] == "cancelled"
    other = good(own.post("/v1/studies", json=a_study()), 202)["id"]
    with running(file_url):
        assert ended(own, other)["state"] == "done"
    assert good(own.get(f"/v1/jobs/{number}"))["attempts"] == 0


def test_a_runner_that_is_stopped_gives_its_job_back(
    client: httpx.Client, database_url: str
) -> None:
    number = good(client.post("/v1/studies", json=a_study(LONG)), 202)["id"]
    for _ in range(3):
        with running(database_url):
            until(lambda: good(client.get(f"/v1/jobs/{number}"))["state"] == "running")
        job = good(client.get(f"/v1/jobs/{number}"))
        assert (job["state"], job["error"]) == ("queued", None)
    assert job["attempts"] == 3


@pytest.mark.extended
def test_a_job_whose_process_dies_is_tried_once_more(own: httpx.Client, file_url: str) -> None:
    with running(file_url):
        number = good(own.post("/v1/studies", json=a_study(LONG)), 202)["id"]
        for attempt in (1, 2):
            until(partial(_has_begun, own, number, attempt))
            (child,) = until(lambda: jobs_of(os.getpid()))
            os.kill(child, signal.SIGKILL)
        job = ended(own, number)
    assert (job["state"], job["attempts"]) == ("failed", 2)
    assert "SIGKILL" in job["error"]


@pytest.mark.extended
def test_processes_of_a_study_load_no_database_and_end_with_it(
    own: httpx.Client, file_url: str
) -> None:
    number = good(own.post("/v1/studies", json=a_study(LONG)), 202)["id"]
    with running(file_url):
        (job,) = until(lambda: jobs_of(os.getpid()))
        found = until(lambda: [one for one in children_of(job, SPAWNED) if has(one, "/llvmlite/")])
        assert has(job, "/sqlalchemy/")
        assert not any(has(one, "/sqlalchemy/") for one in found)
        good(own.post(f"/v1/jobs/{number}/cancel"), 202)
        until(lambda: not any(has(one, "/llvmlite/") for one in found))
        assert ended(own, number)["state"] == "cancelled"


def _has_begun(client: httpx.Client, number: int, attempt: int) -> bool:
    job = good(client.get(f"/v1/jobs/{number}"))
    return bool(job["attempts"] == attempt and job["progress"] > 0)


def test_a_runner_waits_for_a_database_that_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "later"
    url = f"sqlite:///{place / 'tuner.sqlite'}"
    with running(url):
        until(lambda: "jobs wait" in caplog.text)
        place.mkdir()
        with served(Settings(database=url)) as client:
            number = good(client.post("/v1/studies", json=a_study()), 202)["id"]
            assert ended(client, number)["state"] == "done"


CONSTRAINTS = {
    "excluded_algorithms": ["binomial"],
    "max_rules": 9,
    "reproducible": True,
    "commutative_only": True,
}


def test_a_job_keeps_to_the_constraints_of_its_table(own: httpx.Client, file_url: str) -> None:
    source = good(own.post("/v1/measurements", content=probe_file()), 201)["id"]
    wanted = {"kind": "tune", "measurements": source, "constraints": CONSTRAINTS}
    number = good(own.post("/v1/jobs", json=wanted), 202)["id"]
    with running(file_url):
        job = ended(own, number)
    assert (job["state"], job["spec"]["constraints"]) == ("done", CONSTRAINTS)
    table = good(own.get(f"/v1/tables/{job['result']['table']}"))
    assert table["provenance"]["constraints"] == {
        "forbidden": ["binomial"],
        "rules": 9,
        "reproducible": True,
        "commutative_only": True,
    }
    assert {rule["choice"]["algorithm"] for rule in table["rules"]} == {"default"}


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        (
            {"kind": "tune", "constraints": {"excluded_algorithms": ["default"]}},
            "default cannot be excluded",
        ),
        ({"kind": "tune", "constraints": {"max_rules": 0}}, "greater than or equal to 1"),
        ({"kind": "tune", "constraints": {"excluded_algorithms": ["a b"]}}, "match pattern"),
        ({"kind": "tune", "constraints": {"forbidden": ["ring"]}}, "forbidden"),
        ({"kind": "calibrate", "constraints": {"max_rules": 3}}, "constraints are for a table"),
    ],
)
def test_constraints_that_cannot_be_met_are_refused_at_once(
    own: httpx.Client, wanted: dict[str, Any], sentence: str
) -> None:
    source = good(own.post("/v1/measurements", content=probe_file()), 201)["id"]
    answer = own.post("/v1/jobs", json={"measurements": source, **wanted})
    problem(answer, 422)
    assert sentence in answer.text


def test_a_forbidden_algorithm_that_was_not_measured_fails_the_job(
    own: httpx.Client, file_url: str
) -> None:
    source = good(own.post("/v1/measurements", content=probe_file()), 201)["id"]
    wanted = {
        "kind": "tune",
        "measurements": source,
        "constraints": {"excluded_algorithms": ["binomail"]},
    }
    number = good(own.post("/v1/jobs", json=wanted), 202)["id"]
    with running(file_url):
        job = ended(own, number)
    assert job["state"] == "failed"
    assert "'binomail' is not an algorithm of what is measured" in job["error"]
