"""One call from inside, over HTTP: its columns, its trace, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.service.serving import good, problem, served, token
from tests.support.waiting import patience
from tuner.api.pages import PAGE_HEADERS
from tuner.api.settings import Settings
from tuner.sim import critical_paths

COMPILATION_S = 30.0  # of a quiet machine, for which the first answer may wait
CALL: dict[str, Any] = {
    "topology": "preset:comet",
    "axes": {"nodes": 2, "ppn": 2},
    "collective": "allreduce",
    "algorithm": "segmented_ring",
    "params": {"segment": 4096},
    "nbytes": 65536,
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    url = f"sqlite:///{tmp_path_factory.mktemp('calls') / 'tuner.sqlite'}"
    with served(Settings(database=url)) as client:
        client.timeout = patience(COMPILATION_S)
        yield client


@pytest.mark.slow
def test_a_call_has_columns_of_equal_length_and_is_kept(client: httpx.Client) -> None:
    sent = client.post("/v1/what-if/call", json=CALL)
    answer = good(sent)
    assert answer["candidate"] == "segmented_ring(segment=4KiB)"
    for name in ("transfers", "local", "work", "critical_path"):
        assert len({len(column) for column in answer[name].values()}) == 1, name
    assert len(answer["ranks"]["node"]) == 4
    assert client.post("/v1/what-if/call", json=CALL).content == sent.content


@pytest.mark.slow
def test_the_trace_is_a_download(client: httpx.Client) -> None:
    sent = client.post("/v1/what-if/call/trace", json=CALL)
    assert 'filename="call.json"' in sent.headers["content-disposition"]
    assert {one["ph"] for one in good(sent)["traceEvents"]} == {"M", "X"}


@pytest.mark.slow
def test_a_stored_topology_is_named_by_its_id(client: httpx.Client) -> None:
    flat = "name: flat4\nnodes: 4\nlatency: 2us\nbandwidth: 12.5GB/s\n"
    stored = good(client.post("/v1/topologies", content=flat), 201)
    changes = {"topology": str(stored["id"]), "axes": {"nodes": 3}}
    answer = good(client.post("/v1/what-if/call", json=CALL | changes))
    assert answer["machine"]["nodes"] == ["node0", "node1", "node2"]


@pytest.mark.parametrize("path", ["/v1/what-if/call", "/v1/what-if/call/trace"])
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"topology": "preset:none"}, "unknown preset 'none'"),
        ({"topology": "/etc/passwd"}, "is not an id"),
        ({"axes": {"nodes": 0}}, "greater than 0"),
        ({"axes": {"colour": "red"}}, "colour"),
        ({"algorithm": "none"}, "none"),
        ({"params": {"chains": 2}}, "chains"),
        ({"params": {"segment": -1}}, "greater than or equal to 0"),
        ({"nbytes": 1.5}, "nbytes"),
        (
            {"algorithm": "ring", "params": {}, "axes": {"nodes": 256, "ppn": 4}},
            f"more than {critical_paths.MAX_TRACED_TRANSFERS} transfers, too many to trace",
        ),
    ],
)
def test_what_cannot_be_shown_is_one_sentence(
    client: httpx.Client, path: str, changes: dict[str, Any], sentence: str
) -> None:
    assert sentence in problem(client.post(path, json=CALL | changes), 422)


@pytest.mark.slow
def test_who_may_read_may_look_inside(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'tuner.sqlite'}"
    reader, submitter = token(url, "reader", "read"), token(url, "submitter", "submit")
    with served(Settings(database=url, require_tokens=True)) as client:
        client.timeout = patience(COMPILATION_S)
        for path in ("/v1/what-if/call", "/v1/what-if/call/trace"):
            assert client.post(path, json=CALL).status_code == 401
            assert client.post(path, json=CALL, headers=submitter).status_code == 403
            good(client.post(path, json=CALL, headers=reader))


def test_the_page_may_keep_the_tab_that_it_opens(client: httpx.Client) -> None:
    """All other headers forbid what those of the other pages do."""
    sent = client.get("/studio/call")
    opener = "cross-origin-opener-policy"
    assert sent.headers[opener] == "same-origin-allow-popups"
    others = {name.lower(): value for name, value in PAGE_HEADERS.items() if name.lower() != opener}
    assert sent.headers.items() >= others.items()
