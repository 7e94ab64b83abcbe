"""Merging of rules: neighbouring probed sizes share one where that costs almost nothing.

The cost of a rule is the expected regret at its sizes: how much longer its choice takes than the
best one that is allowed there. A small difference that the repetitions cannot distinguish costs
nothing. An algorithm is never used at a size at which it does not beat the default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.core.table import AlgorithmChoice
from tuner.select.significance import DEFAULT_CHOICE, Comparison

AllowedPredicate = Callable[[AlgorithmChoice], bool]
MAX_ADDED_REGRET = 0.005  # regret that merging may add, mean over the sizes of a rule list
MAX_REGRET_AT_ONE_SIZE = 0.05  # regret that merging may add to any size
_MIN_SIGNIFICANT_REGRET = 0.05  # from this regret on, times count even if they are very uncertain
_TOLERANCE = 1e-12  # for regrets that differ by rounding alone


@dataclass(frozen=True)
class SizeGroup:
    """Neighbouring sizes with one choice; all of `choices` have the same total regret.

    worst_regret    largest regret that one of them has at a size
    """

    choices: frozenset[AlgorithmChoice]
    comparisons: tuple[Comparison, ...]
    total_regret: float
    worst_regret: float

    @property
    def is_default(self) -> bool:
        """Return whether the library default is among the choices."""
        return DEFAULT_CHOICE in self.choices


@dataclass(frozen=True)
class SizePartition:
    """A partition of the sizes of a rule list into groups, ascending."""

    groups: tuple[SizeGroup, ...] = ()

    @property
    def total_regret(self) -> float:
        return sum(group.total_regret for group in self.groups)

    @property
    def worst_regret(self) -> float:
        """Return the largest regret at a size."""
        return max(group.worst_regret for group in self.groups)

    @property
    def n_sizes(self) -> int:
        """Return the number of sizes, measured or predicted."""
        return sum(len(group.comparisons) for group in self.groups)

    @property
    def n_rules(self) -> int:
        """Return the number of rules, with those for the default beyond the probed sizes."""
        ends = (self.groups[0], self.groups[-1])
        return len(self.groups) + sum(not group.is_default for group in ends)


def optimal_partitions(
    comparisons: Sequence[Comparison], allowed: AllowedPredicate
) -> list[SizePartition]:
    """Return the partition with least regret for every number of rules, in ascending number.

    More rules are only included if they have less regret.
    """
    costs = [_regrets_by_choice(comparison, allowed) for comparison in comparisons]
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


def smallest_within_loss(partitions: Sequence[SizePartition]) -> SizePartition:
    """Return the partition with fewest rules that adds at most MAX_ADDED_REGRET to the mean.

    It adds at most MAX_REGRET_AT_ONE_SIZE to any size.
    """
    return next(
        plan
        for plan in partitions
        if plan.total_regret <= MAX_ADDED_REGRET * plan.n_sizes + _TOLERANCE
        and plan.worst_regret <= MAX_REGRET_AT_ONE_SIZE
    )


def drop_group(partition: SizePartition, index: int, allowed: AllowedPredicate) -> SizePartition:
    """Replace one group by the default, and merge it with neighbouring groups of the default."""
    comparisons: list[Comparison] = []
    first, last = index, index + 1
    while first > 0 and partition.groups[first - 1].is_default:
        first -= 1
    while last < len(partition.groups) and partition.groups[last].is_default:
        last += 1
    for group in partition.groups[first:last]:
        comparisons += group.comparisons
    costs = [expected_regret(comparison, DEFAULT_CHOICE, allowed) for comparison in comparisons]
    joined = SizeGroup(frozenset([DEFAULT_CHOICE]), tuple(comparisons), sum(costs), max(costs))
    return SizePartition((*partition.groups[:first], joined, *partition.groups[last:]))


def expected_regret(
    comparison: Comparison, choice: AlgorithmChoice, allowed: AllowedPredicate
) -> float:
    """Return the regret of a choice at one size, relative to the best allowed one."""
    return _regret(comparison, choice, _best(comparison, allowed))


def _pareto_front(partitions: Sequence[SizePartition]) -> list[SizePartition]:
    """Return the partitions that no other one with at most as many rules equals in regret."""
    ordered = sorted(partitions, key=lambda plan: (plan.n_rules, plan.total_regret))
    least, found = math.inf, []
    for plan in ordered:
        if plan.total_regret < least - _TOLERANCE:
            found.append(plan)
            least = plan.total_regret
    return found


def _regrets_by_choice(
    comparison: Comparison, allowed: AllowedPredicate
) -> dict[AlgorithmChoice, float]:
    """Return the regrets of the default and of the allowed winners."""
    best = _best(comparison, allowed)
    winners = filter(allowed, comparison.winners)
    return {choice: _regret(comparison, choice, best) for choice in (DEFAULT_CHOICE, *winners)}


def _best(comparison: Comparison, allowed: AllowedPredicate) -> AlgorithmChoice:
    winners = sorted(filter(allowed, comparison.winners), key=str)
    return max(winners, key=comparison.gains.__getitem__, default=DEFAULT_CHOICE)


def _regret(comparison: Comparison, choice: AlgorithmChoice, best: AlgorithmChoice) -> float:
    regret = comparison.gains.get(best, 1.0) / comparison.gains.get(choice, 1.0) - 1
    if choice == best or (
        regret <= _MIN_SIGNIFICANT_REGRET and comparison.interval(best, choice)[0] <= 1.0
    ):
        return 0.0
    return max(regret, 0.0)


def _candidate_groups(
    comparisons: Sequence[Comparison], costs: Sequence[dict[AlgorithmChoice, float]]
) -> list[SizeGroup]:
    """Return groups of all these sizes: one with the default, one with the best common winners."""
    shared = set.intersection(*map(set, costs)) - {DEFAULT_CHOICE}
    sums = {choice: sum(cost[choice] for cost in costs) for choice in (DEFAULT_CHOICE, *shared)}
    least = min((sums[choice] for choice in shared), default=math.inf)
    equal = frozenset(choice for choice in shared if sums[choice] <= least + _TOLERANCE)
    return [
        SizeGroup(
            choices,
            tuple(comparisons),
            min(sums[choice] for choice in choices),
            max(cost[choice] for cost in costs for choice in choices),
        )
        for choices in (frozenset([DEFAULT_CHOICE]), equal)
        if choices
    ]
