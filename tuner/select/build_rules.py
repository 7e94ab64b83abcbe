"""Selector and measurements to `TuningTable`: what to use from which size on, with evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product

from tuner.base.errors import InputError
from tuner.base.statistics import LEVEL
from tuner.core.measurement import Measurements
from tuner.core.table import Choice, Key, TuningTable
from tuner.select.constraints import ANYTHING, Constraints, OrderSafe
from tuner.select.dataset import NOISE
from tuner.select.rule_list import Ladder, Redirected, Switches, drawn
from tuner.select.rule_merging import LOSS, Allowed, Plan, fewest, lean, limited, plans
from tuner.select.selector import Selector
from tuner.select.significance import Contest

SHARE = 0.25  # of the rules without compaction: what is aimed at
MOST = 0.01  # regret that fewer rules may add to one call for that


@dataclass(frozen=True)
class Decided:
    """The ladders of one call, and what they cost calls of all classes of operators."""

    ladders: tuple[Ladder, ...]
    cost: float

    @property
    def number(self) -> int:
        """Of the rules."""
        return sum(len(ladder.rules) for ladder in self.ladders)


@dataclass(frozen=True)
class Call:
    """A collective on one shape, and who may run it.

    key         for any operator
    contests    at its probed sizes, ascending
    allowed     for each class of operators that has rules, those for any first
    """

    key: Key
    contests: Sequence[Contest]
    allowed: dict[str, Allowed]
    switches: Switches

    @property
    def cases(self) -> int:
        """Sizes and classes of operators."""
        return len(self.contests) * len(self.allowed)

    @property
    def naive(self) -> int:
        """How many rules these would be with one for each size, and class of operators if it
        matters.
        """
        for_any, *others = self._fewest
        alone = self._decided(for_any)
        return for_any.naive + sum(o.naive for o in others if alone.cost > for_any.cost + o.cost)

    @property
    def fewest(self) -> Decided:
        """By ladders of the fewest rules that lose next to nothing. Commutative operators have
        rules of their own where those for any operator would lose more.
        """
        for_any, *others = self._fewest
        alone = self._decided(for_any)
        if not others or alone.cost - for_any.cost <= LOSS * for_any.sizes:
            return alone
        return self._decided(for_any, *others)

    def offers(self) -> list[Decided]:
        """`fewest`, and then every way by plans of as many or as few rules."""
        for_any, *others = (
            [self._ladder(operators, plan) for plan in plans(self.contests, allowed)]
            for operators, allowed in self.allowed.items()
        )
        both = [self._decided(*pair) for pair in product(for_any, *others)] if others else []
        return [self.fewest, *map(self._decided, for_any), *both]

    @cached_property
    def _fewest(self) -> Sequence[Ladder]:
        return [
            self._ladder(operators, fewest(plans(self.contests, allowed)))
            for operators, allowed in self.allowed.items()
        ]

    def _ladder(self, operators: str, plan: Plan) -> Ladder:
        key = replace(self.key, operators=operators)
        return drawn(key, plan, self.contests, self.allowed[operators], self.switches)

    def _decided(self, *ladders: Ladder) -> Decided:
        """Where a ladder is missing, the one for any operator holds."""
        lacking = list(self.allowed.values())[len(ladders) :]
        cost = sum(ladder.cost for ladder in ladders)
        return Decided(ladders, cost + sum(map(ladders[0].cost_for, lacking)))


def tabulate(
    measurements: Measurements,
    contests: Iterable[Contest],
    selector: Selector,
    order_safe: OrderSafe,
    constraints: Constraints = ANYTHING,
    noise: float = NOISE,
    redirected: Redirected = lambda _collective, _choice, _p, _nbytes: "",
) -> TuningTable:
    """The table of everything that `contests`, one for each point, decide.

    A collective that reduces gets a ladder for `any` operator, of choices that are `order_safe`
    alone, and, where that pays, one for `commutative` operators. Raises InputError where there are
    no contests, and where the constraints leave no table.
    """
    points: dict[Key, list[Contest]] = {}
    for contest in sorted(contests, key=lambda contest: contest.point):
        points.setdefault(contest.point.key(), []).append(contest)
    if not points:
        raise InputError("there is no measured collective to make a table of; run the probe")

    def may(key: Key, operators: str, choice: Choice) -> bool:
        safe = operators != "any" or order_safe(key.collective, choice)
        return safe and constraints.allow(measurements.library, key.collective, choice)

    calls = [
        Call(
            key,
            ladder,
            {
                operators: partial(may, key, operators)
                for operators in constraints.operators(key.collective)
            },
            Switches(selector, redirected),
        )
        for key, ladder in points.items()
    ]
    chosen = _decided(calls, constraints.rules)
    rules = [rule for each in chosen for ladder in each.ladders for rule in ladder.rules]
    provenance = {
        "method": "paired gain over the default, Bonferroni over the candidates of a point;"
        " elsewhere a belief learned from measurements and simulations",
        "default": "the library's own choice",
        "level": LEVEL,
        "noise": noise,
        "points": sum(map(len, points.values())),
        "compaction": _compaction(calls, chosen),
        "constraints": constraints.record(),
        "probe": dict(measurements.provenance),
    }
    return TuningTable(measurements.cluster, measurements.library, tuple(rules), provenance)


def _compaction(calls: Sequence[Call], chosen: Sequence[Decided]) -> dict[str, float]:
    """`naive`: rules of the same ladders, and of those that others stand in for, uncompacted."""
    return {
        "naive": sum(call.naive for call in calls),
        "rules": sum(each.number for each in chosen),
        "added_regret": sum(each.cost for each in chosen) / sum(call.cases for call in calls),
    }


def _decided(calls: Sequence[Call], most: int | None) -> list[Decided]:
    """By few rules for each call; fewer, where these are more than is aimed at in all and that
    still loses next to nothing; and no more than `most`.
    """
    aim = SHARE * sum(call.naive for call in calls)
    found = [call.fewest for call in calls]
    if sum(each.number for each in found) <= (aim if most is None else min(aim, most)):
        return found
    offers = [call.offers() for call in calls]
    bearable = [
        [each for each in own if each is own[0] or each.cost <= MOST * call.cases]
        for call, own in zip(calls, offers, strict=True)
    ]
    found = lean(bearable, aim, LOSS * sum(call.cases for call in calls))
    if most is None or sum(each.number for each in found) <= most:
        return found
    return limited([[each, *own] for each, own in zip(found, offers, strict=True)], most)
