"""A table states what its rules do when a rank dies, and may demand an error."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.ladders import table_of
from tuner.cli.commands.fault_trials import state_outcomes
from tuner.core.collective import Collective
from tuner.core.peer_faults import (
    ERROR,
    FAULTS,
    HANG,
    PEER_FAULTS,
    SUCCESS,
    PeerFaults,
    describe_peer_faults,
    stated_outcomes,
)
from tuner.core.table import AlgorithmChoice, TuningTable

OWN = (ERROR, SUCCESS, SUCCESS)
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
    stated = state_outcomes(table, found, "")
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
    chain = table.rules[0]
    demanded = state_outcomes(table, found[1:], ERROR, [chain])
    assert [str(rule.choice) for rule in demanded.rules] == ["default", "binomial", "default"]
    stated = state_outcomes(table, found[1:], None, [chain])
    assert stated.rules == table.rules


def test_rules_that_were_not_tried_are_not_spoken_for(
    table: TuningTable, found: list[PeerFaults]
) -> None:
    chain, binomial, default = state_outcomes(table, found[1:], "").rules
    other = replace(chain, choice=AlgorithmChoice("pipeline"))
    stated = state_outcomes(table, found[1:], "")
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
        {"rules": [1, {}, {"outcomes": {}}, {"outcomes": {"dies": []}, "nbytes": 500}]},
        {"rules": [{"outcomes": {"dies": "\x1b[2J"}, "nbytes": 500}]},
        {"rules": [{"outcomes": dict.fromkeys(FAULTS, ERROR), "default": 5, "nbytes": 500}]},
    ],
)
def test_what_is_stated_otherwise_is_left_out(table: TuningTable, stated: object) -> None:
    told = {PEER_FAULTS: stated}
    damaged = TuningTable(table.cluster, table.library, table.rules, told)
    assert describe_peer_faults(damaged) == ""
