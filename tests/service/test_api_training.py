"""Training over REST: lines of a prediction, its trace, and problems of one sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.service.serving import good, problem, served, token
from tests.support.waiting import patience
from tuner.api.routes.training import TrainingQuestion
from tuner.api.settings import Settings

COMPILATION_S = 30.0  # of a quiet machine, for which the first answer may wait
FLAT = "name: flat4\nnodes: 4\nlatency: 2us\nbandwidth: 12.5GB/s\n"
HEADER = "name,forward_ms,backward_ms,elements\n"
QUESTION: dict[str, Any] = {
    "topology": "preset:dgx-a100",
    "model": "resnet50",
    "batch": 64,
    "framework": {"name": "horovod", "fusion_threshold": "32MiB"},
    "ranks": [1, 8],
    "detail": 8,
    "algorithms": ["nccl_ring"],
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    database = f"sqlite:///{tmp_path_factory.mktemp('training') / 'tuner.sqlite'}"
    with served(Settings(database=database)) as client:
        client.timeout = patience(COMPILATION_S)
        yield client


def question(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in (QUESTION | changes).items() if value is not None}


def ask(client: httpx.Client, **changes: Any) -> list[dict[str, Any]]:
    sent = client.post("/v1/training", json=question(**changes))
    assert sent.status_code == 200, sent.text
    assert sent.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in sent.text.splitlines()]


@pytest.mark.slow
def test_a_prediction_grows_line_by_line_and_is_kept(client: httpx.Client) -> None:
    lines = ask(client)
    kinds = [line["kind"] for line in lines]
    assert kinds[:3] == ["outline", "point", "timeline"]
    assert kinds[-1] == "end"
    assert set(kinds) == {"outline", "point", "timeline", "limits", "variant", "end"}
    assert [line["ranks"] for line in lines if line["kind"] == "point"] == [8, 1]
    assert lines[0]["settings"]["fusion_threshold"] == 32 << 20
    assert lines[-1]["skipped"] == []
    assert ask(client) == lines


@pytest.mark.slow
def test_axes_change_the_machine(client: httpx.Client) -> None:
    own = {"ranks": [64], "detail": 64, "framework": "ddp"}
    slow, fast = (ask(client, **own, axes={"bandwidth": rate})[1] for rate in ("25Gb/s", "400Gb/s"))
    assert slow["communication"] > 3 * fast["communication"]


@pytest.mark.slow
def test_a_published_workload_is_predicted_on_its_own_machine(client: httpx.Client) -> None:
    catalogue = good(client.get("/v1/training/catalogue"))
    entry = next(one for one in catalogue["published"] if one["id"] == "horovod-512-vgg16")
    assert entry["machine"]["name"]
    workload = {**entry["workload"], "ranks": [4, 512]}
    sent = client.post("/v1/training", json={**workload, "detail": 512})
    point = json.loads(sent.text.splitlines()[1])
    assert point["published"]["efficiency"] == 0.68
    assert point["efficiency"] == pytest.approx(0.68, abs=0.03)
    own = {"topology": workload["topology"]}
    assert good(client.get("/v1/training/machine", params=own))["gpus"] == 4


@pytest.mark.slow
def test_layers_and_transformers_are_models(client: httpx.Client) -> None:
    table = {"table": HEADER + "a,1,2,4000000\nb,1,2,4000000\n", "name": "own"}
    outline = ask(client, model=table)[0]
    assert (outline["model"], outline["parameters"]) == ("own", 8_000_000)
    shape = {"kind": "gpt", "layers": 2, "width": 256, "heads": 4, "sequence": 128}
    shape |= {"vocabulary": 1000}
    outline = ask(client, model=shape, precision="amp")[0]
    assert (outline["unit"], outline["per_sample"]) == ("tokens", 128)


@pytest.mark.slow
def test_an_uploaded_topology_is_the_machine(client: httpx.Client) -> None:
    stored = good(client.post("/v1/topologies", content=FLAT), 201)
    machine = good(client.get("/v1/training/machine", params={"topology": str(stored["id"])}))
    assert machine["max_nodes"] == 4
    own = {"topology": str(stored["id"]), "rate": 100.0, "ranks": [1, 4], "detail": 4}
    lines = ask(client, **own, algorithms=["ring"])
    assert lines[0]["machine"] == "flat4"
    problem(client.post("/v1/training", json=question(**own, algorithms="default")), 422)


@pytest.mark.slow
def test_the_trace_has_the_calls_of_the_iteration(client: httpx.Client) -> None:
    trace = good(client.post("/v1/training/trace", json=QUESTION))
    calls = [event for event in trace["traceEvents"] if event["name"] == "allreduce"]
    assert {event["args"]["algorithm"] for event in calls} == {"nccl_ring"}


def test_measures_of_a_published_result_may_be_null() -> None:
    published = [{"ranks": 8, "rate": None, "efficiency": 0.9}]
    asked = TrainingQuestion.model_validate(question(published=published))
    assert asked.record()["published"] == [{"ranks": 8, "efficiency": 0.9}]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"topology": "preset:none"}, "unknown preset 'none'"),
        ({"topology": "7"}, "7"),
        ({"topology": "/etc/passwd"}, "is not an id"),
        ({"topology": "published:../x"}, "expected one of published:"),
        ({"model": "none"}, "unknown model 'none'"),
        ({"model": {"file": "/etc/passwd"}}, "body.model"),
        ({"model": {"table": f"layer,{HEADER}0,a,1,1,4\n2,b,1,1,4"}}, "line 3: layer"),
        ({"model": {"table": f"{HEADER}a,-1,1,4"}}, "line 2: forward_ms"),
        ({"model": "gpt3_175b", "precision": "amp", "framework": "ddp"}, "take more ranks"),
        ({"framework": "none"}, "framework: 'none' is none of"),
        ({"framework": {"name": "horovod", "colour": 1}}, "colour"),
        ({"algorithms": "/etc/passwd"}, "body.algorithms"),
        ({"algorithms": ["none"]}, "unknown algorithm 'none'"),
        ({"axes": {"latency": "-1us"}}, "latency"),
        ({"axes": {"placement": "cyclic"}}, "unknown key 'placement'; known: "),
        ({"axes": {"nodes": 4}}, "not both"),
        ({"ranks": [0]}, "greater than or equal to 1"),
        ({"ranks": list(range(1, 60))}, "40"),
        ({"noise": 2.0}, "noise is a share from 0 to 1"),
        ({"batch": 0}, "batch must be a whole number from 1 to 1048576, not 0"),
        ({"framework": {"name": "ddp", "order": "up"}}, "order is one of forward, backward, not"),
        ({"published": [{"ranks": 8}]}, "result 1 must have one of rate, efficiency, speedup"),
        ({"scaling": "huge"}, "scaling is one of weak, strong, not 'huge'"),
        ({"calibration": "/etc/passwd"}, "calibration"),
    ],
)
def test_what_cannot_be_predicted_is_one_sentence(
    client: httpx.Client, changes: dict[str, Any], sentence: str
) -> None:
    said = problem(client.post("/v1/training", json=question(**changes)), 422)
    assert sentence in said
    assert "Value error" not in said
    assert sentence in problem(client.post("/v1/training/trace", json=question(**changes)), 422)


def test_the_catalogue_names_models_frameworks_and_settings(client: httpx.Client) -> None:
    catalogue = good(client.get("/v1/training/catalogue"))
    assert {"name": "llama3_8b", "unit": "tokens"} in catalogue["models"]
    settings = {
        framework["name"]: {one["name"]: one for one in framework["settings"]}
        for framework in catalogue["frameworks"]
    }
    assert settings["horovod"]["fusion_threshold"]["kind"] == "size"
    assert settings["horovod"]["fusion_threshold"]["default"] == 128 << 20
    assert settings["fsdp"]["stage"]["default"] == 3
    assert settings["ddp"]["order"]["choices"] == ["forward", "backward"]


def test_reading_is_enough(tmp_path_factory: pytest.TempPathFactory) -> None:
    database = f"sqlite:///{tmp_path_factory.mktemp('guarded') / 'tuner.sqlite'}"
    reader = token(database, "reader", "read")
    with served(Settings(database=database, require_tokens=True)) as guarded:
        assert guarded.post("/v1/training", json=QUESTION).status_code == 401
        sent = guarded.post("/v1/training", json=question(topology="preset:none"), headers=reader)
        assert sent.status_code == 422
