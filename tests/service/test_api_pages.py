"""The pages for browsers: who gets them, what their headers allow, and how a browser logs in."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import pytest
from anyio import CapacityLimiter

from tests.service.serving import good, problem, served, token
from tests.support.waiting import patience
from tuner.api import live_answers
from tuner.api.answer_cache import ENTRY_BYTES, AnswerCache
from tuner.api.pages import PAGE_HEADERS
from tuner.api.service import MAX_OPEN_ANSWERS, AwaitedAnswers
from tuner.api.settings import Settings
from tuner.api.workers import WorkerPool
from tuner.base.giving_up import go_on
from tuner.sim.warmup import simulate_examples
from tuner.studio import assets
from tuner.studio.assets import PAGES
from tuner.whatif.study_runner import run_study
from tuner.whatif.study_spec import FileResolver, study_from_record

SCRIPT = {"X-Tuner-Studio": "1"}
BROWSER = {"Accept": "text/html,application/xhtml+xml"}
NUMBERS = count()
CLUSTER = {"name": "c", "nodes": 1, "cores": 1}
COMPILATION_S = 30.0  # of a quiet machine, for which the first answer may wait


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service whose answers need not wait until the simulation is compiled."""
    simulate_examples()
    with served(Settings(database=new_database(tmp_path_factory))) as client:
        client.timeout = patience(COMPILATION_S)
        yield client


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The database of the service that asks for tokens, of which there is one."""
    url = new_database(tmp_path_factory)
    token(url, "first", "read")
    return url


@pytest.fixture(scope="module")
def service(database: str) -> Iterator[httpx.Client]:
    with served(Settings(database=database, require_tokens=True)) as client:
        yield client


@pytest.fixture
def guarded(service: httpx.Client) -> Iterator[httpx.Client]:
    """A browser that has not logged in at a service that asks for tokens."""
    with httpx.Client(base_url=service.base_url, timeout=patience(), trust_env=False) as client:
        yield client


def new_database(folders: pytest.TempPathFactory) -> str:
    return f"sqlite:///{folders.mktemp('pages') / 'tuner.sqlite'}"


def log_in(client: httpx.Client, database: str, *scopes: str) -> None:
    made = token(database, f"t{next(NUMBERS)}", *scopes)["Authorization"].split()[1]
    sent = client.post("/studio/session", json={"token": made}, headers=SCRIPT)
    assert sent.status_code == 204, sent.text


def files_of(page: httpx.Response) -> list[str]:
    """The addresses of the files that a page names."""
    return sorted(set(re.findall(r'(?:src|href)="([^"]+)"', page.text)))


def script_of(client: httpx.Client) -> str:
    """The address of the studio's first script."""
    (found,) = (url for url in files_of(client.get("/studio/")) if url.endswith("/studio.js"))
    return found


def test_files_are_compressed_for_those_who_read_that(client: httpx.Client) -> None:
    url = script_of(client)
    for accepted, encoding in (("gzip, br", "gzip"), ("identity", None), ("gzip;q=0", None)):
        with client.stream("GET", url, headers={"Accept-Encoding": accepted}) as sent:
            raw = b"".join(sent.iter_raw())
        assert sent.headers.get("content-encoding") == encoding
        assert sent.headers["vary"] == "Accept-Encoding"
        written = (assets.PAGES_DIR / "studio.js").read_bytes()
        assert (gzip.decompress(raw) if encoding else raw) == written


def test_a_browser_is_sent_to_the_studio_and_a_program_is_not(client: httpx.Client) -> None:
    sent = client.get("/", headers=BROWSER)
    assert (sent.status_code, sent.headers["location"]) == (307, "/studio/")
    assert "nothing is at this path" in problem(client.get("/"), 404)


def test_pages_and_their_files_have_headers_that_forbid_everything_else(
    client: httpx.Client,
) -> None:
    for path in ("/studio/", "/studio/what-if", "/studio/login", "/docs", script_of(client)):
        sent = client.get(path)
        assert sent.status_code == 200, path
        assert sent.headers.items() >= {k.lower(): v for k, v in PAGE_HEADERS.items()}.items()
        assert "unsafe" not in sent.headers["content-security-policy"]
        again = client.get(path, headers={"If-None-Match": sent.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("path", ["/studio/", *(f"/studio/{name}" for name in PAGES), "/docs"])
def test_a_page_names_files_that_browsers_may_keep(client: httpx.Client, path: str) -> None:
    """The files of a page change their address with their content; the page itself is asked for."""
    page = client.get(path)
    assert page.headers["cache-control"] == "no-cache"
    files = files_of(page)
    assert len(files) > 5
    for url in files:
        sent = client.get(url)
        assert sent.status_code == 200, url
        assert "immutable" in sent.headers["cache-control"], url


def test_the_rate_limit_counts_pages_and_not_their_files(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'tuner.sqlite'}"
    with served(Settings(database=database, rate_limit=1e-4)) as client:
        files = files_of(client.get("/studio/"))
        assert len(files) > 5
        for url in files:
            assert client.get(url).status_code == 200, url
        assert "requests per second" in problem(client.get("/studio/"), 429)


@pytest.mark.parametrize(
    "path",
    [
        "/studio/none",
        "/studio/..%2fassets.py",
        "/studio/a/../../x",
        "/studio/docs",
        "/studio/files",
    ],
)
def test_other_paths_are_problems(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 404


def test_the_pages_are_public_and_the_data_is_not(guarded: httpx.Client) -> None:
    assert guarded.get("/studio/").status_code == 200
    session = good(guarded.get("/studio/session"))
    assert (session["needs_token"], session["client"], session["scopes"]) == (True, None, [])
    assert guarded.get("/v1/clusters").status_code == 401
    assert guarded.get("/v1/what-if/catalogue").status_code == 401


def test_a_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_have(
    guarded: httpx.Client, database: str
) -> None:
    made = token(database, "reader", "read")["Authorization"].split()[1]
    sent = guarded.post("/studio/session", json={"token": made}, headers=SCRIPT)
    assert (sent.status_code, sent.content) == (204, b"")
    attributes = sent.headers["set-cookie"].lower()
    assert "httponly" in attributes
    assert "samesite=strict" in attributes
    assert "max-age" not in attributes
    session = good(guarded.get("/studio/session"))
    assert (session["client"], session["scopes"]) == ("reader", ["read"])
    good(guarded.get("/v1/clusters"))
    assert "lacks the scope submit" in problem(
        guarded.post("/v1/clusters", json=CLUSTER, headers=SCRIPT), 403
    )
    assert guarded.delete("/studio/session", headers=SCRIPT).status_code == 204
    assert guarded.get("/v1/clusters").status_code == 401


def test_a_wrong_token_is_refused(guarded: httpx.Client) -> None:
    sent = guarded.post("/studio/session", json={"token": "tuner_none"}, headers=SCRIPT)
    assert "unknown or revoked" in problem(sent, 401)
    assert "set-cookie" not in sent.headers


@pytest.mark.parametrize(
    "headers", [{}, {**SCRIPT, "Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-origin"}]
)
def test_with_a_session_only_the_pages_own_scripts_change_something(
    guarded: httpx.Client, database: str, headers: dict[str, str]
) -> None:
    log_in(guarded, database, "read", "submit")
    before = good(guarded.get("/v1/clusters"))
    text = problem(guarded.post("/v1/clusters", json=CLUSTER, headers=headers), 403)
    assert "only the pages of this service" in text
    assert good(guarded.get("/v1/clusters")) == before
    log_in_elsewhere = guarded.post("/studio/session", json={"token": "x"}, headers=headers)
    assert log_in_elsewhere.status_code == 403
    own = {**SCRIPT, "Sec-Fetch-Site": "same-origin"}
    name = f"c{next(NUMBERS)}"
    good(guarded.post("/v1/clusters", json=CLUSTER | {"name": name}, headers=own), 201)


def test_a_session_that_has_ended_still_gets_the_page_to_log_in(
    guarded: httpx.Client, database: str
) -> None:
    guarded.cookies.set("tuner_session", "tuner_revoked", domain="127.0.0.1")
    assert guarded.get("/studio/login").status_code == 200
    assert good(guarded.get("/studio/session"))["client"] is None
    assert "unknown or revoked" in problem(guarded.get("/v1/clusters"), 401)
    log_in(guarded, database, "read")
    good(guarded.get("/v1/clusters"))


def test_a_header_counts_more_than_a_cookie(guarded: httpx.Client, database: str) -> None:
    log_in(guarded, database, "read")
    guarded.headers.update(token(database, "writer", "read", "submit"))
    assert guarded.post("/v1/clusters", json=CLUSTER).status_code in (200, 201)


QUESTION: dict[str, Any] = {
    "topology": "preset:comet",
    "axes": {"nodes": 2, "ppn": 2},
    "collective": "bcast",
    "sizes": [1024, 1048576],
}


def not_ready() -> bool:
    return False


def ask(client: httpx.Client, **changes: Any) -> list[dict[str, Any]]:
    sent = client.post("/v1/what-if", json=QUESTION | changes)
    assert sent.status_code == 200, sent.text
    assert sent.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in sent.text.splitlines()]


@pytest.mark.slow
def test_an_answer_grows_line_by_line_and_is_kept(client: httpx.Client) -> None:
    begun, outline, *middle, end = ask(client)
    assert begun == {"kind": "begun"}
    assert outline["kind"] == "outline"
    assert (outline["nodes"], outline["ppn"], outline["sizes"]) == (2, 2, QUESTION["sizes"])
    times = [line for line in middle if line["kind"] == "times"]
    gains = [line for line in middle if line["kind"] == "gains"]
    assert times[-1]["done"] == 1.0
    assert {line["resource"] for line in gains} == set(outline["resources"])
    assert end == {"kind": "end", "skipped": []}
    assert ask(client) == [outline, *middle, end]  # the answer is known


def test_where_too_many_answers_are_open_others_come_later(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.api.routes.what_if.MAX_SENT_ANSWERS", 0)
    asked = QUESTION | {"sizes": [6144]}
    assert "ask again soon" in problem(client.post("/v1/what-if", json=asked), 503)


@pytest.mark.slow
def test_the_schedules_of_an_earlier_answer_come_first(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_answers, "MAX_LANES", 1)  # of two, either may be the first
    labels = order_of_labels(ask(client, axes={"nodes": 3, "ppn": 2}))
    changed = ask(client, axes={"nodes": 3, "ppn": 2, "nics": 2}, first=[labels[-1]])
    assert labels[-1] in order_of_labels(changed)[:2]  # beside the cheapest one


def order_of_labels(lines: list[dict[str, Any]]) -> list[str]:
    return [task["label"] for line in lines for task in line.get("tasks", ())]


@pytest.mark.slow
def test_an_answer_begins_with_a_time_at_every_size(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that there is a curve at once, whatever else is to be priced."""
    monkeypatch.setattr(live_answers, "MAX_LANES", 1)
    sizes = [4 << power for power in range(20)]
    lines = ask(client, axes={"nodes": 4, "ppn": 2}, sizes=sizes)
    first = next(line for line in lines if line.get("tasks"))
    assert first["tasks"][0]["sizes"] == list(range(len(sizes)))


@pytest.mark.slow
def test_the_times_are_those_of_a_study(client: httpx.Client) -> None:
    """The best variant of each algorithm at each size, whatever was left out of the answer."""
    changes = {"topology": "preset:dgx-h100", "collective": "allreduce", "sizes": [4096, 4 << 20]}
    lines = ask(client, axes={"nodes": 4, "ppn": 8, "nics": 4}, **changes)
    record = {"name": "same", "topology": "preset:dgx-h100", "collectives": ["allreduce"]}
    vary = {"nodes": [4], "ppn": [8], "nics": [4]}
    study = study_from_record(
        {**record, "sizes": changes["sizes"], "vary": vary}, FileResolver(Path())
    )
    expected = dict[tuple[int, str], float]()
    for number, point in enumerate(run_study(study).points):
        for one in point.candidates:
            key = number, one.algorithm
            expected[key] = min(one.seconds, expected.get(key, one.seconds))
    found = dict[tuple[int, str], float]()
    for task in (task for line in lines for task in line.get("tasks", ())):
        for number, seconds in zip(task["sizes"], task["seconds"], strict=True):
            key = number, task["algorithm"]
            found[key] = min(seconds, found.get(key, seconds))
    assert found == expected


@pytest.mark.slow
def test_what_was_asked_ahead_is_there_when_it_is_asked_again(client: httpx.Client) -> None:
    axes = {"nodes": 5, "ppn": 2}
    begun, *ahead = ask(client, axes=axes, ahead=True)
    assert begun == {"kind": "begun"}
    assert ask(client, axes=axes) == ahead  # no work has begun for it


def test_an_answer_ahead_waits_for_those_that_are_awaited() -> None:
    """The time in which it waits is no work on it."""

    async def compute() -> list[str]:
        service, done = mock.Mock(awaited=AwaitedAnswers(), workers=None), list[str]()
        service.step_limiter = CapacityLimiter(1)
        ahead, asked = (
            live_answers.LiveAnswer(service, "", "", (), is_ahead) for is_ahead in (True, False)
        )
        ahead._end = asked._end = 0.0

        async def step(answer: live_answers.LiveAnswer, name: str) -> None:
            await answer._on_worker(lambda _: done.append(name))

        with service.awaited:
            waiting = asyncio.create_task(step(ahead, "ahead"))
            for number in range(3):
                await step(asked, f"asked {number}")
            assert not waiting.done()
        await waiting
        assert ahead._end > asked._end == 0.0
        return done

    assert asyncio.run(compute()) == ["asked 0", "asked 1", "asked 2", "ahead"]


@pytest.mark.slow
def test_a_step_that_is_given_up_ends_and_leaves_its_worker_to_the_next(tmp_path: Path) -> None:
    async def give_up() -> tuple[int, int]:
        service = mock.Mock(workers=WorkerPool(), step_limiter=CapacityLimiter(1))
        try:
            mark = tmp_path / "worker"
            step = asyncio.create_task(live_answers.run_step(service, never_ending, str(mark)))
            while not (mark.is_file() and mark.read_text()):
                await asyncio.sleep(0)
            step.cancel()
            with pytest.raises(asyncio.CancelledError):
                await step
            return int(mark.read_text()), await live_answers.run_step(service, os.getpid)
        finally:
            service.workers.close()

    first, second = asyncio.run(give_up())
    assert first == second


def never_ending(mark: str) -> None:
    """Leave the number of this process in a file, and compute until that is given up."""
    Path(mark).write_text(str(os.getpid()))
    while True:
        go_on()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"topology": "7"}, "7"),
        ({"topology": "/etc/passwd"}, "is not an id"),
        ({"axes": {"nodes": 0}}, "greater than 0"),
        ({"sizes": []}, "sizes"),
    ],
)
def test_what_is_no_question_is_one_sentence(
    client: httpx.Client, changes: dict[str, Any], sentence: str
) -> None:
    assert sentence in problem(client.post("/v1/what-if", json=QUESTION | changes), 422)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"topology": "preset:none"}, "unknown preset 'none'"),
        ({"axes": {"colour": "red"}}, "colour"),
        ({"axes": {"taper": 4}, "topology": "preset:piz-daint"}, "taper"),
        ({"algorithms": ["none"]}, "none"),
    ],
)
def test_a_question_without_an_answer_ends_with_one_sentence(
    client: httpx.Client, changes: dict[str, Any], sentence: str
) -> None:
    begun, end = ask(client, **changes)
    assert (begun["kind"], end["kind"], end["status"]) == ("begun", "problem", 422)
    assert sentence in end["detail"]


@pytest.mark.slow
def test_answers_that_nobody_reads_keep_no_other_waiting(client: httpx.Client) -> None:
    url = f"{client.base_url}/v1/what-if"
    with ExitStack() as unread:
        for latency in range(1, MAX_OPEN_ANSWERS + 2):
            asked = QUESTION | {"axes": {"nodes": 2, "ppn": 1, "latency": f"{latency}us"}}
            unread.enter_context(client.stream("POST", url, json=asked))
        assert ask(client, sizes=[4096])[-1]["kind"] == "end"


@pytest.mark.slow
def test_what_must_be_compiled_first_is_said(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_answers, "_is_ready", not_ready)
    begun, compiling, outline, *_ = ask(client, sizes=[2048])
    assert [line["kind"] for line in (begun, compiling, outline)] == [
        "begun",
        "compiling",
        "outline",
    ]


def test_a_machine_says_what_can_be_varied(client: httpx.Client) -> None:
    machine = good(client.get("/v1/what-if/machine", params={"topology": "preset:dgx-a100"}))
    assert (machine["nodes"], machine["gpus"], machine["line_rate"]) == (140, 8, 25e9)
    assert {"nodes", "ppn", "bandwidth", "latency", "taper", "gpu"} <= set(machine["axes"])
    flat = "name: flat4\nnodes: 4\nlatency: 2us\nbandwidth: 12.5GB/s\n"
    stored = good(client.post("/v1/topologies", content=flat), 201)
    own = good(client.get("/v1/what-if/machine", params={"topology": str(stored["id"])}))
    assert (own["name"], own["nodes"], own["latency"], own["taper"]) == ("flat4", 4, 2e-6, None)
    assert own["axes"] == ["nodes", "ppn", "latency", "bandwidth", "placement"]


def test_the_catalogue_names_machines_collectives_and_algorithms(client: httpx.Client) -> None:
    catalogue = good(client.get("/v1/what-if/catalogue"))
    assert {"topology": "preset:summit", "title": "Summit, IBM AC922"} in catalogue["machines"]
    assert "ring" in catalogue["algorithms"]["allreduce"]


def test_the_kept_answers_and_their_questions_stay_below_a_bound() -> None:
    cache = AnswerCache(max_bytes=10 * ENTRY_BYTES)
    for number in range(20):
        cache.add(f"question {number}", b"")
    kept = [number for number in range(20) if cache.get(f"question {number}") is not None]
    assert kept == list(range(11, 20))
    cache.add("large", bytes(6 * ENTRY_BYTES))
    assert cache.get("large") is None
    assert cache.get("question 19") == b""


def test_pages_that_are_loaded_often_warm_up_one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    async def run(_service: Any, load: Any) -> None:
        begun.append(load)
        await asyncio.sleep(0)

    async def load_pages() -> None:
        service = mock.Mock(tasks={})
        for _ in range(5):
            live_answers.start_warm_up(service, live_answers.price_small_study)
        while service.tasks:
            await asyncio.sleep(0)
        live_answers.start_warm_up(service, live_answers.price_small_study)
        await asyncio.sleep(0)

    monkeypatch.setattr(live_answers, "run_long", run)
    asyncio.run(load_pages())
    assert len(begun) == 2
