"""A table states what its rules do when a rank dies, and may demand an error."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from tests.support.ladders import table_of
from tuner.base.errors import InputError
from tuner.cli.commands.fault_trials import known_outcomes, state_outcomes
from tuner.core.collective import Collective
from tuner.core.peer_faults import (
    ERROR,
    FAILS,
    FAULTS,
    HANG,
    PEER_FAULTS,
    SUCCESS,
    PeerFaults,
    describe_peer_faults,
    stated_outcomes,
)
from tuner.core.table import AlgorithmChoice, TuningTable, write_table

OWN = (ERROR, SUCCESS, SUCCESS)
WITH_PLACE = {"nbytes": 500, "hosts": [], "launcher": "mpirun"}
LADDERS = {
    (Collective.BCAST, 4, "any"): [
        (0, AlgorithmChoice("chain")),
        (1000, AlgorithmChoice("binomial")),
        (2000, AlgorithmChoice()),
    ]
}


@pytest.fixture
def table() -> TuningTable:
    return table_of(LADDERS)


@pytest.fixture
def found(table: TuningTable) -> list[PeerFaults]:
    """The first rule hangs where a rank dies."""
    chain, binomial, _ = table.rules
    hangs = PeerFaults(chain, 500, (HANG, SUCCESS, SUCCESS), OWN)
    return [hangs, PeerFaults(binomial, 1500, OWN, OWN)]


def test_a_table_without_outcomes_says_nothing(table: TuningTable) -> None:
    assert describe_peer_faults(table) == ""


def test_outcomes_are_counted(table: TuningTable, found: list[PeerFaults]) -> None:
    stated = state_outcomes(table, found, None)
    assert [str(rule.choice) for rule in stated.rules] == ["chain", "binomial", "default"]
    assert describe_peer_faults(stated) == "when a rank dies: hang in 1, error in 1 of 2 rules"
    assert not found[0].is_as_default
    assert found[1].is_as_default


def test_a_demand_leaves_other_rules_to_the_default(
    table: TuningTable, found: list[PeerFaults]
) -> None:
    demanded = state_outcomes(table, found, ERROR)
    assert [str(rule.choice) for rule in demanded.rules] == ["default", "binomial", "default"]
    assert describe_peer_faults(demanded) == "when a rank dies: error in 1 of 1 rule"


def test_stated_outcomes_are_read_as_they_were_found(
    table: TuningTable, found: list[PeerFaults]
) -> None:
    demanded = state_outcomes(table, found, ERROR)
    assert stated_outcomes(demanded, table.rules) == found
    assert str(found[0]) == (
        "bcast on 4 ranks at 500B, chain: rank dies: hang, stops: success, is late: success"
        " (library alone: error, success, success)"
    )
    assert str(found[1]).endswith("binomial: rank dies: error, stops: success, is late: success")


def test_a_demand_leaves_rules_to_the_default_until_they_are_tried(
    table: TuningTable, found: list[PeerFaults]
) -> None:
    gpu = replace(table.rules[0], key=replace(table.rules[0].key, memory="cuda"), stop_bytes=inf)
    wider = TuningTable(table.cluster, table.library, (*table.rules, gpu))
    demanded = state_outcomes(wider, found[1:], ERROR)
    assert sorted(str(rule.choice) for rule in demanded.rules) == ["binomial", *["default"] * 3]
    stated = state_outcomes(wider, found[1:], None)
    assert stated.rules == wider.rules


def test_outcomes_do_not_speak_for_calls_of_other_memory(
    table: TuningTable, found: list[PeerFaults]
) -> None:
    chain = table.rules[0]
    gpu = replace(chain, key=replace(chain.key, memory="cuda"), stop_bytes=inf)
    wider = TuningTable(table.cluster, table.library, (*table.rules, gpu))
    assert stated_outcomes(state_outcomes(wider, found, None), [gpu]) == []


def test_outcomes_hold_where_they_were_found_unless_the_ranks_failed(
    found: list[PeerFaults],
) -> None:
    one = replace(found[0], hosts=("a", "b"), launcher="mpirun")
    assert one.holds_for(["a", "b"], "mpirun")
    assert not one.holds_for(["a", "c"], "mpirun")
    assert not one.holds_for(["a", "b"], "srun")
    failed = replace(one, outcomes=(FAILS, SUCCESS, SUCCESS))
    assert not failed.holds_for(["a", "b"], "mpirun")


def test_only_a_file_of_the_same_rules_is_continued(
    table: TuningTable, found: list[PeerFaults], tmp_path: Path
) -> None:
    out = tmp_path / "stated.json"
    write_table(state_outcomes(table, found, ERROR), out)
    assert known_outcomes(table, out) == found
    chain, *rest = table.rules
    changed = replace(chain, choice=AlgorithmChoice("pipeline"))
    other = TuningTable(table.cluster, table.library, (changed, *rest))
    with pytest.raises(InputError, match=r"stated\.json: expected a table of outcomes"):
        known_outcomes(other, out)
    write_table(table, out)  # a table that states nothing
    with pytest.raises(InputError, match=r"stated\.json: expected a table of outcomes"):
        known_outcomes(table, out)


def test_rules_that_were_not_tried_are_not_spoken_for(
    table: TuningTable, found: list[PeerFaults]
) -> None:
    chain, binomial, default = state_outcomes(table, found[1:], None).rules
    other = replace(chain, choice=AlgorithmChoice("pipeline"))
    stated = state_outcomes(table, found[1:], None)
    changed = TuningTable(
        table.cluster, table.library, (other, binomial, default), stated.provenance
    )
    assert describe_peer_faults(changed) == "when a rank dies: error in 1 of 1 rule"


def test_a_withdrawn_rule_does_not_speak_for_others_with_its_choice() -> None:
    chain, default = AlgorithmChoice("chain"), AlgorithmChoice()
    rungs = [(0, chain), (1000, default), (2000, chain)]
    table = table_of({(Collective.BCAST, 4, "any"): rungs})
    small, _, large = table.rules
    found = [
        PeerFaults(small, 500, (HANG, SUCCESS, SUCCESS), OWN),
        PeerFaults(large, 4096, OWN, OWN),
    ]
    demanded = state_outcomes(table, found, ERROR)
    assert describe_peer_faults(demanded) == "when a rank dies: error in 1 of 1 rule"


@pytest.mark.parametrize(
    "stated",
    [
        5,
        [],
        {},
        {"rules": 5},
        {"rules": [1, {}, {"outcomes": {}}, {**WITH_PLACE, "outcomes": {"dies": []}}]},
        {"rules": [{**WITH_PLACE, "outcomes": {"dies": "\x1b[2J"}}]},
        {"rules": [{**WITH_PLACE, "outcomes": dict.fromkeys(FAULTS, ERROR), "default": 5}]},
        {"rules": [{**WITH_PLACE, "hosts": [5]}]},
    ],
)
def test_what_is_stated_otherwise_is_left_out(table: TuningTable, stated: object) -> None:
    told = {PEER_FAULTS: stated}
    damaged = TuningTable(table.cluster, table.library, table.rules, told)
    assert describe_peer_faults(damaged) == ""
