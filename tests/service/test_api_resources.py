"""What is stored comes back, what cannot be used is refused in one sentence: on both databases."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.service.serving import a_study, a_table, good, probe_file, problem, publish, served
from tuner import algorithms
from tuner.api.routes import calibrations, measurements, tables
from tuner.api.settings import Settings
from tuner.core.collective import Collective
from tuner.machines.catalog import preset_record
from tuner.machines.loader import load_machine
from tuner.sim import simulate
from tuner.topology import Placement

FLAT = "name: flat8\nnodes: 8\nlatency: 2us\nbandwidth: 12.5GB/s\n"
TWO_GPUS = "\tGPU0\tGPU1\nGPU0\tX\tNV2\nGPU1\tNV2\tX\n"
LATER = (
    "separate_network_port",
    "striping_threshold",
    "pointer_query_seconds",
)  # not in records of the first release
CLUSTER = {"name": "ares", "nodes": 2, "cores": 8, "cpu": "some", "memory": 1 << 40}


@pytest.fixture
def client(database_url: str) -> Iterator[httpx.Client]:
    with served(Settings(database=database_url)) as client:
        yield client


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """One service for all that must not be stored: it stays empty."""
    file = tmp_path_factory.mktemp("refusing") / "tuner.sqlite"
    with served(Settings(database=f"sqlite:///{file}")) as client:
        yield client


def test_a_cluster_is_stored_once(client: httpx.Client) -> None:
    stored = good(client.post("/v1/clusters", json=CLUSTER), 201)
    assert stored == {**CLUSTER, "id": stored["id"]}
    assert good(client.post("/v1/clusters", json=CLUSTER)) == stored
    assert good(client.get("/v1/clusters")) == {"items": [stored], "next": None}
    assert good(client.get(f"/v1/clusters/{stored['id']}")) == stored
    assert "no cluster 99" in problem(client.get("/v1/clusters/99"), 404)


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({**CLUSTER, "nodes": 0}, "body.nodes"),
        ({**CLUSTER, "nodes": "2"}, "body.nodes"),
        ({**CLUSTER, "name": "a\0b"}, "body.name"),
        ({**CLUSTER, "memory": 2**70}, "body.memory"),
        ({**CLUSTER, "speed": 1}, "body.speed"),
        ([], "body"),
    ],
)
def test_a_fault_is_named_by_its_place(refusing: httpx.Client, body: Any, place: str) -> None:
    response = refusing.post("/v1/clusters", json=body)
    assert problem(response, 422).startswith(f"{place}: ")
    assert response.json()["errors"][0]["location"] == place


def test_what_curl_sends_by_itself_is_told_from_json(refusing: httpx.Client) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    for path in ("clusters", "jobs", "select"):
        said = problem(refusing.post(f"/v1/{path}", content=b"{}", headers=form), 422)
        assert "Content-Type: application/json" in said
    headers = {"content-type": "application/json"}
    broken = problem(refusing.post("/v1/clusters", content=b'{"name": 1,,}', headers=headers), 422)
    assert "character 11" in broken
    assert "property name" in broken


@pytest.mark.parametrize(
    "path",
    [
        "clusters?limt=1",
        "tables?clster=a",
        "jobs?status=done",
        "publications?after=0&since=1",
        "select?library=a&collective=bcast&nodes=1&ppn=1&nbytes=1&operator=commutative",
        "tables/published?library=a&form=openmpi",
        "tables/1?fromat=openmpi",
        "measurements/1/series?size=4",
    ],
)
def test_a_question_that_is_misspelt_is_not_answered(refusing: httpx.Client, path: str) -> None:
    name = path.rpartition("&")[2].rpartition("?")[2].partition("=")[0]
    assert name in problem(refusing.get(f"/v1/{path}"), 422)


def test_a_head_is_that_of_the_answer(client: httpx.Client) -> None:
    publish(client, tables.EXAMPLE)
    call = "library=openmpi&collective=bcast&nodes=1&ppn=4&nbytes=1"
    for path in (
        "/v1/health",
        "/v1/tables/1",
        f"/v1/select?{call}",
        "/v1/nothing",
        "/metrics",
        "/v1/tables/published?library=openmpi&format=openmpi",
    ):
        whole, head = client.get(path), client.head(path)
        assert (head.status_code, head.content) == (whole.status_code, b"")
        for name in ("content-type", "etag", "cache-control"):
            assert head.headers.get(name) == whole.headers.get(name)
    study = good(client.post("/v1/studies", json=a_study()), 202)["id"]
    assert client.head(f"/v1/jobs/{study}/events").status_code == 200
    counted = 'tuner_requests_total{method="HEAD",route="/v1/tables/{version}",status="200"} 1.0'
    assert counted in client.get("/metrics").text


def test_a_list_is_read_page_by_page(client: httpx.Client) -> None:
    for number in range(5):
        good(client.post("/v1/clusters", json={**CLUSTER, "name": f"c{number}"}), 201)
    names: list[str] = []
    after: int | None = 0
    while after is not None:
        page = good(client.get("/v1/clusters", params={"limit": 2, "after": after}))
        assert len(page["items"]) <= 2
        names += [item["name"] for item in page["items"]]
        after = page["next"]
    assert names == ["c0", "c1", "c2", "c3", "c4"]
    for wrong in ({"limit": 0}, {"limit": 1001}, {"after": -1}, {"limit": "many"}):
        problem(client.get("/v1/clusters", params=wrong), 422)


def test_a_topology_comes_back_as_record_and_as_source(client: httpx.Client) -> None:
    stored = good(client.post("/v1/topologies", content=FLAT), 201)
    assert (stored["name"], stored["format"]) == ("flat8", "yaml")
    assert good(client.post("/v1/topologies?format=yaml", content=FLAT)) == stored
    one = good(client.get(f"/v1/topologies/{stored['id']}"))
    assert len(one.pop("record")["nodes"]) == 8
    assert one == stored
    assert client.get(f"/v1/topologies/{stored['id']}/source").text == FLAT
    assert good(client.get("/v1/topologies"))["items"] == [stored]
    problem(client.get("/v1/topologies/99"), 404)
    problem(client.get("/v1/topologies/99/source"), 404)


@pytest.mark.parametrize(
    ("source", "known_as", "nodes"),
    [
        ("SwitchName=leaf Nodes=n[1-3]\n", "slurm", 3),
        (TWO_GPUS, "nvidia-smi", 1),
        ('<system version="1"><cpu affinity="f"/></system>', "nccl", 1),
        (
            'Ca 1 "H-1" # "n1 m0"\n[1] "H-2"[1] 4xEDR\nCa 1 "H-2" # "n2 m0"\n[1] "H-1"[1] 4xEDR\n',
            "ibnetdiscover",
            2,
        ),
    ],
)
@pytest.mark.parametrize("query", ["", "?format="])
def test_what_computers_and_fabrics_say_is_stored(
    client: httpx.Client, source: str, known_as: str, nodes: int, query: str
) -> None:
    told = query + known_as if query else ""
    stored = good(client.post(f"/v1/topologies{told}", content=source), 201)
    assert stored["format"] == known_as
    assert len(good(client.get(f"/v1/topologies/{stored['id']}"))["record"]["nodes"]) == nodes


@pytest.mark.parametrize(
    ("source", "latency"),
    [
        ("SwitchName=leaf Nodes=n[1-3]\n", 1.5e-6),
        ("name: a\nnodes: 3\nlatency: 0us\nbandwidth: 1GB/s\n", 0.0),
    ],
)
def test_latencies_are_assumed_where_nobody_has_stated_them(
    client: httpx.Client, source: str, latency: float
) -> None:
    stored = good(client.post("/v1/topologies", content=source), 201)["id"]
    assert good(client.get(f"/v1/what-if/machine?topology={stored}"))["latency"] == latency


def test_a_fabric_and_a_node_that_are_stored_are_combined(client: httpx.Client) -> None:
    fabric = good(client.post("/v1/topologies", content="SwitchName=leaf Nodes=n[1-3]\n"), 201)
    node = good(client.post("/v1/topologies", content=TWO_GPUS), 201)
    for text in (
        f"combine: {{fabric: {fabric['id']}, node: '{node['id']}', latency: 1us}}",
        f"name: whole\ncombine: {{fabric: {fabric['id']}, node: {node['id']}}}",
    ):
        stored = good(client.post("/v1/topologies", content=text), 201)
        record = good(client.get(f"/v1/topologies/{stored['id']}"))["record"]
        assert [host["node_topology"] for host in record["nodes"]] == [0, 0, 0]
        kinds = [device["kind"] for device in record["node_topologies"][0]["devices"]]
        assert kinds.count("gpu") == 2
    assert stored["name"] == "whole"
    for names, message in (
        ("{fabric: 99}", "no topology 99"),
        ("{fabric: /etc/passwd}", "is not an id"),
        ("{fabric: [1]}", "fabric"),
    ):
        assert message in problem(client.post("/v1/topologies", content=f"combine: {names}"), 422)


@pytest.mark.parametrize(
    ("source", "query"),
    [
        (b"nodes: 8", ""),
        (b"combine: {fabric: /etc/passwd, node: /etc/passwd}", ""),
        (b"\xff\xfe", ""),
        (b"name: a\0b", ""),
        (b"<?xml version='1.0'?><!DOCTYPE t [<!ENTITY a 'aa'>]><topology>&a;</topology>", ""),
        (b"a: &x [1]\nb: [*x, *x]", ""),
        (FLAT.encode(), "?format=hwloc"),
        (FLAT.encode(), "?format=../../etc/passwd"),
        (b"[" * 100_000, ""),
    ],
)
def test_what_is_no_topology_is_refused(refusing: httpx.Client, source: bytes, query: str) -> None:
    problem(refusing.post(f"/v1/topologies{query}", content=source), 422)
    assert good(refusing.get("/v1/topologies"))["items"] == []


def test_measurements_are_stored_once_and_come_back_as_they_were(client: httpx.Client) -> None:
    file = probe_file()
    stored = good(client.post("/v1/measurements", content=file), 201)
    assert (stored["cluster"], stored["library"]) == ("ares", "openmpi 5.0.11")
    assert stored["series"] == len(file.splitlines()) - 2
    assert good(client.post("/v1/measurements", content=file)) == stored
    assert good(client.get(f"/v1/measurements/{stored['id']}")) == stored
    assert client.get(f"/v1/measurements/{stored['id']}/file").text == file
    assert good(client.get("/v1/measurements?cluster=ares"))["items"] == [stored]
    assert good(client.get("/v1/measurements?cluster=hera"))["items"] == []
    for path in ("", "/file", "/series"):
        problem(client.get(f"/v1/measurements/99{path}"), 404)
    assert "tuner_ingested_series_total 1" not in client.get("/metrics").text
    assert f"tuner_ingested_series_total {stored['series']}.0" in client.get("/metrics").text


def test_series_are_found_by_what_they_are(client: httpx.Client) -> None:
    stored = good(client.post("/v1/measurements", content=probe_file()), 201)
    path = f"/v1/measurements/{stored['id']}/series"
    query: dict[str, Any] = {"collective": "bcast", "p": 4, "nbytes": 64, "algorithm": "binomial"}
    (series,) = good(client.get(path, params=query))["items"]
    assert (series["subject"], series["nbytes"], len(series["samples"])) == ("bcast", 64, 20)
    assert len(good(client.get(path, params={"collective": "bcast"}))["items"]) == 8
    problem(client.get(path, params={"collective": "bbcast"}), 422)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        measurements.EXAMPLE.encode()[:-30],
        measurements.EXAMPLE.replace("1024", "1" + "0" * 30).encode(),
        measurements.EXAMPLE.replace("1.5e-06", "NaN").encode(),
    ],
)
def test_a_damaged_upload_stores_nothing(refusing: httpx.Client, content: bytes) -> None:
    problem(refusing.post("/v1/measurements", content=content), 422)
    assert good(refusing.get("/v1/measurements"))["items"] == []


@pytest.mark.parametrize("text", ["bi\\u0000nomial", "bi\\ud800nomial"])
def test_what_only_some_databases_hold_is_no_failure(client: httpx.Client, text: str) -> None:
    content = measurements.EXAMPLE.replace("binomial", text).encode()
    assert client.post("/v1/measurements", content=content).status_code in (201, 422)


def test_a_calibration_comes_back(client: httpx.Client) -> None:
    source = good(client.post("/v1/measurements", content=probe_file()), 201)["id"]
    path = f"/v1/calibrations?measurements={source}"
    number = good(client.post(path, json=calibrations.EXAMPLE), 201)["id"]
    assert good(client.post(path, json=calibrations.EXAMPLE))["id"] == number
    older = {name: value for name, value in calibrations.EXAMPLE.items() if name not in LATER}
    assert good(client.post(path, json=older))["id"] == number
    assert good(client.get(f"/v1/calibrations/{number}")) == calibrations.EXAMPLE
    (summary,) = good(client.get("/v1/calibrations?cluster=one"))["items"]
    assert (summary["id"], summary["measurements_id"]) == (number, source)
    problem(client.get("/v1/calibrations/99"), 404)
    problem(client.post("/v1/calibrations?measurements=99", json=calibrations.EXAMPLE), 404)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"7",
        b"[" * 100_000,
        b'{"version": 1}',
        b'{"version": 1, "paths": {"a": NaN}}',
    ],
)
def test_records_that_are_none_are_refused(refusing: httpx.Client, body: bytes) -> None:
    for path in ("calibrations", "tables"):
        problem(refusing.post(f"/v1/{path}", content=body), 422)


MACHINE = yaml.safe_dump(
    {**preset_record("dgx-h100"), "nodes": {"value": 2, "source": "x", "certainty": "assumed"}}
)


@pytest.mark.representative("sqlite-preset-host", "sqlite-machine-host")
@pytest.mark.parametrize("memory", ["host", "cuda"])
@pytest.mark.parametrize(
    "content", ["{preset: dgx-h100, nodes: 2}", MACHINE], ids=["preset", "machine"]
)
def test_a_machine_that_is_stored_keeps_its_costs(
    client: httpx.Client, content: str, memory: str
) -> None:
    stored = good(client.post("/v1/topologies", content=content), 201)["id"]
    question = {
        "topology": str(stored),
        "axes": {"ppn": 8, "memory": memory},
        "collective": "allreduce",
        "algorithms": ["ring"],
        "sizes": [1 << 20],
    }
    lines = client.post("/v1/what-if", json=question).text.splitlines()
    (task,) = (task for line in map(json.loads, lines) for task in line.get("tasks", ()))
    machine = load_machine("preset:dgx-h100:2")
    ring = algorithms.build(Collective.ALLREDUCE, "ring", 16)
    placement = Placement.block(machine.topology, 8)
    expected = simulate(ring, placement, machine.calibration, 1 << 20, memory=memory)
    assert task["seconds"] == [pytest.approx(expected, rel=1e-12)]


def test_feedback_says_whether_a_table_fits(client: httpx.Client) -> None:
    version = publish(client, a_table())
    item = {
        "collective": "bcast",
        "nodes": 1,
        "ppn": 4,
        "memory": "host",
        "operators": "any",
        "algorithm": "binomial",
        "nbytes": 4096,
        "calls": 100,
        "median_s": 1e-5,
        "max_s": 2e-5,
    }
    report = {
        "version": version,
        "cluster": "test",
        "library": "openmpi 5.0.11",
        "ranks": 4,
        "items": [item],
    }
    number = good(client.post("/v1/feedback", json=report), 201)["id"]
    assert good(client.post("/v1/feedback", json=report))["id"] == number
    said = good(client.get(f"/v1/tables/{version}/feedback"))
    assert (said["reports"], said["items"], said["stale"]) == (1, 1, False)
    problem(client.post("/v1/feedback", json={**report, "version": 99}), 404)
    problem(client.get("/v1/tables/99/feedback"), 404)
    infinite = json.dumps(report).replace("1e-05", "Infinity").encode()
    headers = {"content-type": "application/json"}
    problem(client.post("/v1/feedback", content=infinite, headers=headers), 422)


def test_the_service_says_how_it_is(client: httpx.Client) -> None:
    assert good(client.get("/v1/health"))["status"] == "ok"
    assert good(client.get("/v1/ready"))["status"] == "ok"
    assert "nothing is at this path" in problem(client.get("/v1/nothing"), 404)
    assert "does not know this method" in problem(client.put("/v1/clusters"), 405)
    metrics = client.get("/metrics").text
    assert 'tuner_requests_total{method="GET",route="/v1/ready",status="200"} 1.0' in metrics
    assert 'tuner_requests_total{method="GET",route="unmatched",status="404"} 1.0' in metrics
    assert 'tuner_jobs{state="queued"} 0.0' in metrics
    good(client.get("/openapi.json"))
    metrics = client.get("/metrics").text
    assert 'tuner_requests_total{method="GET",route="/openapi.json",status="200"} 1.0' in metrics


def test_a_database_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    file = tmp_path / "tuner.sqlite"
    with served(Settings(database=f"sqlite:///{file}")) as client:
        publish(client, tables.EXAMPLE)
        for path in tmp_path.glob("tuner.sqlite*"):
            with path.open("r+b") as overwritten:  # -shm is mapped: truncating it raises SIGBUS
                overwritten.write(b"no database at all" * (path.stat().st_size // 18))
        response = client.get("/v1/ready")
        assert "is not an SQLite file" in problem(response, 503)
        assert (
            good(
                client.get(
                    "/v1/select",
                    params={
                        "library": "openmpi",
                        "collective": "bcast",
                        "nodes": 1,
                        "ppn": 4,
                        "nbytes": 1,
                    },
                )
            )["algorithm"]
            == "binomial"
        )


def test_a_failure_inside_tells_nothing_about_the_inside(
    refusing: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr("tuner.db.list_clusters", fail)
    assert "secret" not in problem(refusing.get("/v1/clusters"), 500)
