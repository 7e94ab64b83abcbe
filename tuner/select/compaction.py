"""Few rules instead of one for every probed size: neighbours share one where that costs next to
nothing.

What a rule costs is the expected regret at its sizes: how much longer its choice takes than the
best one that is allowed there. What is close and cannot be told apart by its repetitions costs
nothing: it is no reason to switch. An algorithm is never put at a size at which it does not beat
the default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.errors import InputError
from tuner.select.contest import DEFAULT_CHOICE, Contest
from tuner.table import Choice

LOSS = 0.005  # regret that fewer rules may add, mean over the sizes of a ladder
_CLOSE = 0.05  # a regret from which on medians count even where they are very uncertain
_EQUAL = 1e-12  # costs that differ by rounding alone


@dataclass(frozen=True)
class Group:
    """Neighbouring sizes with one choice; any of `choices` costs as little."""

    choices: frozenset[Choice]
    contests: tuple[Contest, ...]
    cost: float

    @property
    def is_default(self) -> bool:
        """The library decides there."""
        return DEFAULT_CHOICE in self.choices


@dataclass(frozen=True)
class Plan:
    """The groups of a ladder, ascending."""

    groups: tuple[Group, ...] = ()

    @property
    def cost(self) -> float:
        """Sum of the expected regrets at all sizes."""
        return sum(group.cost for group in self.groups)

    @property
    def sizes(self) -> int:
        """How many were probed or are believed in."""
        return sum(len(group.contests) for group in self.groups)

    @property
    def rules(self) -> int:
        """How many these are, with those for the default beyond the probed sizes."""
        ends = (self.groups[0], self.groups[-1])
        return len(self.groups) + sum(not group.is_default for group in ends)


def plans(ladder: Sequence[Contest], allowed: Callable[[Choice], bool]) -> list[Plan]:
    """The cheapest for every number of rules; more rules come later and cost less."""
    costs = [_costs(contest, allowed) for contest in ladder]
    ends: dict[tuple[int, int, bool], Plan] = {(0, 0, False): Plan()}
    for first in range(len(ladder)):
        before = [(count, plan) for (end, count, _), plan in ends.items() if end == first]
        for last in range(first + 1, len(ladder) + 1):
            for group in _groups(ladder[first:last], costs[first:last]):
                for count, plan in before:
                    longer = Plan((*plan.groups, group))
                    spot = (last, count + 1, group.is_default)
                    if spot not in ends or longer.cost < ends[spot].cost - _EQUAL:
                        ends[spot] = longer
    whole = [plan for (end, _, _), plan in ends.items() if end == len(ladder)]
    return _frontier(whole)


def fewest(of: Sequence[Plan], loss: float = LOSS) -> Plan:
    """With the fewest rules that add no more than `loss` to the mean regret."""
    return next(plan for plan in of if plan.cost <= loss * plan.sizes + _EQUAL)


def limited(ladders: Sequence[Sequence[Plan]], most: int | None) -> list[Plan]:
    """One plan for each ladder: `fewest`, and where these are more than `most` rules in all, with
    fewer still, those first that cost the least. Raises InputError where that is impossible.
    """
    chosen = [fewest(ladder) for ladder in ladders]
    while most is not None and sum(plan.rules for plan in chosen) > most:
        steps = [
            ((lower.cost - plan.cost) / (plan.rules - lower.rules), n, lower)
            for n, (plan, ladder) in enumerate(zip(chosen, ladders, strict=True))
            for lower in ladder
            if lower.rules < plan.rules
        ]
        if not steps:
            raise InputError(
                f"a table for these calls has {len(chosen)} rules at least, not {most}: allow more,"
                " or measure fewer collectives and shapes"
            )
        _, n, lower = min(steps, key=lambda step: step[:2])
        chosen[n] = lower
    return chosen


def _frontier(whole: Sequence[Plan]) -> list[Plan]:
    """Without those that another one of as many rules or fewer is as cheap as."""
    ordered = sorted(whole, key=lambda plan: (plan.rules, plan.cost))
    least, found = math.inf, []
    for plan in ordered:
        if plan.cost < least - _EQUAL:
            found.append(plan)
            least = plan.cost
    return found


def _costs(contest: Contest, allowed: Callable[[Choice], bool]) -> dict[Choice, float]:
    """Of what may be used there."""
    winners = [choice for choice in contest.winners if allowed(choice)]
    best = max(sorted(winners, key=str), key=contest.gains.__getitem__, default=DEFAULT_CHOICE)
    return {choice: _regret(contest, choice, best) for choice in (DEFAULT_CHOICE, *winners)}


def _regret(contest: Contest, choice: Choice, best: Choice) -> float:
    regret = contest.gains.get(best, 1.0) / contest.gains.get(choice, 1.0) - 1
    if choice == best or (regret <= _CLOSE and contest.interval(best, choice)[0] <= 1.0):
        return 0.0
    return max(regret, 0.0)


def _groups(contests: Sequence[Contest], costs: Sequence[dict[Choice, float]]) -> list[Group]:
    """Of all these sizes: with the default, and with what else costs the least."""
    shared = set.intersection(*map(set, costs)) - {DEFAULT_CHOICE}
    sums = {choice: sum(cost[choice] for cost in costs) for choice in (DEFAULT_CHOICE, *shared)}
    default = Group(frozenset([DEFAULT_CHOICE]), tuple(contests), sums.pop(DEFAULT_CHOICE))
    if not sums:
        return [default]
    least = min(sums.values())
    equal = frozenset(choice for choice, cost in sums.items() if cost <= least + _EQUAL)
    return [default, Group(equal, tuple(contests), least)]
