"""The tuning table from a selector and comparisons: rules for size ranges, with evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, product
from types import ModuleType

from tuner.base.errors import InputError
from tuner.base.statistics import CONFIDENCE
from tuner.core.measurement import Measurements
from tuner.core.table import AlgorithmChoice, RuleKey, TuningTable
from tuner.select.constraints import UNCONSTRAINED, Constraints
from tuner.select.dataset import MIN_GAIN, group_by
from tuner.select.rule_list import CrossoverCache, RuleList, build_rule_list
from tuner.select.rule_merging import (
    MAX_ADDED_REGRET,
    MAX_REGRET_AT_ONE_SIZE,
    AllowedPredicate,
    SizePartition,
    optimal_partitions,
    smallest_within_loss,
)
from tuner.select.selector import Selector
from tuner.select.significance import Comparison

TARGET_RULE_FRACTION = 0.25  # target, as a fraction of the unmerged rules
MAX_ADDED_REGRET_PER_CALL = 0.01  # mean regret that merging for this target may add to one call
_METHOD = {
    "method": "paired gain over the default, Bonferroni over the candidates of a point, where a"
    " probe measured all of them; elsewhere, and at all calls of an experiment design, a posterior"
    " learned from measurements and simulations",
    "default": "the library's own choice",
}


@dataclass(frozen=True)
class RuleListSet:
    """The rule lists of one call and their regrets at all sizes, for all classes of operators."""

    rule_lists: tuple[RuleList, ...]
    regrets: tuple[float, ...]

    @property
    def total_regret(self) -> float:
        return sum(self.regrets)

    @property
    def worst_regret(self) -> float:
        return max(self.regrets)

    @property
    def n_rules(self) -> int:
        return sum(len(rule_list.rules) for rule_list in self.rule_lists)


@dataclass(frozen=True)
class RuleListBuilder:
    """A builder of the rule lists of one collective on one shape.

    key         for any operator
    comparisons at its probed sizes, ascending
    allowed     for each class of operators that has rules, whether a choice may be used; the class
                `any` is first if present
    crossovers  cache of the sizes at which rules change
    """

    key: RuleKey
    comparisons: Sequence[Comparison]
    allowed: dict[str, AllowedPredicate]
    crossovers: CrossoverCache

    @property
    def n_cases(self) -> int:
        """Return the number of sizes times classes of operators."""
        return len(self.comparisons) * len(self.allowed)

    @property
    def n_unmerged_rules(self) -> int:
        """Return the number of rules with one rule for each size.

        Classes of operators count separately where separate rules have less regret.
        """
        for_any, *others = self._smallest_by_operators
        alone = self._rule_list_set(for_any)
        return for_any.n_unmerged_rules + sum(
            o.n_unmerged_rules
            for o in others
            if alone.total_regret > sum(for_any.regrets) + sum(o.regrets)
        )

    @property
    def smallest(self) -> RuleListSet:
        """Return the rule lists with the fewest rules that add almost no regret.

        Commutative operators have their own rules where the rules for any operator would lose more.
        """
        for_any, *others = self._smallest_by_operators
        alone = self._rule_list_set(for_any)
        if not others or (
            alone.total_regret - sum(for_any.regrets) <= MAX_ADDED_REGRET * len(self.comparisons)
            and alone.worst_regret <= max(MAX_REGRET_AT_ONE_SIZE, *for_any.regrets)
        ):
            return alone
        return self._rule_list_set(for_any, *others)

    def alternatives(self) -> list[RuleListSet]:
        """Return `smallest`, and then all combinations of optimal partitions of the sizes."""
        for_any, *others = (
            [
                self._rule_list(operators, plan)
                for plan in optimal_partitions(self.comparisons, allowed)
            ]
            for operators, allowed in self.allowed.items()
        )
        both = [self._rule_list_set(*pair) for pair in product(for_any, *others)] if others else []
        return [self.smallest, *map(self._rule_list_set, for_any), *both]

    @cached_property
    def _smallest_by_operators(self) -> Sequence[RuleList]:
        return [
            self._rule_list(
                operators, smallest_within_loss(optimal_partitions(self.comparisons, allowed))
            )
            for operators, allowed in self.allowed.items()
        ]

    def _rule_list(self, operators: str, partition: SizePartition) -> RuleList:
        key = replace(self.key, operators=operators)
        return build_rule_list(
            key, partition, self.comparisons, self.allowed[operators], self.crossovers
        )

    def _rule_list_set(self, *rule_lists: RuleList) -> RuleListSet:
        """Return a set in which the first list, for any operator, also serves missing classes."""
        lacking = list(self.allowed.values())[len(rule_lists) :]
        own = [rule_list.regrets for rule_list in rule_lists]
        others = map(rule_lists[0].regrets_for, lacking)
        return RuleListSet(rule_lists, tuple(chain(*own, *others)))


def table_from_comparisons(
    measurements: Measurements,
    comparisons: Iterable[Comparison],
    selector: Selector,
    library: ModuleType,
    constraints: Constraints = UNCONSTRAINED,
) -> TuningTable:
    """Return the table that follows from `comparisons`, one for each point.

    A reduction gets a rule list for `any` operator, with only choices that preserve the order of
    operands, and, if it pays, another one for `commutative` operators. Raises InputError where
    there are no comparisons, and where the constraints leave no table.

    library     module in `tuner.mpi_libraries` of the one that was measured
    """
    ordered = sorted(comparisons, key=lambda one: one.point)
    points = group_by(ordered, lambda one: one.point.key())
    if not points:
        raise InputError("expected measured collectives to make a table of: run the probe")

    def may(key: RuleKey, operators: str, choice: AlgorithmChoice) -> bool:
        safe = operators != "any" or library.preserves_operand_order(key.collective, choice)
        return safe and constraints.is_allowed(measurements.library, key.collective, choice)

    calls = [
        RuleListBuilder(
            key,
            rule_list,
            {one: partial(may, key, one) for one in constraints.operator_classes(key.collective)},
            CrossoverCache(selector, library),
        )
        for key, rule_list in points.items()
    ]
    chosen = _merge_rule_lists(calls, constraints.max_rules)
    provenance = {
        **_METHOD,
        "level": CONFIDENCE,
        "noise": MIN_GAIN,
        "points": sum(map(len, points.values())),
        "compaction": _merging_record(calls, chosen),
        "constraints": constraints.record(),
        "probe": dict(measurements.provenance),
    }
    rules = tuple(rule for each in chosen for own in each.rule_lists for rule in own.rules)
    return TuningTable(measurements.cluster, measurements.library, rules, provenance)


def _merging_record(
    calls: Sequence[RuleListBuilder], chosen: Sequence[RuleListSet]
) -> dict[str, float]:
    """Return how many rules there were before and after merging, and the mean regret it added.

    naive           rules without merging
    rules           rules of the table
    added_regret    mean over sizes and classes of operators
    """
    return {
        "naive": sum(call.n_unmerged_rules for call in calls),
        "rules": sum(each.n_rules for each in chosen),
        "added_regret": sum(each.total_regret for each in chosen)
        / sum(call.n_cases for call in calls),
    }


def _merge_rule_lists(calls: Sequence[RuleListBuilder], max_rules: int | None) -> list[RuleListSet]:
    """Choose the rule lists of each call so that the table is small.

    Start with the smallest list of each call that adds almost no regret. If these exceed the
    target, reduce them further while the added regret stays small, and then, regardless of regret,
    to `max_rules`.
    """
    aim = TARGET_RULE_FRACTION * sum(call.n_unmerged_rules for call in calls)
    found = [call.smallest for call in calls]
    if sum(each.n_rules for each in found) <= (aim if max_rules is None else min(aim, max_rules)):
        return found
    offers = [call.alternatives() for call in calls]
    bearable = [
        [
            each
            for each in own
            if each is own[0]
            or (
                each.total_regret <= MAX_ADDED_REGRET_PER_CALL * call.n_cases
                and each.worst_regret <= max(MAX_REGRET_AT_ONE_SIZE, own[0].worst_regret)
            )
        ]
        for call, own in zip(calls, offers, strict=True)
    ]
    found = reduce_to_target(bearable, aim, MAX_ADDED_REGRET * sum(call.n_cases for call in calls))
    if max_rules is None or sum(each.n_rules for each in found) <= max_rules:
        return found
    return reduce_to_limit(
        [[each, *own] for each, own in zip(found, offers, strict=True)], max_rules
    )


def reduce_to_limit(
    alternatives: Sequence[Sequence[RuleListSet]], max_rules: int
) -> list[RuleListSet]:
    """Return the first of `iter_reductions` with at most `max_rules`; raise InputError if none."""
    for chosen in iter_reductions(alternatives):
        least = sum(offer.n_rules for offer in chosen)
        if least <= max_rules:
            return chosen
    raise InputError(
        f"a table for these calls has {least} rules at least, not {max_rules}: allow"
        " more, or measure fewer collectives and shapes"
    )


def reduce_to_target(
    alternatives: Sequence[Sequence[RuleListSet]], target_rules: float, max_regret: float
) -> list[RuleListSet]:
    """Return the first of `iter_reductions` with at most `target_rules` in total.

    If its regret exceeds `max_regret`, return the last one that does not, or else the first of all.
    """
    found: list[RuleListSet] = []
    for chosen in iter_reductions(alternatives):
        if found and sum(offer.total_regret for offer in chosen) > max_regret:
            break
        found = chosen
        if sum(offer.n_rules for offer in chosen) <= target_rules:
            break
    return found


def iter_reductions(alternatives: Sequence[Sequence[RuleListSet]]) -> Iterator[list[RuleListSet]]:
    """Yield one alternative for each call: at first the first ones, then ever fewer rules in total.

    Each step takes the reduction that costs least regret per rule saved.
    """
    chosen = [offers[0] for offers in alternatives]
    turns = [
        _next_reduction(offer, offers) for offer, offers in zip(chosen, alternatives, strict=True)
    ]
    yield chosen
    while any(turns):
        n = min((turn[0], n) for n, turn in enumerate(turns) if turn)[1]
        turn = turns[n]
        assert turn is not None
        chosen = [*chosen[:n], turn[1], *chosen[n + 1 :]]
        turns[n] = _next_reduction(turn[1], alternatives[n])
        yield chosen


def _next_reduction(
    offer: RuleListSet, offers: Sequence[RuleListSet]
) -> tuple[float, RuleListSet] | None:
    """Return the cheapest alternative with fewer rules, and its added regret per rule saved."""
    turns = [
        ((fewer.total_regret - offer.total_regret) / (offer.n_rules - fewer.n_rules), fewer)
        for fewer in offers
        if fewer.n_rules < offer.n_rules
    ]
    return min(turns, key=lambda turn: turn[0], default=None)
