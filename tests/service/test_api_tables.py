"""Tables: versions, formats, publication, and what the published one decides."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter
from sqlalchemy import Engine, text

from tests.conftest import MPICH_PYTHON
from tests.service.serving import LIBRARY, a_table, good, problem, publish, served
from tests.support.ladders import table_of
from tests.support.waiting import until
from tuner import db
from tuner.api.native_formats import RequestedFormat
from tuner.api.published_tables import Representation, TableVersion
from tuner.api.routes.tables import FormatQuery
from tuner.api.settings import Settings
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, parse_table, table_record
from tuner.formats import mpich, nccl, openmpi
from tuner.formats.registry import FORMATS

RULES, CSEL = "application/vnd.tuner.openmpi-rules", "application/vnd.tuner.mpich-csel+json"
CALL: dict[str, Any] = {"collective": "bcast", "nodes": 1, "ppn": 4, "nbytes": 5000}


@pytest.fixture
def client(database_url: str) -> Iterator[httpx.Client]:
    with served(Settings(database=database_url)) as client:
        yield client


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """One service for all that is refused."""
    file = tmp_path_factory.mktemp("lasting") / "tuner.sqlite"
    with served(Settings(database=f"sqlite:///{file}")) as client:
        publish(client, a_table())
        yield client


def select(client: httpx.Client, **changes: Any) -> httpx.Response:
    return client.get("/v1/select", params={"library": LIBRARY, **CALL, **changes})


def good_version(client: httpx.Client, table: dict[str, Any]) -> int:
    answer = client.post("/v1/tables", json=table)
    assert answer.status_code in (200, 201), answer.text
    return int(answer.json()["version"])


def test_a_table_is_a_version_for_ever(client: httpx.Client) -> None:
    first = good(client.post("/v1/tables", json=a_table()), 201)
    assert good(client.post("/v1/tables", json=a_table())) == first
    second = good(client.post("/v1/tables", json=a_table("chain")), 201)
    assert second["version"] > first["version"]
    response = client.get(f"/v1/tables/{first['version']}")
    assert good(response) == a_table()
    digest = hashlib.sha256(response.content).hexdigest()
    assert response.headers["etag"] == f'"{first["version"]}-{digest[:12]}"'
    assert "immutable" in response.headers["cache-control"]
    assert good(client.get("/v1/tables?cluster=test"))["items"] == [first, second]
    assert good(client.get("/v1/tables?library=mpich%205.0.1"))["items"] == []
    problem(client.get("/v1/tables/99"), 404)
    problem(client.post("/v1/tables?measurements=99", json=a_table()), 404)
    for method in ("PUT", "PATCH", "DELETE"):
        problem(client.request(method, f"/v1/tables/{first['version']}"), 405)


def test_what_changed_between_two_versions(client: httpx.Client) -> None:
    first = good(client.post("/v1/tables", json=a_table()), 201)["version"]
    second = good(client.post("/v1/tables", json=a_table("chain")), 201)["version"]
    found = good(client.get(f"/v1/tables/{second}?against={first}"))
    assert [change["after"]["algorithm"] for change in found["changes"]] == ["chain"]
    assert found["changes"][0]["why"]
    assert good(client.get(f"/v1/tables/{second}?against={second}"))["changes"] == []
    problem(client.get(f"/v1/tables/{second}?against=99"), 404)


@pytest.mark.parametrize(
    "evidence",
    [
        {"default_s": [0.0], "chosen_s": [1e-6]},
        {"default_s": [1e-6], "chosen_s": [0.0]},
        {"default_s": [1e308], "chosen_s": [5e-324]},
        {"default_s": ["inf"], "chosen_s": ["inf"]},
        {"gain": 0.0, "gain_ci95": [0.0, "inf"], "default_s": [2e-6], "chosen_s": [1e-6]},
        {"gain_ci95": [2.0, 1.0], "default_s": [2e-6], "chosen_s": [1e-6]},
        {"gain_ci95": [5e-324, 1e308], "default_s": [2e-6], "chosen_s": [1e-6]},
    ],
)
def test_tables_with_strange_evidence_are_compared(
    lasting: httpx.Client, evidence: dict[str, Any]
) -> None:
    tables = [a_table(), a_table("chain")]
    tables[1]["rules"][1]["evidence"] |= evidence
    versions = [good_version(lasting, table) for table in tables]
    for after, before in (versions, versions[::-1]):
        assert good(lasting.get(f"/v1/tables/{after}?against={before}"))["changes"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rules": [{**a_table()["rules"][1], "start_bytes": 7}]}, "should start at 0"),
        ({"library": None}, "no name"),
        ({"version": 2}, "version 2 of its format"),
        (
            {
                "rules": [
                    {
                        **a_table()["rules"][0],
                        "stop_bytes": "inf",
                        "evidence": {"basis": "measured", "nbytes": [8], "default_s": [1e-6]},
                    }
                ]
            },
            "of 1 sizes there are 1 default_s, 0 chosen_s",
        ),
        ({"provenance": {"a": "b\0"}}, "is not a character"),
        ({"library": ""}, "the table does not name its library"),
        ({"cluster": {**a_table()["cluster"], "name": " "}}, "the table does not name its cluster"),
        ({"rules": []}, "the table has no rules"),
    ],
)
def test_a_table_with_a_fault_is_refused(
    lasting: httpx.Client, changes: dict[str, Any], message: str
) -> None:
    assert message in problem(lasting.post("/v1/tables", json={**a_table(), **changes}), 422)


def test_a_rule_that_ends_programs_is_refused(lasting: httpx.Client) -> None:
    table = a_table()
    table["rules"][0]["choice"] = {"algorithm": "split_binary", "params": {"segment": 1024}}
    said = problem(lasting.post("/v1/tables", json=table), 422)
    assert "bytes: 'split_binary(segment=1024)': Open MPI 5.0.11 may divide a segment" in said
    assert "let the rule start at 1 byte" in said


def with_choice(library: str, **choice: Any) -> dict[str, Any]:
    table = a_table()
    table["rules"][1]["choice"] |= choice
    return {**table, "library": library}


@pytest.mark.parametrize(
    ("library", "choice", "message"),
    [
        (
            LIBRARY,
            {"algorithm": "shout"},
            "bcast on 4 ranks, [1024, inf) bytes: 'shout': Open MPI has no bcast algorithm 'shout'",
        ),
        ("mpich 5.0.2", {"algorithm": "chain"}, "MPICH has no bcast algorithm 'chain'"),
        ("openmpi 99", {"params": {"radix": 3}}, "takes no parameter 'radix'"),
        (
            "craympi 9",
            {"algorithm": "shout", "runner": "schedule"},
            "unknown bcast algorithm 'shout'",
        ),
    ],
)
def test_a_rule_with_an_algorithm_that_there_is_not_is_refused(
    lasting: httpx.Client, library: str, choice: dict[str, Any], message: str
) -> None:
    said = problem(lasting.post("/v1/tables", json=with_choice(library, **choice)), 422)
    assert message in said


def reducing(algorithm: str, operators: str = "any", library: str = LIBRARY) -> dict[str, Any]:
    rungs = [(0, AlgorithmChoice()), (1024, AlgorithmChoice(algorithm))]
    return table_record(table_of({(Collective.ALLREDUCE, 4, operators): rungs}, library=library))


@pytest.mark.parametrize(
    ("library", "name"),
    [(LIBRARY, "Open MPI"), ("spectrummpi 10.3.1", "Open MPI"), ("mpich 5.0.2", "MPICH")],
)
def test_an_algorithm_that_is_wrong_for_some_operators_is_for_the_others_alone(
    lasting: httpx.Client, library: str, name: str
) -> None:
    record = reducing("rabenseifner", library=library)
    said = problem(lasting.post("/v1/tables", json=record), 422)
    assert said.startswith("allreduce on 4 ranks, [1024, inf) bytes: 'rabenseifner': ")
    assert f"in {name} this algorithm gives wrong results for non-commutative operators" in said
    assert good_version(lasting, reducing("rabenseifner", "commutative", library))


def test_an_algorithm_that_refuses_these_ranks_is_refused(lasting: httpx.Client) -> None:
    record = table_record(
        table_of({(Collective.ALLGATHER, 4): [(0, AlgorithmChoice("two_proc"))]}, library=LIBRARY)
    )
    said = problem(lasting.post("/v1/tables", json=record), 422)
    assert "two_proc is refused by 4 ranks, and every call would fail" in said


def test_a_table_stored_before_it_would_be_refused_is_still_read(
    client: httpx.Client, database_url: str
) -> None:
    version = good_version(client, reducing("recursive_doubling"))
    engine = db.open_database(database_url)
    with db.transaction(engine) as session:
        session.execute(
            text("update rules set algorithm = 'rabenseifner' where algorithm <> 'default'")
        )
    engine.dispose()
    good(client.post("/v1/publications", json={"version": version}), 201)
    assert good(client.get(f"/v1/tables/{version}")) == reducing("rabenseifner")
    offers = {one["name"]: one for one in good(client.get(f"/v1/tables/{version}/formats"))}
    assert "gives wrong results for non-commutative operators" in offers["openmpi"]["refusal"]


@pytest.mark.parametrize(
    ("library", "choice"),
    [
        ("openmpi 99", {}),
        ("craympi 9", {"algorithm": "shout"}),
        ("ucc 9.9", {"algorithm": "new"}),
        ("intelmpi 2099", {"algorithm": "preset_99"}),
        (LIBRARY, {"runner": "schedule"}),
        (LIBRARY, {"algorithm": "ring_ll", "runner": "nccl"}),
    ],
)
def test_what_nobody_here_knows_better_is_stored(
    lasting: httpx.Client, library: str, choice: dict[str, Any]
) -> None:
    assert good_version(lasting, with_choice(library, **choice))


def test_publishing_and_rolling_back_move_what_is_published(client: httpx.Client) -> None:
    where = {"cluster": "test", "library": LIBRARY}
    first, second = publish(client, a_table()), publish(client, a_table("chain"))
    assert good(select(client))["version"] == second
    assert good(client.post("/v1/publications", json={"version": second}), 201)["id"] == 2
    good(client.post("/v1/publications/rollback", json=where), 201)
    assert good(select(client))["version"] == first
    assert "before" in problem(client.post("/v1/publications/rollback", json=where), 409)
    history = good(client.get("/v1/publications", params=where))["items"]
    assert [entry["version"] for entry in history] == [first, second, first]
    assert [entry["restores"] for entry in history] == [None, None, history[0]["id"]]
    problem(client.post("/v1/publications", json={"version": 99}), 404)


def test_the_published_table_is_sent_once(client: httpx.Client) -> None:
    where = {"cluster": "test", "library": LIBRARY}
    problem(client.get("/v1/tables/published", params=where), 404)
    publish(client, a_table())
    for _ in range(2):  # made, and then from memory
        response = client.get("/v1/tables/published", params=where)
        assert good(response) == a_table()
        assert response.headers["cache-control"] == "no-cache"
    etag = response.headers["etag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        same = client.get("/v1/tables/published", params=where, headers={"If-None-Match": known})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", etag)
    publish(client, a_table("chain"))
    news = client.get("/v1/tables/published", params=where, headers={"If-None-Match": etag})
    assert good(news) == a_table("chain")


def test_what_another_process_publishes_is_noticed(client: httpx.Client, database_url: str) -> None:
    publish(client, a_table())
    version = good(client.post("/v1/tables", json=a_table("chain")), 201)["version"]
    engine = db.open_database(database_url)
    with db.transaction(engine) as session:
        db.publish(session, version)
    engine.dispose()
    until(lambda: good(select(client))["version"] == version)


def test_a_table_that_a_newer_program_wrote_holds_up_no_other_one(
    client: httpx.Client, database_url: str
) -> None:
    first = publish(client, a_table())
    engine = db.open_database(database_url)

    def published(record: dict[str, Any], collective: str = "bcast") -> int:
        with db.transaction(engine) as session:
            version = db.store_table(session, parse_table(json.dumps(record).encode())).id
            session.execute(
                text("update rules set collective = :name where version = :it"),
                {"name": collective, "it": version},
            )
            db.publish(session, version)
        return version

    newer = published(a_table("chain"), "gossip")
    assert "update tuner" in problem(client.get(f"/v1/tables/{newer}"), 503)
    other = published(a_table(library="mpich 5.0.1"))
    until(lambda: select(client, library="mpich 5.0.1").json().get("version") == other)
    assert select(client).json()["version"] == first
    with served(Settings(database=database_url, require_tokens=True)) as closed:
        asked = closed.get(f"/v1/tables/{newer}", headers=_reader(engine))
        assert "update tuner" in problem(asked, 503)
    later = published(a_table("linear"))
    engine.dispose()
    until(lambda: select(client).json()["version"] == later)


def _reader(engine: Engine) -> dict[str, str]:
    """The header of somebody who may read."""
    with db.transaction(engine) as session:
        return {"Authorization": f"Bearer {db.create_token(session, 'any', ['read'])}"}


def test_names_may_be_left_out_where_nothing_is_in_doubt(client: httpx.Client) -> None:
    version = publish(client, a_table())
    assert good(select(client, library="openmpi"))["version"] == version
    assert good(select(client, cluster="test"))["version"] == version
    problem(select(client, cluster="hera"), 404)
    problem(select(client, library="mpich"), 404)
    problem(client.get("/v1/select", params=CALL), 422)
    problem(client.get("/v1/tables/published"), 422)
    newer = publish(client, a_table(library="openmpi 5.0.12"))
    assert problem(select(client, library="openmpi"), 409) == (
        "several tables are published: say which one, such as cluster 'test' and library"
        " 'openmpi 5.0.11' (programs: --cluster or TUNER_CLUSTER); there are openmpi 5.0.11 on"
        " test, openmpi 5.0.12 on test"
    )
    assert good(select(client, library="openmpi 5.0.12"))["version"] == newer


def test_select_says_what_the_rule_says(client: httpx.Client) -> None:
    version = publish(client, a_table())
    decision = good(select(client))
    assert decision == {
        "version": version,
        "algorithm": "binomial",
        "params": {},
        "runner": "library",
        "start_bytes": 1024,
        "stop_bytes": "inf",
        "evidence": a_table()["rules"][1]["evidence"],
    }
    assert good(select(client, operators="commutative")) == decision
    assert good(select(client, nbytes=1023))["algorithm"] == "default"
    silent = good(select(client, ppn=5))
    assert (silent["algorithm"], silent["evidence"]["basis"]) == ("default", "none")
    calls = [CALL, {**CALL, "nbytes": 1}, {**CALL, "ppn": 5, "memory": "cuda"}]
    batch = good(client.post("/v1/select", json={"library": LIBRARY, "calls": calls}))
    assert batch["version"] == version
    assert [item["algorithm"] for item in batch["items"]] == ["binomial", "default", "default"]


def test_select_tells_placements_apart(client: httpx.Client) -> None:
    """Which is consecutive unless a question says else, and where both are the same."""
    ladder = a_table()["rules"]
    shapes = {("binomial", "consecutive"), ("chain", "cyclic")}
    rules = [
        {
            **rule,
            "key": {**rule["key"], "nodes": 2, "ppn": 2, "placement": placement},
            "choice": {**rule["choice"], "algorithm": name}
            if rule["start_bytes"]
            else rule["choice"],
        }
        for name, placement in sorted(shapes)
        for rule in ladder
    ]
    publish(client, {**a_table(), "rules": rules})
    call = {"nodes": 2, "ppn": 2}
    assert good(select(client, **call))["algorithm"] == "binomial"
    assert good(select(client, **call, placement="cyclic"))["algorithm"] == "chain"
    calls = [{**CALL, **call, "placement": kind} for kind in ("cyclic", "consecutive")]
    batch = good(client.post("/v1/select", json={"library": LIBRARY, "calls": calls}))
    assert [item["algorithm"] for item in batch["items"]] == ["chain", "binomial"]
    publish(client, a_table())
    assert good(select(client, placement="cyclic"))["algorithm"] == "binomial"  # on one node


@pytest.mark.parametrize(
    "changes",
    [
        {"collective": "bbcast"},
        {"nodes": 0},
        {"ppn": "x"},
        {"nbytes": -1},
        {"operators": "some"},
        {"placement": "block"},
        {"memory": "'; drop table rules"},
        {"library": "a\0"},
    ],
)
def test_select_names_what_is_wrong(lasting: httpx.Client, changes: dict[str, Any]) -> None:
    problem(select(lasting, **changes), 422)


def test_native_formats_are_what_the_libraries_read(client: httpx.Client) -> None:
    version = publish(client, a_table())
    path = "/v1/tables/published"
    named = client.get(path, params={"library": LIBRARY, "format": "openmpi"})
    assert named.headers["content-type"] == RULES
    assert openmpi.parse(named.text) == openmpi.parse(
        client.get(f"/v1/tables/{version}", headers={"Accept": RULES}).text
    )
    plain = client.get(path, params={"library": LIBRARY})
    assert named.headers["etag"] != plain.headers["etag"]
    again = {"If-None-Match": named.headers["etag"], "Accept": f"text/html, {RULES};q=0.5"}
    assert client.get(path, params={"library": LIBRARY}, headers=again).status_code == 304


def test_a_native_file_that_is_written_otherwise_has_another_etag(lasting: httpx.Client) -> None:
    """By a later program, or beside another MPICH: clients must not keep the one they have."""
    table = parse_table(json.dumps(a_table(library="mpich 5.0.1")))

    def made(own: str) -> Representation:
        bcast: mpich.Tree = {"comm_type=intra": {own: {}}, "comm_type=inter": {own: {}}}
        return TableVersion(1, table, {}).representation(
            RequestedFormat(CSEL), lambda *_: {"collective=bcast": bcast}
        )

    one, two = made("algorithm=MPIR_Bcast_intra_smp"), made("algorithm=MPIR_Bcast_intra_tree")
    assert one.body != two.body
    assert one.etag != two.etag
    path = f"/v1/tables/{publish(lasting, a_table())}"
    assert "immutable" in lasting.get(path).headers["cache-control"]
    assert lasting.get(path, params={"format": "openmpi"}).headers["cache-control"] == "no-cache"


def test_a_form_that_cannot_be_had_is_refused(lasting: httpx.Client) -> None:
    version = publish(lasting, a_table())
    path = f"/v1/tables/{version}"
    assert RULES in problem(lasting.get(path, headers={"Accept": "text/html"}), 406)
    problem(lasting.get(path, headers={"Accept": f"{RULES};q=0"}), 406)
    problem(lasting.get(path, params={"format": "ucc"}), 422)
    problem(lasting.get(path, params={"format": "cobol"}), 422)
    problem(lasting.get(path, params={"operators": "some"}), 422)
    assert "openmpi 5.0.11" in problem(lasting.get(path, params={"format": "mpich"}), 422)
    gather = a_table()
    for rule in gather["rules"]:
        rule["key"]["collective"] = "gather"
    hanging = publish(lasting, gather)
    refused = lasting.get(f"/v1/tables/{hanging}", params={"format": "openmpi"})
    assert "hang" in problem(refused, 422)
    where = {"library": LIBRARY, "format": "openmpi"}
    assert "hang" in problem(lasting.get("/v1/tables/published", params=where), 422)


def test_what_a_format_asks_is_said_beside_it(lasting: httpx.Client) -> None:
    table = a_table("ring_simple", library="nccl 2.30.7")
    for rule in table["rules"]:
        rule["key"] |= {"collective": "allreduce", "memory": "cuda"}
        rule["choice"]["params"] = {}
    path = f"/v1/tables/{publish(lasting, table)}"
    assert "one channel" in problem(lasting.get(path, params={"format": "nccl"}), 422)
    bodies, etags = set(), set()
    for name in ("ring_simple", "tree_ll"):
        response = lasting.get(
            path, params={"format": "nccl", "fallback_algorithm": name, "ranks": 7}
        )
        assert response.headers["content-type"].startswith("application/vnd.tuner.nccl-csv")
        assert nccl.parse(response.text)
        bodies.add(response.text)
        etags.add(response.headers["etag"])
    assert (len(bodies), len(etags)) == (2, 2)
    assert "choose one of" in problem(
        lasting.get(path, params={"format": "nccl", "fallback_algorithm": "tree"}), 422
    )
    plain = lasting.get(path, params={"fallback_algorithm": "tree_ll", "ranks": 7})
    assert plain.headers["etag"] == lasting.get(path).headers["etag"]


def test_every_format_can_be_asked_for() -> None:
    query = TypeAdapter(FormatQuery).json_schema()["properties"]["format"]["anyOf"][0]["enum"]
    assert set(query) == {"tuner", *FORMATS}


def test_the_mpich_format_needs_an_mpich(lasting: httpx.Client) -> None:
    version = publish(lasting, a_table(library="mpich 5.0.1"))
    response = lasting.get(f"/v1/tables/{version}", headers={"Accept": CSEL})
    assert "--mpich-python" in problem(response, 501)


@pytest.mark.skipif(not MPICH_PYTHON.exists(), reason="no environment with MPICH")
def test_the_mpich_format_completes_the_librarys_own_rules(database_url: str) -> None:
    settings = Settings(database=database_url, mpich_python=MPICH_PYTHON)
    with served(settings) as client:
        version = publish(client, a_table(library="mpich 5.0.1"))
        response = client.get(f"/v1/tables/{version}", headers={"Accept": CSEL})
        assert response.status_code == 200, response.text
        assert "collective=allgather" in mpich.parse(response.text)
