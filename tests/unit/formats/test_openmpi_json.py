"""The JSON rules of Open MPI 6.0: what is written, how they decide, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.ladders import CLUSTER, Rungs, table_of
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, Rule, TuningTable
from tuner.formats import openmpi
from tuner.formats.openmpi import json_rules

BCAST, ALLREDUCE, ALLGATHER = Collective.BCAST, Collective.ALLREDUCE, Collective.ALLGATHER
CHAIN = AlgorithmChoice("chain", {"chains": 2, "segment": 8192})
BINOMIAL, LINEAR = AlgorithmChoice("binomial"), AlgorithmChoice("linear")
SIX = "openmpi 6.0.0"
TABLE = table_of(
    {
        (BCAST, 4): [
            (0, AlgorithmChoice()),
            (1024, CHAIN),
            (65536, AlgorithmChoice("scatter_allgather_ring")),
        ],
        (ALLREDUCE, 2): [(0, AlgorithmChoice("recursive_doubling"))],
    },
    library=SIX,
)
FILE: dict[str, Any] = {
    "rule_file_version": 3,
    "module": "tuned",
    "collectives": {
        "allreduce": [
            {
                "comm_size_min": 2,
                "comm_size_max": 2,
                "comm_rank_distribution": "single-node",
                "rules": [
                    {
                        "msg_size_min": 0,
                        "msg_size_max": "inf",
                        "alg": 3,
                        "faninout": 0,
                        "seg_size": 0,
                        "reqs": 0,
                    }
                ],
            }
        ],
        "bcast": [
            {
                "comm_size_min": 4,
                "comm_size_max": 4,
                "comm_rank_distribution": "single-node",
                "rules": [
                    {
                        "msg_size_min": 1024,
                        "msg_size_max": 65535,
                        "alg": 2,
                        "faninout": 2,
                        "seg_size": 8192,
                        "reqs": 0,
                    },
                    {
                        "msg_size_min": 65536,
                        "msg_size_max": "inf",
                        "alg": 9,
                        "faninout": 0,
                        "seg_size": 0,
                        "reqs": 0,
                    },
                ],
            }
        ],
    },
}


def spread(nodes: int, ladders: dict[tuple[Collective, int], Rungs]) -> tuple[Rule, ...]:
    """Ladders of (collective, ppn) on so many nodes."""
    made = table_of(ladders)
    return tuple(replace(r, key=replace(r.key, nodes=nodes)) for r in made.rules)


def test_golden_file() -> None:
    assert json.loads(openmpi.emit_json(TABLE)) == FILE


@pytest.mark.parametrize(
    ("p", "nbytes", "choice"),
    [
        (4, 1023, AlgorithmChoice()),
        (4, 1024, CHAIN),
        (4, 65535, CHAIN),
        (4, 65536, AlgorithmChoice("scatter_allgather_ring")),
        (3, 65536, AlgorithmChoice()),
        (5, 65536, AlgorithmChoice()),
    ],
)
def test_decisions(p: int, nbytes: int, choice: AlgorithmChoice) -> None:
    rules = json_rules.parse(json.dumps(FILE))
    assert json_rules.decide(rules, BCAST, 1, p, nbytes) == choice


def test_no_rule_names_a_segment_for_calls_without_data() -> None:
    text = openmpi.emit_json(table_of({(BCAST, 4): [(0, CHAIN)]}, library=SIX))
    rules = json_rules.parse(text)
    assert [json_rules.decide(rules, BCAST, 1, 4, n) for n in (0, 1)] == [AlgorithmChoice(), CHAIN]
    with pytest.raises(
        InputError, match=r"bcast, entry 0, rule 0: .*let the rule start at 1 byte$"
    ):
        json_rules.parse(text.replace('"msg_size_min": 1', '"msg_size_min": 0'))


def test_what_is_left_out_has_the_librarys_defaults() -> None:
    rules = json_rules.parse(
        json.dumps(
            {
                **FILE,
                "collectives": {
                    "bcast": [
                        {"comm_size_min": 9, "rules": [{"alg": 6, "msg_size_max": 99}, {"alg": 1}]},
                        {"rules": [{"alg": 3}]},
                    ]
                },
            }
        )
    )
    found = [
        json_rules.decide(rules, BCAST, 1, p, n).algorithm for p, n in ((8, 0), (9, 99), (9, 100))
    ]
    assert found == ["pipeline", "binomial", "linear"]
    assert json_rules.decide(rules, ALLREDUCE, 1, 9, 0).is_default


def test_algorithms_may_have_the_librarys_names() -> None:
    for number, name in ((1, "basic_linear"), (4, "split_binary_tree"), (6, "binomial")):
        named = json_rules.parse(changed(alg=name))
        assert named == json_rules.parse(changed(alg=number))


@pytest.mark.parametrize(
    ("collective", "name", "ours"),
    [
        (Collective.ALLTOALL, "linear_sync", AlgorithmChoice("spread_out", {"requests": 8})),
        (Collective.ALLTOALL, "modified_bruck", AlgorithmChoice("bruck")),
        (Collective.BARRIER, "bruck", AlgorithmChoice("dissemination")),
        (Collective.BARRIER, "tree", AlgorithmChoice("binomial")),
    ],
)
def test_names_that_are_others_here(
    collective: Collective, name: str, ours: AlgorithmChoice
) -> None:
    rule = {"alg": name, "reqs": 8}
    text = json.dumps({**FILE, "collectives": {collective: [{"rules": [rule]}]}})
    assert json_rules.decide(json_rules.parse(text), collective, 1, 4, 4) == ours


@pytest.mark.parametrize("name", ["spread_out", "bruck"])
def test_our_names_of_its_algorithms_are_refused(name: str) -> None:
    text = json.dumps({**FILE, "collectives": {"alltoall": [{"rules": [{"alg": name}]}]}})
    with pytest.raises(InputError, match=f"algorithm {name} of alltoall is not known"):
        json_rules.parse(text)


def test_requests_in_flight_are_written() -> None:
    limited = AlgorithmChoice("spread_out", {"requests": 8})
    table = table_of({(Collective.ALLTOALL, 64): [(0, limited)]}, library="openmpi 6.0.0")
    assert '"reqs": 8' in openmpi.emit_json(table)


def test_a_shape_that_was_not_measured_is_left_alone_where_the_format_can() -> None:
    """Rules for 4 ranks of one node decided on 4 nodes with one rank each, too."""
    parsed = json_rules.parse(openmpi.emit_json(TABLE))
    assert json_rules.decide(parsed, BCAST, 1, 4, 1024) == CHAIN
    assert json_rules.decide(parsed, BCAST, 4, 1, 1024) == AlgorithmChoice()
    everywhere = json.dumps(FILE).replace("single-node", "any")
    assert "1024 bytes on 4 x 1 ranks" in " ".join(openmpi.check_json(TABLE, everywhere))


def test_shapes_with_as_many_ranks_are_told_apart_where_the_format_can() -> None:
    rules = spread(1, {(BCAST, 4): [(0, BINOMIAL)]}) + spread(4, {(BCAST, 1): [(0, LINEAR)]})
    text = openmpi.emit_json(TuningTable(CLUSTER, SIX, rules))
    parsed = json_rules.parse(text)
    assert json_rules.decide(parsed, BCAST, 1, 4, 0) == BINOMIAL
    assert json_rules.decide(parsed, BCAST, 4, 1, 0) == LINEAR
    assert json_rules.decide(parsed, BCAST, 2, 2, 0) == AlgorithmChoice()
    chain = AlgorithmChoice("chain", {"chains": 2})
    rules += spread(2, {(BCAST, 2): [(0, chain)]})
    parsed = json_rules.parse(openmpi.emit_json(TuningTable(CLUSTER, SIX, rules)))
    shapes = ((1, 4), (4, 1), (2, 2))
    told = [json_rules.decide(parsed, BCAST, *shape, 0) for shape in shapes]
    assert told == [BINOMIAL, LINEAR, chain]
    alone = TuningTable(CLUSTER, SIX, spread(2, {(BCAST, 2): [(0, chain)]}))
    parsed = json_rules.parse(openmpi.emit_json(alone))
    told = [json_rules.decide(parsed, BCAST, *shape, 0) for shape in shapes]
    assert told == [AlgorithmChoice(), AlgorithmChoice(), chain]


def test_shapes_that_the_format_does_not_tell_apart_are_refused() -> None:
    rules = spread(2, {(BCAST, 4): [(0, BINOMIAL)]}) + spread(4, {(BCAST, 2): [(0, LINEAR)]})
    with pytest.raises(InputError, match="bcast on 2 x 4 ranks: this format tells only"):
        openmpi.emit_json(TuningTable(CLUSTER, SIX, rules))


def test_versions_that_would_drop_it_are_refused() -> None:
    with pytest.raises(InputError, match=r"openmpi 5\.0\.11 silently ignores JSON rules"):
        openmpi.emit_json(TuningTable(CLUSTER, "openmpi 5.0.11", TABLE.rules))
    with pytest.raises(InputError):
        openmpi.parse(json.dumps(FILE))


@pytest.mark.parametrize(
    ("collective", "choice", "message"),
    [
        (ALLREDUCE, AlgorithmChoice("ring"), "for non-commutative"),
        (ALLREDUCE, AlgorithmChoice("rabenseifner"), "for non-commutative"),
        (ALLGATHER, AlgorithmChoice("bruck"), "another algorithm under this number"),
        (Collective.SCATTER, AlgorithmChoice("binomial"), "hang"),
        (BCAST, AlgorithmChoice("swing"), "no bcast algorithm 'swing'"),
    ],
)
def test_inexpressible_rules_are_refused_by_name(
    collective: Collective, choice: AlgorithmChoice, message: str
) -> None:
    with pytest.raises(InputError, match=rf"{collective} on 8 ranks, \[.*{message}"):
        openmpi.emit_json(table_of({(collective, 8): [(0, LINEAR), (64, choice)]}, library=SIX))


def changed(**message: Any) -> str:
    """A file whose one rule has these fields besides."""
    rule = {"alg": 6} | {name: value for name, value in message.items() if value is not None}
    return json.dumps({**FILE, "collectives": {"bcast": [{"rules": [rule]}]}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps(FILE)[:-9], "truncated or not JSON, line 1: give the whole file"),
        ("[" * 100_000, "nested deeper than any library reads"),
        ('{"rule_file_version": ' + "3" * 5000, "a number in it is longer than any library reads"),
        (json.dumps({**FILE, "rule_file_version": 3.0}), '"rule_file_version": 3'),
        ("[]", '"rule_file_version": 3'),
        (json.dumps({**FILE, "rule_file_version": 2}), '"rule_file_version": 3'),
        (json.dumps({**FILE, "module": "han"}), '"module": "tuned"'),
        (json.dumps({**FILE, "$schema": ""}), "needed are"),
        (json.dumps({**FILE, "collectives": {"reducescatter": []}}), "collectives must be"),
        (json.dumps({**FILE, "collectives": {"bcast": {}}}), "not a list of rules"),
        (json.dumps({**FILE, "collectives": {"bcast": [{"rules": 7}]}}), "not a list of rules"),
        (
            json.dumps(
                {
                    **FILE,
                    "collectives": {
                        "bcast": [{"comm_size_min": 4, "comm_size_max": 3, "rules": []}]
                    },
                }
            ),
            "4 is above",
        ),
        (
            json.dumps(
                {**FILE, "collectives": {"bcast": [{"comm_rank_distribution": "one", "rules": []}]}}
            ),
            "'one' is none of",
        ),
        (changed(msg_size_max="4k"), "msg_size_max cannot be '4k'; Open MPI would drop the file"),
        (changed(msg_size_min="inf"), "msg_size_min cannot be 'inf'"),
        (changed(msg_size_min=-1), "msg_size_min cannot be -1"),
        (changed(msg_size_min=9, msg_size_max=8), "msg_size_min 9 is above msg_size_max 8"),
        (changed(alg=10), "algorithm 10 of bcast is not known; Open MPI leaves out"),
        (changed(alg=0), "algorithm 0 of bcast"),
        (changed(alg="default"), "algorithm default of bcast is not known"),
        (changed(alg="swing"), "algorithm swing of bcast is not known"),
        (changed(alg=6.0), "alg cannot be 6.0"),
        (changed(segsize=8), "has more than"),
        ('{"rule_file_version": 3, "module": "tuned", "module": "tuned"}', "listed twice"),
    ],
)
def test_files_that_the_library_would_drop_or_misread(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        json_rules.parse(text)


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ('"msg_size_max": 65535', '"msg_size_max": 65534', "65535 bytes on 1 x 4 ranks"),
        ('"alg": 3', '"alg": 1', "allreduce of 0 bytes on 1 x 2 ranks"),
        ('"comm_size_max": 4', '"comm_size_max": 5', "bcast of 1024 bytes on 1 x 5 ranks"),
        ('"collectives": {', '"collectives": {"reduce": [{"rules": [{"alg": 1}]}],', "reduce of 0"),
    ],
)
def test_check_sees_every_change(old: str, new: str, difference: str) -> None:
    text = json.dumps(FILE)
    assert openmpi.check_json(TABLE, text) == []
    assert old in text
    found = openmpi.check_json(TABLE, text.replace(old, new))
    assert any(difference in sentence for sentence in found), found
