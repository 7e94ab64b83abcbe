"""Every rank has the same table or none, whatever rank 0 or another rank meets."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import services
from tests.support.services import Reply, Service, always, misbehaving, serving, text_of
from tests.support.waiting import patience
from tuner.launch import Launcher

PROGRAM = Path(__file__).with_name("agreement_program.py")
LIBRARIES = [("launcher", 4), ("mpich_launcher", 2)]
SOON = {"TUNER_TIMEOUT": "400ms"}

pytestmark = pytest.mark.usefixtures("own_cache")


class Ranks:
    """So many ranks of one MPI library, agreeing on the cases they are given."""

    def __init__(self, launcher: Launcher, ranks: int) -> None:
        self.launcher, self.ranks, self.library = launcher, ranks, launcher.version()

    def text(self, algorithm: str = "ring") -> bytes:
        return text_of(algorithm, self.library).encode()

    def play(self, *cases: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
        """What the ranks of each case came to, all the same; and the lines of the log."""
        run = self.launcher.run(self.ranks, [str(PROGRAM), json.dumps(cases)], timeout=patience())
        answers = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
        assert len(answers) == len(cases)
        for answer in answers:
            assert answer["library"] == self.library
            assert len(answer["outcomes"]) == self.ranks
            assert answer["outcomes"] == answer["outcomes"][:1] * self.ranks
        log = [line for line in run.stderr.splitlines() if "tuner: " in line]
        assert "Traceback" not in run.stderr
        return [answer["outcomes"][0] for answer in answers], log


@pytest.fixture(params=LIBRARIES, ids=["openmpi", "mpich"])
def ranks(request: pytest.FixtureRequest) -> Ranks:
    fixture, number = request.param
    return Ranks(request.getfixturevalue(fixture), number)


@pytest.fixture
def table(ranks: Ranks, tmp_path: Path) -> Callable[[str], str]:
    """Writes a table whose only algorithm is the one named; returns its path."""

    def write(algorithm: str) -> str:
        path = tmp_path / f"{algorithm}.json"
        path.write_bytes(ranks.text(algorithm))
        return str(path)

    return write


def environment(**variables: str) -> dict[str, Any]:
    return {"environment": {f"TUNER_{name.upper()}": value for name, value in variables.items()}}


@pytest.mark.representative("openmpi")
def test_tables_that_all_ranks_get(ranks: Ranks, table: Callable[[str], str]) -> None:
    ring, linear = table("ring"), table("linear")
    outcomes, log = ranks.play(
        {"all": {"table": ring}},
        {"all": environment(table=linear)},
        {"all": {"table": ring, **environment(table=linear)}},
        {"all": {"table": linear, "as_object": True}},
        {"first": {"table": ring}},
        {"first": {"table": linear, "as_object": True}, "reverse": True},
        {"all": environment(table=ring, timeout="1us")},  # which is for services
        {},
    )
    expected = [["ring"], ["linear"], ["ring"], ["linear"], ["ring"], ["linear"], ["ring"], []]
    assert [outcome["algorithms"] for outcome in outcomes] == expected
    assert {outcome["reason"] for outcome in outcomes} == {""}
    assert outcomes[0]["origin"] == ring
    (line,) = log
    assert "no table is named" in line


@pytest.mark.representative("mpich")
def test_any_doubt_of_any_rank_is_no_table_and_one_line(
    ranks: Ranks, table: Callable[[str], str], tmp_path: Path
) -> None:
    ring, linear = table("ring"), table("linear")
    Path(table("broken")).write_bytes(ranks.text()[:-9])
    os.mkfifo(tmp_path / "pipe")
    last = f"rank {ranks.ranks - 1}"
    cases: dict[str, dict[str, Any]] = {
        "none.json: cannot be read": {"all": {"table": str(tmp_path / "none.json")}},
        "broken.json: not a tuning table": {"all": {"table": str(tmp_path / "broken.json")}},
        f"{tmp_path}: cannot be read": {"all": {"table": str(tmp_path)}},
        "pipe: not a regular file": {"all": environment(table=str(tmp_path / "pipe"))},
        f"{last}: was asked for {linear}, rank 0 for {ring}": {
            "all": environment(table=ring),
            "last": environment(table=linear),
        },
        f"{last}: was asked for a table with SHA-256": {
            "all": {"table": ring, "as_object": True},
            "last": {"table": linear, "as_object": True},
        },
        f"{last}: was asked for {ring}, rank 0 for no table": {"last": {"table": ring}},
        f"{last}: two sources of a table": {
            "all": {"table": ring},
            "last": {"table": ring, "service": "http://head"},
        },
        f"{last}: '5' is not a time": {"all": {"table": ring}, "last": environment(timeout="5")},
        "'5' is not a time": {"all": {"table": ring}, "first": environment(timeout="5")},
        f"{last}: the table is for '{ranks.library}', but this is": {
            "all": {"table": ring},
            "last": {"table": ring, "version": "1.2.3"},
        },
        f"{last}: reads the table otherwise than rank 0": {
            "all": {"table": ring},
            "last": {"table": ring, "otherwise": True},
        },
        f"the table is for '{ranks.library}', but this is": {
            "all": {"table": ring},
            "first": {"table": ring, "version": "1.2.3"},
        },
        "is not a service: write it like": {"all": {"service": "head"}},
    }
    outcomes, log = ranks.play(*cases.values())
    assert [outcome["algorithms"] for outcome in outcomes] == [[]] * len(cases)
    for sentence, outcome, line in zip(cases, outcomes, log, strict=True):
        assert sentence in outcome["reason"]
        assert line == f"tuner: the library's own collectives are used: {outcome['reason']}"


@pytest.mark.representative("openmpi")
def test_rank_0_alone_asks_the_service(ranks: Ranks) -> None:
    with serving(always(Reply(ranks.text(), headers={"ETag": '"12-ab"'}))) as service:
        outcomes, log = ranks.play(
            {"all": {"service": service.url, "cluster": "test"}},
            {"all": environment(service=service.url + "/")},
            {"first": {"service": service.url}},
        )
        assert len(service.seen) == 3
    assert [outcome["algorithms"] for outcome in outcomes] == [["ring"]] * 3
    assert {outcome["version"] for outcome in outcomes} == {12}
    assert log == []


@pytest.mark.extended
def test_no_service_can_stop_the_ranks(ranks: Ranks) -> None:
    with (
        misbehaving(services.hang) as hung,
        misbehaving(services.drip) as slow,
        misbehaving(services.garbage) as garbage,
        misbehaving(services.truncate) as short,
        serving(always(Reply(status=500))) as failing,
        serving(always(Reply(b"{}"))) as odd,
        serving(always(Reply(text_of(library="x 1").encode()))) as other,
    ):
        down = Service(always(Reply()))
        down.stop()
        urls = [hung, slow, garbage, short, failing.url, odd.url, other.url, down.url]
        outcomes, log = ranks.play(
            *({"all": {"service": url, "environment": SOON}} for url in urls)
        )
    for url, outcome, line in zip(urls, outcomes, log, strict=True):
        assert outcome["algorithms"] == []
        assert url in outcome["reason"]
        assert outcome["reason"] in line


@pytest.mark.extended
def test_a_copy_stands_in_for_a_service_and_one_line_says_so(ranks: Ranks) -> None:
    with serving(always(Reply(ranks.text(), headers={"ETag": '"12-ab"'}))) as service:
        case = {"all": {"service": service.url}}
        ranks.play(case)
    outcomes, log = ranks.play(case)
    assert outcomes[0]["algorithms"] == ["ring"]
    assert outcomes[0]["version"] == 12
    assert "the copy in" in outcomes[0]["origin"]
    assert len(log) == 1
    assert f"nothing answers at {service.url}" in log[0]
    assert "is used instead" in log[0]
