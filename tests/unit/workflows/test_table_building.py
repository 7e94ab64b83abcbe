"""A table for a program has rules for its calls alone."""

from __future__ import annotations

import pytest

from tests.support.ladders import table_of
from tuner.core.call_profile import ProfiledCall
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, TuningTable
from tuner.workflows.table_building import rules_for_calls

DEFAULT, CHAIN, BINOMIAL = AlgorithmChoice(), AlgorithmChoice("chain"), AlgorithmChoice("binomial")
RUNGS = [(0, CHAIN), (1000, BINOMIAL), (100_000, CHAIN), (1 << 20, DEFAULT)]


def bcast(*sizes: int, ppn: int = 4) -> list[ProfiledCall]:
    return [ProfiledCall("bcast", 1, ppn, nbytes, 1) for nbytes in sizes]


@pytest.fixture
def table() -> TuningTable:
    barrier = [(0, AlgorithmChoice("double_ring"))]
    return table_of(
        {(Collective.BCAST, 4): RUNGS, (Collective.BARRIER, 4): barrier}, (64, 2048, 200_000)
    )


def ladder(table: TuningTable, collective: Collective = Collective.BCAST) -> list[tuple[int, str]]:
    own = [rule for rule in table.rules if rule.key.collective == collective]
    return [(rule.start_bytes, str(rule.choice)) for rule in own]


def test_rules_hold_from_the_smallest_to_the_largest_of_their_calls(table: TuningTable) -> None:
    cut = rules_for_calls(table, bcast(2050, 8000, 99_999, 150_001))
    assert ladder(cut) == [
        (0, "default"),
        (2048, "binomial"),  # the last whole element is measured
        (100_000, "default"),
        (150_000, "chain"),
        (200_001, "default"),  # the measured size nearest to the call
    ]
    assert [rule.evidence.nbytes for rule in cut.rules if rule.choice == BINOMIAL] == [(2048,)]


def test_rules_without_calls_are_left_out_also_of_barriers(table: TuningTable) -> None:
    cut = rules_for_calls(table, bcast(2048, ppn=8))
    assert ladder(cut) == [(0, "default")]
    assert ladder(cut, Collective.BARRIER) == [(0, "default")]
    kept = rules_for_calls(table, [ProfiledCall("barrier", 1, 4, 4, 1)])
    assert ladder(kept, Collective.BARRIER) == [(0, "double_ring")]


def test_a_limit_of_rules_is_not_exceeded(table: TuningTable) -> None:
    cut = rules_for_calls(table, bcast(2048, 150_000), max_rules=5)
    assert len(cut.rules) == 5
    assert ladder(cut)[:3] == [(0, "default"), (1000, "binomial"), (100_000, "chain")]


def test_a_call_of_less_than_an_element_has_the_rule_of_one() -> None:
    table = table_of({(Collective.BCAST, 4): RUNGS}, (4,))
    assert ladder(rules_for_calls(table, bcast(1))) == [(0, "chain"), (5, "default")]


def test_a_rule_keeps_the_measured_size_that_stands_for_its_calls() -> None:
    rungs = [(0, DEFAULT), (512, BINOMIAL), (4096, DEFAULT)]
    table = table_of({(Collective.BCAST, 4): rungs}, (900, 3000))
    for nbytes, start, stop in ((1000, 900, 1001), (600, 600, 901), (2500, 2500, 3001)):
        cut = rules_for_calls(table, bcast(nbytes))
        assert ladder(cut) == [(0, "default"), (start, "binomial"), (stop, "default")]
        (kept,) = (rule.evidence for rule in cut.rules if rule.choice == BINOMIAL)
        assert len(kept.nbytes) == 1
        assert start <= kept.nbytes[0] < stop
