"""Selector and measurements to `TuningTable`: what to use from which size on, with evidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import fmean

from tuner.errors import InputError
from tuner.measurement import Measurements
from tuner.select.compaction import Plan, limited, plans
from tuner.select.constraints import ANYTHING, Constraints, OrderSafe
from tuner.select.contest import Contest
from tuner.select.dataset import NOISE
from tuner.select.selector import Selector
from tuner.select.support import gap_above, gap_below
from tuner.select.switch import beyond, switch
from tuner.statistics import LEVEL
from tuner.table import (
    LEARNED,
    MEASURED,
    NOTHING,
    SIMULATED,
    Choice,
    Evidence,
    Key,
    Rule,
    TuningTable,
)


@dataclass(frozen=True)
class Run:
    """Neighbouring probed sizes with the same choice, and what would have been chosen else."""

    choice: Choice
    contests: tuple[Contest, ...]
    runner_up: Choice | None


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
    alone, and, where it differs, one for `commutative` operators. Raises InputError where there are
    no contests, and where the constraints leave no table.
    """
    points: dict[Key, list[Contest]] = {}
    for contest in sorted(contests, key=lambda contest: contest.point):
        points.setdefault(contest.point.key(), []).append(contest)
    if not points:
        raise InputError("there is no measured collective to make a table of; run the probe")
    ladders = {
        replace(key, operators=operators): ladder
        for key, ladder in points.items()
        for operators in constraints.operators(key.collective)
    }

    def allowed(key: Key) -> Callable[[Choice], bool]:
        def allow(choice: Choice) -> bool:
            safe = key.operators != "any" or order_safe(key.collective, choice)
            return safe and constraints.allow(measurements.library, key.collective, choice)

        return allow

    options = [plans(ladder, allowed(key)) for key, ladder in ladders.items()]
    chosen = dict(zip(ladders, limited(options, constraints.rules), strict=True))
    rules = _without_repeated(
        _rules(key, _runs(plan, ladders[key], allowed(key), selector), selector)
        for key, plan in chosen.items()
    )
    provenance = {
        "method": "paired gain over the default, Bonferroni over the candidates of a point;"
        " elsewhere a belief learned from measurements and simulations",
        "level": LEVEL, "noise": noise, "points": sum(map(len, points.values())),
        "compaction": _compaction(chosen.values(), rules), "constraints": constraints.record(),
        "probe": dict(measurements.provenance),
    }  # fmt: skip
    return TuningTable(measurements.cluster, measurements.library, tuple(rules), provenance)


def _compaction(chosen: Collection[Plan], rules: Sequence[Rule]) -> dict[str, float]:
    """One rule for each size and class of operators would be `naive`."""
    naive = sum(plan.sizes for plan in chosen)
    added = sum(plan.cost for plan in chosen) / naive
    return {"naive": naive, "rules": len(rules), "added_regret": added}


def _without_repeated(ladders: Iterable[list[Rule]]) -> list[Rule]:
    """Less the ladders for commutative operators that decide as those for any: these hold for them,
    too.
    """
    found: dict[Key, list[Rule]] = {}
    for ladder in ladders:
        key = ladder[0].key
        safe = found.get(replace(key, operators="any"), [])
        if [(rule.lo, rule.choice) for rule in safe] != [(rule.lo, rule.choice) for rule in ladder]:
            found[key] = ladder
    return [rule for ladder in found.values() for rule in ladder]


def _runs(
    plan: Plan,
    ladder: Sequence[Contest],
    allowed: Callable[[Choice], bool],
    selector: Selector,
) -> list[Run]:
    sizes = [contest.point.nbytes for contest in ladder]
    return [
        _run(
            _fastest(group.choices, group.contests, _between(sizes, group.contests), selector),
            group.contests,
            allowed,
        )
        for group in plan.groups
    ]


def _between(sizes: Sequence[int], contests: Sequence[Contest]) -> list[int]:
    """Half way between probed sizes of which one at least is of these contests."""
    first, last = contests[0].point.nbytes, contests[-1].point.nbytes
    beside = [pair for pair in pairwise(sizes) if pair[0] <= last and pair[1] >= first]
    return [round(math.sqrt(low * high)) for low, high in beside]


def _fastest(
    choices: frozenset[Choice],
    contests: Sequence[Contest],
    between: Iterable[int],
    selector: Selector,
) -> Choice:
    """Of choices as good as one another where they were probed, by what they take there and are
    expected to take `between`: one without segments may tie at one size and fall back soon.
    """
    if len(choices) == 1:
        return next(iter(choices))
    points = [contests[0].point.at(nbytes) for nbytes in between]

    def cost(choice: Choice) -> float:
        seconds = [contest.seconds[choice] for contest in contests]
        seconds += [selector.seconds(point, choice)[0] for point in points]
        return fmean(map(math.log, seconds))

    return min(sorted(choices, key=str), key=cost)


def _run(choice: Choice, contests: tuple[Contest, ...], allowed: Callable[[Choice], bool]) -> Run:
    everywhere = frozenset.intersection(
        *(frozenset([Choice(), *filter(allowed, contest.gains)]) for contest in contests)
    )
    others = sorted(everywhere - {choice}, key=str)
    runner_up = max(others, key=partial(_mean_gain, contests=contests), default=None)
    return Run(choice, contests, runner_up)


def _mean_gain(choice: Choice, contests: Sequence[Contest]) -> float:
    """Geometric mean over the contests; the default gains 1 over itself."""
    if choice.is_default:
        return 1.0
    logs = [math.log(contest.gains[choice]) for contest in contests]
    return math.exp(sum(logs) / len(logs))


def _rules(key: Key, runs: Sequence[Run], selector: Selector) -> list[Rule]:
    """The runs with the switches between them and, beyond an algorithm, fences: where nothing was
    probed within one ladder gap, or its gain is not sure to last, the library decides.
    """
    switches = [_switch(*pair, selector) for pair in pairwise(runs)]
    bounds = [_lowest(runs), *switches, _highest(runs)]
    rules = [
        Rule(key, int(lo), hi, run.choice, _evidence(run))
        for run, (lo, hi) in zip(runs, pairwise(bounds), strict=True)
    ]
    if bounds[0] > 0:
        rules.insert(0, Rule(key, 0, int(bounds[0]), Choice(), Evidence(NOTHING)))
    if bounds[-1] < math.inf:
        rules.append(Rule(key, int(bounds[-1]), math.inf, Choice(), Evidence(NOTHING)))
    return rules


def _sizes(runs: Iterable[Run]) -> list[int]:
    return [contest.point.nbytes for run in runs for contest in run.contests]


def _lowest(runs: Sequence[Run]) -> int:
    """Below one byte there is nothing to fence off: such calls only synchronise."""
    sizes, first = _sizes(runs), runs[0]
    if first.choice.is_default:
        return 0
    lowest = math.ceil(sizes[0] / min(gap_below(sizes), beyond(first.contests[0], first.choice)))
    return lowest if lowest > 1 else 0


def _highest(runs: Sequence[Run]) -> float:
    sizes, last = _sizes(runs), runs[-1]
    if last.choice.is_default:
        return math.inf
    ratio = min(gap_above(sizes), beyond(last.contests[-1], last.choice))
    return max(math.ceil(sizes[-1] * ratio), sizes[-1] + 1)


def _switch(low: Run, high: Run, selector: Selector) -> int:
    return switch(low.contests[-1], high.contests[0], low.choice, high.choice, selector)


def _evidence(run: Run) -> Evidence:
    contests = run.contests
    simulated = tuple(contest.simulated[run.choice] for contest in contests)
    gain, interval = _pooled(run)
    return Evidence(
        basis=_weakest(contest.basis(run.choice) for contest in contests),
        nbytes=tuple(contest.point.nbytes for contest in contests),
        default_s=tuple(contest.seconds[Choice()] for contest in contests),
        chosen_s=tuple(contest.seconds[run.choice] for contest in contests),
        predicted_s=() if any(map(math.isnan, simulated)) else simulated,
        gain=gain,
        gain_ci95=interval,
        runner_up=str(run.runner_up or ""),
    )


def _weakest(bases: Iterable[str]) -> str:
    """Of those of a run's points."""
    found = set(bases)
    return next(basis for basis in (SIMULATED, LEARNED, MEASURED) if basis in found)


def _pooled(run: Run) -> tuple[float, tuple[float, float]]:
    """Geometric mean gain over the run, and of the bounds of its points: all were timed in the
    same launches, so their errors go together and do not average out.
    """
    if run.choice.is_default:
        return 1.0, (1.0, 1.0)
    bounds = zip(*(contest.interval(run.choice) for contest in run.contests), strict=True)
    low, high = (math.exp(fmean(map(math.log, bound))) for bound in bounds)
    return _mean_gain(run.choice, run.contests), (low, high)
