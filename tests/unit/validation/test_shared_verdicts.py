"""A call that rules for any operator decide as well is tried once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.support.ladders import table_of
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, Rule, TuningTable
from tuner.validation.shared_verdicts import with_shared_verdicts, without_shared_rules

ALLREDUCE = Collective.ALLREDUCE
DEFAULT, RING, TREE = AlgorithmChoice(), AlgorithmChoice("ring"), AlgorithmChoice("tree")
Ladder = Sequence[tuple[int, AlgorithmChoice]]


def of_both(any_operator: Ladder, commutative: Ladder) -> TuningTable:
    """Return a table with rules for any operator and for commutative ones."""
    table = table_of({(ALLREDUCE, 4): [*any_operator]}, probed=(10, 2000, 5000))
    others = table_of({(ALLREDUCE, 4): [*commutative]}, probed=(10, 2000, 5000)).rules
    own = [replace(r, key=replace(r.key, operators="commutative")) for r in others]
    return TuningTable(table.cluster, table.library, (*table.rules, *own), table.provenance)


def choices(table: TuningTable, operators: str) -> list[tuple[int, float, AlgorithmChoice]]:
    return [
        (rule.start_bytes, rule.stop_bytes, rule.choice)
        for rule in table.rules
        if rule.key.operators == operators
    ]


def test_what_both_name_is_not_tried_again_and_shares_the_verdict() -> None:
    tried = of_both([(0, DEFAULT), (1000, RING)], [(0, DEFAULT), (500, RING), (4000, TREE)])
    left = without_shared_rules(tried, tried, ())
    assert choices(left, "commutative") == [
        (0, 500, DEFAULT),
        (500, 1000, RING),
        (1000, 4000, DEFAULT),
        (4000, math.inf, TREE),
    ]
    assert left.rules[: len(tried.rules) - 3] == tried.rules[:-3]  # those for any operator
    of_any = of_both([(0, DEFAULT), (2000, RING)], [])
    found = with_shared_verdicts(left, tried, of_any, ())
    assert choices(found, "commutative") == [
        (0, 500, DEFAULT),
        (500, 1000, RING),
        (1000, 2000, DEFAULT),
        (2000, 4000, RING),
        (4000, math.inf, TREE),
    ]
    for rule in found.rules:
        if rule.key.operators == "commutative":
            sizes = [n for n in (10, 2000, 5000) if rule.start_bytes <= n < rule.stop_bytes]
            assert list(rule.evidence.nbytes) == sizes


def test_a_collective_that_may_not_be_cut_shares_nothing() -> None:
    tried = of_both([(0, RING)], [(0, RING)])
    assert without_shared_rules(tried, tried, (ALLREDUCE,)).rules == tried.rules
    accepted = of_both([(0, DEFAULT)], [(0, RING)])
    assert with_shared_verdicts(accepted, tried, accepted, (ALLREDUCE,)).rules == accepted.rules


ladders = st.lists(
    st.tuples(st.integers(1, 20), st.sampled_from([DEFAULT, RING, TREE])), max_size=5
).map(
    lambda steps: [
        (0, DEFAULT),
        *sorted({n: (n, one) for n, one in steps}.values(), key=lambda s: s[0]),
    ]
)


@given(ladders, ladders)
def test_where_everything_is_accepted_the_table_stays(own: Ladder, other: Ladder) -> None:
    tried = of_both(own, other)
    found = with_shared_verdicts(without_shared_rules(tried, tried, ()), tried, tried, ())

    def at(table: TuningTable, nbytes: int) -> Rule:
        (key,) = {rule.key for rule in table.rules if rule.key.operators == "commutative"}
        return next(r for r in table.rules_for(key) if r.start_bytes <= nbytes < r.stop_bytes)

    assert [at(found, n).choice for n in range(25)] == [at(tried, n).choice for n in range(25)]
