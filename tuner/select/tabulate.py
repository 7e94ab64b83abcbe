"""Selector and measurements to `TuningTable`: what to use from which size on, with evidence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from tuner import libraries
from tuner.errors import InputError
from tuner.measurement import Measurements
from tuner.select.compaction import LOSS, Allowed, Plan, fewest, limited, plans
from tuner.select.constraints import ANYTHING, Constraints, OrderSafe
from tuner.select.contest import Contest
from tuner.select.dataset import NOISE
from tuner.select.ladder import Ladder, Switches, drawn
from tuner.select.selector import Selector
from tuner.statistics import LEVEL
from tuner.table import Choice, Key, Rule, TuningTable


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

    def ladder(self, operators: str, plan: Plan) -> Ladder:
        """The rules of a plan."""
        key = replace(self.key, operators=operators)
        return drawn(key, plan, self.contests, self.allowed[operators], self.switches)


@dataclass(frozen=True)
class Decided:
    """The ladders of one call, and what they cost calls of all classes of operators."""

    ladders: tuple[Ladder, ...]
    cost: float

    @property
    def number(self) -> int:
        """Of the rules."""
        return sum(len(ladder.rules) for ladder in self.ladders)


def tabulate(
    measurements: Measurements,
    contests: Iterable[Contest],
    selector: Selector,
    order_safe: OrderSafe,
    constraints: Constraints = ANYTHING,
    noise: float = NOISE,
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
        Call(key, ladder, {
            operators: partial(may, key, operators)
            for operators in constraints.operators(key.collective)
        }, Switches(selector))
        for key, ladder in points.items()
    ]  # fmt: skip
    chosen = _decided(calls, constraints.rules)
    rules = [rule for each in chosen for ladder in each.ladders for rule in ladder.rules]
    provenance = {
        "method": "paired gain over the default, Bonferroni over the candidates of a point;"
        " elsewhere a belief learned from measurements and simulations",
        "default": _default(measurements.library),
        "level": LEVEL, "noise": noise, "points": sum(map(len, points.values())),
        "compaction": _compaction(chosen, rules), "constraints": constraints.record(),
        "probe": dict(measurements.provenance),
    }  # fmt: skip
    return TuningTable(measurements.cluster, measurements.library, tuple(rules), provenance)


def _default(library: str) -> str:
    """What everything was compared with."""
    needed = libraries.named(library).PRECONDITIONS.items()
    settings = ", ".join(f"{name}={setting}" for name, (setting, _) in needed)
    return "the library's own choice" + (f" with {settings}" if settings else "")


def _compaction(chosen: Collection[Decided], rules: Sequence[Rule]) -> dict[str, float]:
    """With one rule for each size the ladders that there are would have `naive` rules."""
    ladders = [ladder for each in chosen for ladder in each.ladders]
    naive = sum(ladder.naive for ladder in ladders)
    added = sum(ladder.cost for ladder in ladders) / sum(ladder.sizes for ladder in ladders)
    return {"naive": naive, "rules": len(rules), "added_regret": added}


def _decided(calls: Sequence[Call], most: int | None) -> list[Decided]:
    found = [_fewest(call) for call in calls]
    if most is None or sum(each.number for each in found) <= most:
        return found
    return limited(
        [[first, *_others(call)] for first, call in zip(found, calls, strict=True)], most
    )


def _fewest(call: Call) -> Decided:
    """With the fewest rules that lose next to nothing. Commutative operators have rules of their
    own where those for any operator would lose more.
    """
    for_any, *others = (
        call.ladder(operators, fewest(plans(call.contests, allowed)))
        for operators, allowed in call.allowed.items()
    )
    alone = _decide(call, for_any)
    if not others or alone.cost - for_any.cost <= LOSS * for_any.sizes:
        return alone
    return _decide(call, for_any, *others)


def _others(call: Call) -> list[Decided]:
    """Every way to decide a call, by plans of as many or as few rules."""
    for_any, *others = (
        [call.ladder(operators, plan) for plan in plans(call.contests, allowed)]
        for operators, allowed in call.allowed.items()
    )
    both = [_decide(call, *pair) for pair in product(for_any, *others)] if others else []
    return [*(_decide(call, ladder) for ladder in for_any), *both]


def _decide(call: Call, *ladders: Ladder) -> Decided:
    """By these ladders; where one is missing, the one for any operator holds."""
    cost = sum(ladder.cost for ladder in ladders)
    lacking = list(call.allowed.values())[len(ladders) :]
    return Decided(ladders, cost + sum(map(ladders[0].cost_for, lacking)))
