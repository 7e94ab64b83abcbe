"""Figures, checks, calls with their reasons and native formats of a table, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine

from tests.service.serving import LIBRARY, a_table, good, probe_file, problem, running, served
from tests.support.waiting import until
from tuner import db
from tuner.api.settings import Settings
from tuner.formats.registry import FORMATS

CALL: dict[str, Any] = {"collective": "bcast", "nodes": 1, "ppn": 4}
VALIDATION: dict[str, Any] = {
    "collective": "bcast",
    "p": 4,
    "nbytes": 4096,
    "expected": "binomial",
    "executed": "binomial",
    "confirmed": True,
    "reason": "",
}
HELDOUT: dict[str, Any] = {
    "collective": "bcast",
    "p": 4,
    "nbytes": 3000,
    "algorithm": "binomial",
    "default_s": 3e-5,
    "tuned_s": 2e-5,
    "ratio": 1.5,
    "ci95": [1.4, 1.6],
}


@pytest.fixture
def client(database_url: str) -> Iterator[httpx.Client]:
    with served(Settings(database=database_url)) as client:
        yield client


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'tuner.sqlite'}"


@pytest.fixture
def own(database: str) -> Iterator[httpx.Client]:
    """A service on SQLite, for what does not depend on the database."""
    with served(Settings(database=database)) as client:
        yield client


def with_evidence(basis: str = "measured") -> dict[str, Any]:
    """A table whose rule from 1 KiB on has times at two sizes."""
    record = a_table()
    record["rules"][1]["evidence"] |= {
        "basis": basis,
        "nbytes": [2048, 8192],
        "default_s": [2e-5, 4e-5],
        "chosen_s": [1e-5, 2e-5],
        "gain": 2.0,
        "gain_ci95": [1.8, 2.2],
        "runner_up": "chain",
    }
    return record


def stored(client: httpx.Client, record: dict[str, Any]) -> int:
    return int(good(client.post("/v1/tables", json=record), 201)["version"])


def test_a_table_in_a_few_figures(own: httpx.Client) -> None:
    version = stored(own, with_evidence())
    found = good(own.get(f"/v1/tables/{version}/overview"))
    assert (found["rules"], found["changing"]) == (2, 1)
    (call,) = found["calls"]
    assert (call["collective"], call["nodes"], call["ppn"]) == ("bcast", 1, 4)
    assert (call["sizes"], call["changed"], call["measured"]) == ([2048, 8192], 2, 2)
    assert call["gain"] == found["gain"] == pytest.approx(2.0)
    assert (found["proved"], found["compared"], found["validated"]) == (None, 0, 0)
    assert "calls were 2.00 times as fast in the measurements" in found["outcome"]
    assert "over 2 calls" in found["outcome"]
    assert (found["bases"]["measured"], found["changing_bases"]) == (2, {"measured": 1})
    expected = good(own.get(f"/v1/tables/{stored(own, with_evidence('learned'))}/overview"))
    assert (expected["gain"], expected["calls"][0]["measured"]) == (1.0, 0)
    assert expected["calls"][0]["gain"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("slow", "fast"), [(1e308, 5e-324), (5e-324, 1e308), (0.0, 1.0), ("inf", "inf")]
)
def test_strange_times_do_not_spoil_the_figures(own: httpx.Client, slow: Any, fast: Any) -> None:
    record = with_evidence()
    record["rules"][1]["evidence"] |= {"default_s": [slow] * 2, "chosen_s": [fast] * 2}
    version = stored(own, record)
    assert good(own.get(f"/v1/tables/{version}/overview"))["gain"] == 1.0
    good(own.get(f"/v1/tables/{version}/call", params=CALL))


def test_the_checks_that_a_table_underwent(client: httpx.Client, engine: Engine) -> None:
    version = stored(client, with_evidence())
    empty: dict[str, Any] = {"validations": [], "heldout": []}
    assert good(client.get(f"/v1/tables/{version}/checks")) == empty
    with db.transaction(engine) as session:
        db.store_validations(session, version, [VALIDATION])
        db.store_heldout(session, version, [HELDOUT])
    found = good(client.get(f"/v1/tables/{version}/checks"))
    assert found == {"validations": [VALIDATION], "heldout": [HELDOUT]}
    overview = good(client.get(f"/v1/tables/{version}/overview"))
    assert overview["proved"] == pytest.approx([1.5, 1.4, 1.6])
    assert overview["compared"] == 1
    assert (overview["validated"], overview["confirmed"]) == (1, 1)
    assert "1.50 times as fast" in overview["outcome"]


@pytest.mark.slow
@pytest.mark.representative("0")
@pytest.mark.parametrize("inline", [0, 100])
def test_a_call_of_a_table_that_the_service_made(
    own: httpx.Client, database: str, inline: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.api.routes.evidence.MAX_INLINE_SERIES", inline)
    source = good(own.post("/v1/measurements", content=probe_file()), 201)["id"]
    job = good(own.post("/v1/jobs", json={"kind": "tune", "measurements": source}), 202)["id"]
    with running(database):
        until(lambda: good(own.get(f"/v1/jobs/{job}"))["ended_at"])
    version = good(own.get(f"/v1/jobs/{job}"))["result"]["table"]
    found = good(own.get(f"/v1/tables/{version}/call", params=CALL))
    assert found["measurements_id"] == source
    table = good(own.get(f"/v1/tables/{version}"))
    bounds = [(each["start_bytes"], each["stop_bytes"]) for each in table["rules"]]
    assert [(each["start_bytes"], each["stop_bytes"]) for each in found["rules"]] == bounds
    why = {each["choice"]["algorithm"]: each["why"] for each in found["rules"]}
    assert why["binomial"].startswith("Measured at")
    small = [each for each in found["candidates"] if each["nbytes"] == 64]
    assert [each["name"] for each in small] == ["binomial", "default"]
    assert small[0]["samples"] == 20
    assert small[0]["is_faster"]
    assert small[0]["gain"] == pytest.approx(1.97, rel=0.1)
    again = own.get(f"/v1/tables/{version}/call", params=CALL)
    assert good(again) == found


def test_a_call_without_measurements_or_rules_has_reasons_all_the_same(own: httpx.Client) -> None:
    version = stored(own, with_evidence())
    found = good(own.get(f"/v1/tables/{version}/call", params=CALL))
    assert (found["measurements_id"], found["candidates"]) == (None, [])
    assert "2.00 times as fast" in found["rules"][1]["why"]
    safe = good(own.get(f"/v1/tables/{version}/call", params={**CALL, "operators": "commutative"}))
    assert safe["rules"] == found["rules"]
    (unknown,) = good(own.get(f"/v1/tables/{version}/call", params={**CALL, "ppn": 7}))["rules"]
    assert (unknown["choice"]["algorithm"], unknown["stop_bytes"]) == ("default", "inf")


@pytest.mark.parametrize("library", [LIBRARY, "mpich 5.0.1", "nccl 2.27.0", "ucc 1.4.0", "other 1"])
def test_the_formats_of_a_library_and_how_to_use_them(own: httpx.Client, library: str) -> None:
    record = a_table("ring", library)
    record["rules"] = record["rules"][:1]
    record["rules"][0]["stop_bytes"] = "inf"
    version = stored(own, record)
    found = good(own.get(f"/v1/tables/{version}/formats"))
    name = library.partition(" ")[0]
    known = [form for form in FORMATS.values() if name in form.libraries]
    assert [each["name"] for each in found] == [form.name for form in known]
    for each in found:
        assert each["file"] in each["command"]
        assert set(each["options"]) <= {"operators", "ranks", "fallback_algorithm"}


def test_a_file_says_which_rules_it_leaves_out(own: httpx.Client) -> None:
    record = a_table("binomial", LIBRARY)
    (first, *_) = record["rules"]
    key = {**first["key"], "collective": "allreduce"}
    default = {**first, "key": key, "stop_bytes": "inf", "choice": {"algorithm": "default"}}
    safe = {**key, "operators": "commutative"}
    record["rules"] += [default, {**default, "key": safe, "choice": {"algorithm": "ring"}}]
    path = f"/v1/tables/{stored(own, record)}/formats"
    files = {each["name"]: each for each in good(own.get(path))}
    ring = "allreduce on 1x4 ranks, all sizes: ring, for commutative operators alone"
    assert (files["openmpi"]["file"], files["openmpi"]["left_out"]) == ("openmpi.rules", [ring])
    chosen = {each["name"]: each for each in good(own.get(f"{path}?operators=commutative"))}
    assert chosen["openmpi"]["file"] == "openmpi-commutative.rules"
    assert chosen["openmpi"]["file"] in chosen["openmpi"]["command"]
    assert (chosen["openmpi"]["left_out"], chosen["openmpi"]["refusal"]) == ([], "")
    assert "--format openmpi)" in files["openmpi-json"]["refusal"]
    problem(own.get(f"{path}?operators=none"), 422)


@pytest.mark.parametrize("part", ["overview", "checks", "formats", "call"])
def test_an_unknown_version_is_a_problem(own: httpx.Client, part: str) -> None:
    params = CALL if part == "call" else {}
    assert "no tuning table" in problem(own.get(f"/v1/tables/9/{part}", params=params), 404)
