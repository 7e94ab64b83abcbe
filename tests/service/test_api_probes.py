"""Probes that the service runs itself: real ranks, watched and cancelled while they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.serving import good, problem, running, served, token
from tests.support.reported import swept_measurements
from tests.support.stored import measurements_file
from tests.support.waiting import until
from tuner import db
from tuner.api.settings import Settings
from tuner.base.errors import InputError
from tuner.base.processes import pids_with_arguments
from tuner.jobs import probe
from tuner.jobs.kinds import JobReport
from tuner.launch import Launcher

SMALL = {"ranks": 2, "budget": 40.0, "collectives": ["bcast"], "sizes": [64, 4096]}
ENDED = ("done", "failed", "cancelled")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(database=f"sqlite:///{tmp_path / 'tuner.sqlite'}", measures=True)


@contextmanager
def measuring(settings: Settings) -> Iterator[httpx.Client]:
    with served(settings) as client, running(settings.database, settings.job_kinds):
        yield client


def job(client: httpx.Client, number: int) -> dict[str, Any]:
    return dict(good(client.get(f"/v1/jobs/{number}")))


def log(client: httpx.Client, number: int) -> list[dict[str, Any]]:
    return list(good(client.get(f"/v1/jobs/{number}/log"))["items"])


@pytest.mark.slow
def test_a_probe_measures_and_makes_a_table(settings: Settings, launcher: Launcher) -> None:
    with measuring(settings) as client:
        number = good(client.post("/v1/probes", json=SMALL), 202)["id"]
        until(lambda: job(client, number)["state"] in ENDED)
        done = job(client, number)
        assert (done["state"], done["error"]) == ("done", None)
        data = [entry["data"] for entry in log(client, number) if entry["data"]]
        planned = [call for one in data for call in one.get("next", [])]
        measured = [call for one in data for call in one.get("measured", [])]
        bounds = [one["bound"] for one in data if "bound" in one]
        assert {call["nbytes"] for call in planned} >= {64, 4096}
        assert all(bound["upper"] >= bound["expected"] for bound in bounds)
        assert {call["collective"] for call in measured} == {"bcast"}
        assert all(call["seconds"] > 0 for call in measured)
        table = good(client.get(f"/v1/tables/{done['result']['table']}"))
        assert table["library"] == launcher.version()
        source = done["result"]["measurements"]
        assert good(client.get(f"/v1/measurements/{source}"))["series"] > 0


def test_a_probe_for_another_computer_is_not_run(settings: Settings) -> None:
    report = JobReport(lambda *_: None, lambda *_: None)
    with pytest.raises(InputError, match="is for elsewhere"):
        probe.work(db.open_database(settings.database), {"cluster": "elsewhere", **SMALL}, report)


@pytest.mark.slow
@pytest.mark.usefixtures("launcher")
def test_a_cancelled_probe_ends_its_ranks(settings: Settings) -> None:
    with measuring(settings) as client:
        others = ranks_of_probes()
        number = good(client.post("/v1/probes", json={**SMALL, "budget": 600.0}), 202)["id"]
        own = until(lambda: ranks_of_probes() - others)
        good(client.post(f"/v1/jobs/{number}/cancel"), 202)
        until(lambda: job(client, number)["state"] == "cancelled")
        until(lambda: not own & ranks_of_probes())


def ranks_of_probes() -> set[int]:
    return pids_with_arguments("tuner.rank_programs.probe")


def test_only_a_service_that_may_measures(settings: Settings) -> None:
    with served(Settings(database=settings.database)) as client:
        said = problem(client.post("/v1/probes", json=SMALL), 403)
        assert said.endswith("its operator allows it with `tuner serve --measure`")
        assert not good(client.get("/v1/probes/target"))["is_allowed"]
    with served(settings) as client:
        target = good(client.get("/v1/probes/target"))
        assert target["is_allowed"]
        too_many = {**SMALL, "ranks": target["max_ranks"] + 1}
        problem(client.post("/v1/probes", json=too_many), 422)
        problem(client.post("/v1/probes", json={**SMALL, "budget": 1e9}), 422)


def test_who_may_only_read_starts_no_probe(settings: Settings) -> None:
    guarded = Settings(database=settings.database, measures=True, require_tokens=True)
    reader = token(settings.database, "reader", "read")
    with served(guarded) as client:
        problem(client.post("/v1/probes", json=SMALL, headers=reader), 403)
        good(client.get("/v1/probes/target", headers=reader))


def test_a_runner_that_may_not_measure_leaves_probes_alone(settings: Settings) -> None:
    with served(settings) as client, running(settings.database):
        number = good(client.post("/v1/probes", json=SMALL), 202)["id"]
        other = good(
            client.post("/v1/measurements", content=measurements_file_of_pairs(settings)), 201
        )["id"]
        wanted = {"kind": "calibrate", "measurements": other}
        later = good(client.post("/v1/jobs", json=wanted), 202)["id"]
        until(lambda: job(client, later)["state"] in ENDED)
        assert job(client, number)["state"] == "queued"


def test_slow_pairs_of_hosts_are_told(settings: Settings) -> None:
    with served(settings) as client:
        number = good(
            client.post("/v1/measurements", content=measurements_file_of_pairs(settings)), 201
        )["id"]
        found = good(client.get(f"/v1/measurements/{number}/hosts"))
    assert found["hosts"] == ["n0", "n1", "n2", "n3"]
    assert found["notes"] == ["n1 and n2 are slow with each other at 8B: 6us, usual is 2us"]
    assert len(found["pairs"]) == 6
    (slow,) = (pair for pair in found["pairs"] if pair["is_slow"])
    assert (slow["first"], slow["second"], slow["nbytes"]) == (1, 2, 8)
    assert (slow["seconds"], slow["usual_seconds"]) == pytest.approx((6e-6, 2e-6))


def test_pairs_and_hosts_that_say_nothing_are_left_out(settings: Settings) -> None:
    odd = swept_measurements()
    series = tuple(replace(one, params={"first": 0}) for one in odd.series)
    path = Path(settings.database.removeprefix("sqlite:///")).with_suffix(".ndjson")
    about = {"hosts": 4, "notes": [None]}
    sent = measurements_file(path, replace(odd, series=series, provenance=about)).read_bytes()
    with served(settings) as client:
        number = good(client.post("/v1/measurements", content=sent), 201)["id"]
        found = good(client.get(f"/v1/measurements/{number}/hosts"))
    assert found == {"hosts": [], "pairs": [], "notes": []}


def measurements_file_of_pairs(settings: Settings) -> bytes:
    """A probe of four hosts of which each met all others."""
    return measurements_file(
        Path(settings.database.removeprefix("sqlite:///")).with_suffix(".ndjson"),
        swept_measurements(),
    ).read_bytes()
