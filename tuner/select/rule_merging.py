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
from tuner.core.table import Choice
from tuner.select.significance import DEFAULT_CHOICE, Contest

Allowed = Callable[[Choice], bool]
LOSS = 0.005  # regret that fewer rules may add, mean over the sizes of a ladder
_CLOSE = 0.05  # a regret from which on times count even where they are very uncertain
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


def plans(ladder: Sequence[Contest], allowed: Allowed) -> list[Plan]:
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


def leaving(plan: Plan, number: int, allowed: Allowed) -> Plan:
    """The default instead of one of the groups, and of the default's beside it one group."""
    contests: list[Contest] = []
    first, last = number, number + 1
    while first > 0 and plan.groups[first - 1].is_default:
        first -= 1
    while last < len(plan.groups) and plan.groups[last].is_default:
        last += 1
    for group in plan.groups[first:last]:
        contests += group.contests
    cost = sum(cost_of(contest, DEFAULT_CHOICE, allowed) for contest in contests)
    joined = Group(frozenset([DEFAULT_CHOICE]), tuple(contests), cost)
    return Plan((*plan.groups[:first], joined, *plan.groups[last:]))


class Offer(Protocol):
    """One way to decide some calls."""

    @property
    def number(self) -> int:
        """Of its rules."""

    @property
    def cost(self) -> float:
        """Sum of the expected regrets at all sizes."""


T = TypeVar("T", bound=Offer)


def limited(calls: Sequence[Sequence[T]], most: int) -> list[T]:
    """The first of `thinned` with at most so many rules. Raises InputError where there is none."""
    for chosen in thinned(calls):
        least = sum(offer.number for offer in chosen)
        if least <= most:
            return chosen
    raise InputError(
        f"a table for these calls has {least} rules at least, not {most}: allow more, or measure"
        " fewer collectives and shapes"
    )


def lean(calls: Sequence[Sequence[T]], aim: float, cost: float) -> list[T]:
    """The first of `thinned` with as few rules as aimed at, or the last that costs no more."""
    found: list[T] = []
    for chosen in thinned(calls):
        if found and sum(offer.cost for offer in chosen) > cost:
            break
        found = chosen
        if sum(offer.number for offer in chosen) <= aim:
            break
    return found


def thinned(calls: Sequence[Sequence[T]]) -> Iterator[list[T]]:
    """One offer for each of the calls: their first, and then ever fewer rules in all; those go
    first that cost the least for each rule.
    """
    chosen = [offers[0] for offers in calls]
    turns = [_next(offer, offers) for offer, offers in zip(chosen, calls, strict=True)]
    yield chosen
    while any(turns):
        n = min((turn[0], n) for n, turn in enumerate(turns) if turn)[1]
        turn = turns[n]
        assert turn is not None
        chosen = [*chosen[:n], turn[1], *chosen[n + 1 :]]
        turns[n] = _next(turn[1], calls[n])
        yield chosen


def _next(offer: T, offers: Sequence[T]) -> tuple[float, T] | None:
    """The next offer of fewer rules, and what it costs for each."""
    turns = [
        ((fewer.cost - offer.cost) / (offer.number - fewer.number), fewer)
        for fewer in offers
        if fewer.number < offer.number
    ]
    return min(turns, key=lambda turn: turn[0], default=None)


def cost_of(contest: Contest, choice: Choice, allowed: Allowed) -> float:
    """What a choice costs at one size, among those that are allowed."""
    return _regret(contest, choice, _best(contest, allowed))


def _frontier(whole: Sequence[Plan]) -> list[Plan]:
    """Without those that another one of as many rules or fewer is as cheap as."""
    ordered = sorted(whole, key=lambda plan: (plan.rules, plan.cost))
    least, found = math.inf, []
    for plan in ordered:
        if plan.cost < least - _EQUAL:
            found.append(plan)
            least = plan.cost
    return found


def _costs(contest: Contest, allowed: Allowed) -> dict[Choice, float]:
    """Of what may be used there."""
    best = _best(contest, allowed)
    winners = filter(allowed, contest.winners)
    return {choice: _regret(contest, choice, best) for choice in (DEFAULT_CHOICE, *winners)}


def _best(contest: Contest, allowed: Allowed) -> Choice:
    winners = sorted(filter(allowed, contest.winners), key=str)
    return max(winners, key=contest.gains.__getitem__, default=DEFAULT_CHOICE)


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
