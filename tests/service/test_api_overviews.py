"""Sent files are described; nothing of them is stored, and they name no files of the service."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.serving import good, problem, served
from tuner.api.settings import Settings

OSU = "# OSU MPI Allreduce Latency Test v7.4\n# Size  Avg Latency(us)\n1024   20.0\n2048   25.0\n"
RULES = "1\n2\n1\n8\n1\n0 1 0 0\n"  # of Open MPI, for allreduce
FLAT = "name: flat8\nnodes: 8\nlatency: 2us\nbandwidth: 12.5GB/s\n"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    file = tmp_path_factory.mktemp("overviews") / "tuner.sqlite"
    with served(Settings(database=f"sqlite:///{file}")) as client:
        yield client


def _asked(client: httpx.Client, files: dict[str, str], **told: Any) -> httpx.Response:
    sent = [
        {"name": name, "content": base64.b64encode(text.encode()).decode()}
        for name, text in files.items()
    ]
    return client.post("/v1/overviews", json={"files": sent, **told})


def test_files_are_named_as_they_were_sent(client: httpx.Client) -> None:
    found = good(_asked(client, {"osu.txt": OSU, "flat.yaml": FLAT}, ranks=8, nodes=8))
    kinds = {one["file"]: one["kind"] for one in found["files"]}
    assert kinds == {"osu.txt": "benchmark results (osu)", "flat.yaml": "a machine"}
    commands = [each["text"] for one in found["files"] for each in one["commands"]]
    assert "tuner topology show flat.yaml" in commands
    (compared,) = found["comparisons"]
    assert compared["columns"] == ["predicted", "measured"]
    assert len(compared["calls"]) == 2


def test_results_are_compared_with_a_preset(client: httpx.Client) -> None:
    machine = {"machine": "preset:comet", "ranks": 4, "nodes": 4}
    found = good(_asked(client, {"osu.txt": OSU}, **machine))
    assert "comet" in found["comparisons"][0]["title"]


def test_a_sent_rules_file_is_asked_about_the_first_slower_call(client: httpx.Client) -> None:
    sent = {"1.txt": OSU, "2.txt": OSU.replace("25.0", "50.0"), "my.rules": RULES}
    (compared,) = good(_asked(client, sent, ranks=8, nodes=1))["comparisons"]
    assert compared["note"].startswith("before is 1.txt and after is 2.txt: the order")
    assert "explain my.rules --library openmpi " in compared["commands"][-1]["text"]


def test_counts_that_contradict_one_another_are_refused(client: httpx.Client) -> None:
    said = problem(_asked(client, {"osu.txt": OSU}, ranks=8, nodes=3), 422)
    assert said.startswith("8 ranks cannot be spread evenly over 3 nodes")


def test_an_error_names_the_sent_file(client: httpx.Client) -> None:
    said = problem(_asked(client, {"letter.txt": "Dear all,\n"}), 422)
    assert said.startswith("letter.txt: in no form that is read")


@pytest.mark.parametrize(
    ("files", "told", "place"),
    [
        ({"../osu.txt": OSU}, {}, "body.files.0.name"),
        ({"..": OSU}, {}, "body.files.0.name"),
        ({"osu.txt": OSU}, {"machine": "/etc/passwd"}, "body.machine"),
        ({"osu.txt": OSU}, {"ranks": 0}, "body.ranks"),
        ({}, {}, "body.files"),
    ],
)
def test_no_file_of_the_service_can_be_named(
    client: httpx.Client, files: dict[str, str], told: dict[str, Any], place: str
) -> None:
    assert problem(_asked(client, files, **told), 422).startswith(place)


def test_a_combination_of_files_is_refused(client: httpx.Client, tmp_path: Path) -> None:
    (tmp_path / "flat.yaml").write_text(FLAT)
    text = f"combine: {{fabric: {tmp_path}/flat.yaml, node: {tmp_path}/flat.yaml}}\n"
    said = problem(_asked(client, {"both.yaml": text}), 422)
    assert "combine names files, which only a file on this computer can" in said


def test_files_of_one_name_are_told_apart(client: httpx.Client) -> None:
    texts = (OSU, OSU.replace("25.0", "50.0"))
    sent = [
        {"name": "osu.txt", "content": base64.b64encode(text.encode()).decode()} for text in texts
    ]
    (compared,) = good(client.post("/v1/overviews", json={"files": sent}))["comparisons"]
    assert [one["ratio"] for one in compared["calls"]] == pytest.approx([1.0, 2.0])


def test_many_ranks_are_not_predicted_by_a_service(client: httpx.Client) -> None:
    machine = {"machine": "preset:summit", "ranks": 6000, "nodes": 1000}
    (compared,) = good(_asked(client, {"osu.txt": OSU}, **machine))["comparisons"]
    assert compared["calls"] == []
    assert compared["note"].startswith("not compared")
