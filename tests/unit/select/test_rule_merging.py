"""Few rules where that costs next to nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import MEASURED, AlgorithmChoice, Evidence, Rule, RuleKey
from tuner.select.build_rules import RuleListSet, iter_reductions, reduce_to_limit, reduce_to_target
from tuner.select.dataset import CallPoint, Observation
from tuner.select.rule_list import RuleList
from tuner.select.rule_merging import (
    MAX_ADDED_REGRET,
    drop_group,
    optimal_partitions,
    smallest_within_loss,
)
from tuner.select.significance import Comparison, compare_with_default

DEFAULT, RING, TREE = AlgorithmChoice(), AlgorithmChoice("ring"), AlgorithmChoice("binomial")


def contest(
    nbytes: int, gains: Mapping[AlgorithmChoice, float], spread: float = 1e-4
) -> Comparison:
    """Repetitions that differ by `spread`."""
    point = CallPoint("allreduce", 8, 1, "host", nbytes)
    seconds = {DEFAULT: 1.0, **{choice: 1 / gain for choice, gain in gains.items()}}
    rows = [
        Observation(
            point, choice, {0: tuple(t * (1 + spread * (k % 5 - 2)) for k in range(15))}, t, t, t
        )
        for choice, t in seconds.items()
    ]
    return compare_with_default(point, rows)


def ladder(*gains: Mapping[AlgorithmChoice, float]) -> list[Comparison]:
    return [contest(4**n, each) for n, each in enumerate(gains, start=5)]


def chosen(contests: Sequence[Comparison]) -> list[str]:
    plan = smallest_within_loss(optimal_partitions(contests, lambda _: True))
    return [str(min(group.choices, key=str)) for group in plan.groups]


def test_an_algorithm_that_is_better_next_to_nowhere_gets_no_rule() -> None:
    both = [{RING: 2.0, TREE: 1.9}] * 20
    assert chosen(ladder(*both, {RING: 2.0, TREE: 2.09})) == ["ring"]
    assert chosen(ladder(*both, {RING: 2.0, TREE: 2.11})) == ["ring", "binomial"]
    assert chosen(ladder({RING: 2.0, TREE: 1.5}, {RING: 2.0, TREE: 2.5})) == ["ring", "binomial"]


def test_what_cannot_be_told_apart_does_not_alternate() -> None:
    assert len(chosen(ladder(*[{RING: 2.0, TREE: 2.02}, {RING: 2.02, TREE: 2.0}] * 4))) == 1
    assert len(chosen(ladder(*[{RING: 2.0, TREE: 2.3}, {RING: 2.3, TREE: 2.0}] * 4))) == 8


def test_uncertain_times_excuse_no_large_loss() -> None:
    wild = [contest(4096, {RING: 2.0, TREE: 2.01}), contest(65536, {RING: 2.0, TREE: 1.7}, 0.2)]
    assert chosen(wild) == ["ring"]


def test_an_algorithm_never_takes_a_size_at_which_it_does_not_beat_the_default() -> None:
    gains = [{RING: 2.0}] * 30
    gains[15] = {RING: 0.999}
    assert chosen(ladder(*gains)) == ["ring", "default", "ring"]


def test_a_gain_at_one_of_very_many_sizes_has_a_rule() -> None:
    gains = [{RING: 0.9}] * 30
    gains[15] = {RING: 1.12}
    assert chosen(ladder(*gains)) == ["default", "ring", "default"]


@given(
    st.lists(
        st.fixed_dictionaries({RING: st.floats(0.7, 3.0), TREE: st.floats(0.7, 3.0)}),
        min_size=1,
        max_size=8,
    )
)
def test_more_rules_cost_less_and_the_fewest_stay_below_the_loss(
    gains: list[Mapping[AlgorithmChoice, float]],
) -> None:
    contests = ladder(*gains)
    found = optimal_partitions(contests, lambda _: True)
    assert [plan.n_rules for plan in found] == sorted({plan.n_rules for plan in found})
    assert [plan.total_regret for plan in found] == sorted(
        (plan.total_regret for plan in found), reverse=True
    )
    assert found[0].n_rules == 1
    assert found[-1].total_regret == pytest.approx(0.0)
    for plan in found:
        assert [c for group in plan.groups for c in group.comparisons] == contests
        for group in plan.groups:
            assert all(group.choices - {DEFAULT} <= c.winners for c in group.comparisons)
    assert smallest_within_loss(found).total_regret <= MAX_ADDED_REGRET * len(contests) + 1e-9


def way(n_rules: int, total_regret: float) -> RuleListSet:
    """Return rules of a call."""
    rule = Rule(RuleKey(Collective.BCAST, 4, 1), 0, math.inf, RING, Evidence(MEASURED))
    return RuleListSet((RuleList((rule,) * n_rules, (), ()),), (total_regret,))


def test_a_limit_takes_the_rules_that_gain_the_least() -> None:
    small, large = [way(3, 0.0), way(1, 0.2)], [way(3, 0.0), way(1, 2.0)]
    assert reduce_to_limit([small, large], 6) == [way(3, 0.0), way(3, 0.0)]
    assert reduce_to_limit([small, large], 4) == [way(1, 0.2), way(3, 0.0)]
    assert reduce_to_limit([small, large], 2) == [way(1, 0.2), way(1, 2.0)]
    with pytest.raises(InputError, match="has 2 rules at least, not 1"):
        reduce_to_limit([small, large], 1)


def test_rules_go_until_there_are_as_few_as_aimed_at_or_too_much_is_lost() -> None:
    calls = [[way(5, 0.0), way(3, 0.1), way(1, 0.6)], [way(5, 0.0), way(1, 0.3)]]
    numbers = [[own.n_rules for own in chosen] for chosen in iter_reductions(calls)]
    assert numbers == [[5, 5], [3, 5], [3, 1], [1, 1]]
    assert sum(own.n_rules for own in reduce_to_target(calls, 8, 10.0)) == 8
    assert sum(own.n_rules for own in reduce_to_target(calls, 2, 0.45)) == 4
    assert reduce_to_target(calls, 2, -1.0) == [way(5, 0.0), way(5, 0.0)]


def test_a_group_that_is_left_joins_the_default_beside_it() -> None:
    gains = [{RING: 0.9}, {RING: 1.5}, {RING: 0.9}, {TREE: 2.0}]
    plan = smallest_within_loss(optimal_partitions(ladder(*gains), lambda _: True))
    assert [len(group.comparisons) for group in plan.groups] == [1, 1, 1, 1]
    left = drop_group(plan, 1, lambda _: True)
    assert [len(group.comparisons) for group in left.groups] == [3, 1]
    assert [group.is_default for group in left.groups] == [True, False]
    assert left.total_regret == pytest.approx(plan.total_regret + 0.5, rel=1e-3)
    assert drop_group(plan, 1, lambda choice: choice != RING).total_regret == pytest.approx(
        plan.total_regret
    )
