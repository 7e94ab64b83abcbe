"""Few rules instead of one for every probed size: neighbours share one where that costs next to
nothing.

What a rule costs is the expected regret at its sizes: how much longer its choice takes than the
best one that is allowed there. What is close and cannot be told apart by its repetitions costs
nothing: it is no reason to switch. An algorithm is never put at a size at which it does not beat
the default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tuner.base.errors import InputError
from tuner.core.table import AlgorithmConfig
from tuner.select.significance import DEFAULT_CONFIG, Comparison

AllowedPredicate = Callable[[AlgorithmConfig], bool]
MAX_ADDED_REGRET = 0.005  # regret that fewer rules may add, mean over the sizes of a ladder
_MIN_SIGNIFICANT_REGRET = (
    0.05  # a regret from which on times count even where they are very uncertain
)
_TOLERANCE = 1e-12  # costs that differ by rounding alone


@dataclass(frozen=True)
class SizeGroup:
    """Neighbouring sizes with one choice; any of `choices` costs as little."""

    configs: frozenset[AlgorithmConfig]
    comparisons: tuple[Comparison, ...]
    total_regret: float

    @property
    def is_default(self) -> bool:
        """The library decides there."""
        return DEFAULT_CONFIG in self.configs


@dataclass(frozen=True)
class SizePartition:
    """The groups of a ladder, ascending."""

    groups: tuple[SizeGroup, ...] = ()

    @property
    def total_regret(self) -> float:
        """Sum of the expected regrets at all sizes."""
        return sum(group.total_regret for group in self.groups)

    @property
    def n_sizes(self) -> int:
        """How many were probed or are believed in."""
        return sum(len(group.comparisons) for group in self.groups)

    @property
    def n_rules(self) -> int:
        """How many these are, with those for the default beyond the probed sizes."""
        ends = (self.groups[0], self.groups[-1])
        return len(self.groups) + sum(not group.is_default for group in ends)


def optimal_partitions(
    comparisons: Sequence[Comparison], allowed: AllowedPredicate
) -> list[SizePartition]:
    """The cheapest for every number of rules; more rules come later and cost less."""
    costs = [_regrets_by_config(contest, allowed) for contest in comparisons]
    ends: dict[tuple[int, int, bool], SizePartition] = {(0, 0, False): SizePartition()}
    for first in range(len(comparisons)):
        before = [(count, plan) for (end, count, _), plan in ends.items() if end == first]
        for last in range(first + 1, len(comparisons) + 1):
            for group in _candidate_groups(comparisons[first:last], costs[first:last]):
                for count, plan in before:
                    longer = SizePartition((*plan.groups, group))
                    spot = (last, count + 1, group.is_default)
                    if (
                        spot not in ends
                        or longer.total_regret < ends[spot].total_regret - _TOLERANCE
                    ):
                        ends[spot] = longer
    whole = [plan for (end, _, _), plan in ends.items() if end == len(comparisons)]
    return _pareto_front(whole)


def smallest_within_loss(
    partitions: Sequence[SizePartition], loss: float = MAX_ADDED_REGRET
) -> SizePartition:
    """With the fewest rules that add no more than `loss` to the mean regret."""
    return next(
        plan for plan in partitions if plan.total_regret <= loss * plan.n_sizes + _TOLERANCE
    )


def drop_group(partition: SizePartition, index: int, allowed: AllowedPredicate) -> SizePartition:
    """The default instead of one of the groups, and of the default's beside it one group."""
    contests: list[Comparison] = []
    first, last = index, index + 1
    while first > 0 and partition.groups[first - 1].is_default:
        first -= 1
    while last < len(partition.groups) and partition.groups[last].is_default:
        last += 1
    for group in partition.groups[first:last]:
        contests += group.comparisons
    cost = sum(expected_regret(contest, DEFAULT_CONFIG, allowed) for contest in contests)
    joined = SizeGroup(frozenset([DEFAULT_CONFIG]), tuple(contests), cost)
    return SizePartition((*partition.groups[:first], joined, *partition.groups[last:]))


class RuleAlternative(Protocol):
    """One way to decide some calls."""

    @property
    def n_rules(self) -> int:
        """Of its rules."""

    @property
    def total_regret(self) -> float:
        """Sum of the expected regrets at all sizes."""


T = TypeVar("T", bound=RuleAlternative)


def reduce_to_limit(alternatives: Sequence[Sequence[T]], max_rules: int) -> list[T]:
    """The first of `thinned` with at most so many rules. Raises InputError where there is none."""
    for chosen in iter_reductions(alternatives):
        least = sum(offer.n_rules for offer in chosen)
        if least <= max_rules:
            return chosen
    raise InputError(
        f"a table for these calls has {least} rules at least, not {max_rules}: allow"
        " more, or measure"
        " fewer collectives and shapes"
    )


def reduce_to_target(
    alternatives: Sequence[Sequence[T]], target_rules: float, max_regret: float
) -> list[T]:
    """The first of `thinned` with as few rules as aimed at, or the last that costs no more."""
    found: list[T] = []
    for chosen in iter_reductions(alternatives):
        if found and sum(offer.total_regret for offer in chosen) > max_regret:
            break
        found = chosen
        if sum(offer.n_rules for offer in chosen) <= target_rules:
            break
    return found


def iter_reductions(alternatives: Sequence[Sequence[T]]) -> Iterator[list[T]]:
    """One offer for each of the calls: their first, and then ever fewer rules in all; those go
    first that cost the least for each rule.
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


def _next_reduction(offer: T, offers: Sequence[T]) -> tuple[float, T] | None:
    """The next offer of fewer rules, and what it costs for each."""
    turns = [
        ((fewer.total_regret - offer.total_regret) / (offer.n_rules - fewer.n_rules), fewer)
        for fewer in offers
        if fewer.n_rules < offer.n_rules
    ]
    return min(turns, key=lambda turn: turn[0], default=None)


def expected_regret(
    comparison: Comparison, choice: AlgorithmConfig, allowed: AllowedPredicate
) -> float:
    """What a choice costs at one size, among those that are allowed."""
    return _regret(comparison, choice, _best(comparison, allowed))


def _pareto_front(partitions: Sequence[SizePartition]) -> list[SizePartition]:
    """Without those that another one of as many rules or fewer is as cheap as."""
    ordered = sorted(partitions, key=lambda plan: (plan.n_rules, plan.total_regret))
    least, found = math.inf, []
    for plan in ordered:
        if plan.total_regret < least - _TOLERANCE:
            found.append(plan)
            least = plan.total_regret
    return found


def _regrets_by_config(
    comparison: Comparison, allowed: AllowedPredicate
) -> dict[AlgorithmConfig, float]:
    """Of what may be used there."""
    best = _best(comparison, allowed)
    winners = filter(allowed, comparison.winners)
    return {choice: _regret(comparison, choice, best) for choice in (DEFAULT_CONFIG, *winners)}


def _best(comparison: Comparison, allowed: AllowedPredicate) -> AlgorithmConfig:
    winners = sorted(filter(allowed, comparison.winners), key=str)
    return max(winners, key=comparison.gains.__getitem__, default=DEFAULT_CONFIG)


def _regret(comparison: Comparison, choice: AlgorithmConfig, best: AlgorithmConfig) -> float:
    regret = comparison.gains.get(best, 1.0) / comparison.gains.get(choice, 1.0) - 1
    if choice == best or (
        regret <= _MIN_SIGNIFICANT_REGRET and comparison.interval(best, choice)[0] <= 1.0
    ):
        return 0.0
    return max(regret, 0.0)


def _candidate_groups(
    comparisons: Sequence[Comparison], costs: Sequence[dict[AlgorithmConfig, float]]
) -> list[SizeGroup]:
    """Of all these sizes: with the default, and with what else costs the least."""
    shared = set.intersection(*map(set, costs)) - {DEFAULT_CONFIG}
    sums = {choice: sum(cost[choice] for cost in costs) for choice in (DEFAULT_CONFIG, *shared)}
    default = SizeGroup(frozenset([DEFAULT_CONFIG]), tuple(comparisons), sums.pop(DEFAULT_CONFIG))
    if not sums:
        return [default]
    least = min(sums.values())
    equal = frozenset(choice for choice, cost in sums.items() if cost <= least + _TOLERANCE)
    return [default, SizeGroup(equal, tuple(comparisons), least)]
