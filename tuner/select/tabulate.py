"""Selector and measurements to `TuningTable`: what to use from which size on, with evidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import fmean

from tuner.collective import Collective
from tuner.errors import InputError
from tuner.measurement import Measurements
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

OrderSafe = Callable[[Collective, Choice], bool]


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
    noise: float = NOISE,
) -> TuningTable:
    """The table of everything that `contests`, one for each point, decide.

    A collective that reduces gets a ladder for `any` operator, of choices that are `order_safe`
    alone, and one for `commutative` operators. Raises InputError where there are none.
    """
    ladders: dict[Key, list[Contest]] = {}
    for contest in sorted(contests, key=lambda contest: contest.point):
        ladders.setdefault(contest.point.key(), []).append(contest)
    if not ladders:
        raise InputError("there is no measured collective to make a table of; run the probe")
    rules: list[Rule] = []
    for key, ladder in ladders.items():
        safe = partial(order_safe, key.collective)
        rules += _rules(key, _runs(ladder, safe, selector), selector)
        if key.collective.reduces:
            commutative = Key(key.collective, key.nodes, key.ppn, key.memory, "commutative")
            rules += _rules(commutative, _runs(ladder, lambda _: True, selector), selector)
    provenance = {
        "method": "paired gain over the default, Bonferroni over the candidates of a point;"
        " elsewhere a belief learned from measurements and simulations",
        "level": LEVEL, "noise": noise, "points": sum(map(len, ladders.values())),
        "probe": dict(measurements.provenance),
    }  # fmt: skip
    return TuningTable(measurements.cluster, measurements.library, tuple(rules), provenance)


def _runs(
    ladder: Sequence[Contest], allowed: Callable[[Choice], bool], selector: Selector
) -> list[Run]:
    """As few runs as possible: each extends for as long as one choice is acceptable throughout."""
    runs: list[tuple[frozenset[Choice], tuple[Contest, ...]]] = []
    for contest in ladder:
        acceptable = contest.acceptable(allowed)
        shared, contests = runs[-1] if runs else (frozenset[Choice](), ())
        if shared & acceptable:
            runs[-1] = (shared & acceptable, (*contests, contest))
        else:
            runs.append((acceptable, (contest,)))
    sizes = [contest.point.nbytes for contest in ladder]
    return [
        _run(_fastest(shared, contests, _between(sizes, contests), selector), contests, allowed)
        for shared, contests in runs
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
    """The runs with the switches between them and a fence on either side, where nothing was probed
    within one ladder gap, or a gain not known to last, and the library keeps the decision.
    """
    bounds = [_lowest(runs), *(_switch(*pair, selector) for pair in pairwise(runs)), _highest(runs)]
    rules = [
        Rule(key, lo, hi, run.choice, _evidence(run))
        for run, (lo, hi) in zip(runs, pairwise(bounds), strict=True)
    ]
    fence = Evidence(NOTHING)
    if bounds[0] > 0:
        rules.insert(0, Rule(key, 0, bounds[0], Choice(), fence))
    return [*rules, Rule(key, bounds[-1], math.inf, Choice(), fence)]


def _sizes(runs: Iterable[Run]) -> list[int]:
    return [contest.point.nbytes for run in runs for contest in run.contests]


def _lowest(runs: Sequence[Run]) -> int:
    """Below one byte there is nothing to fence off: such calls only synchronise."""
    sizes, first = _sizes(runs), runs[0]
    lowest = math.ceil(sizes[0] / min(gap_below(sizes), beyond(first.contests[0], first.choice)))
    return lowest if lowest > 1 else 0


def _highest(runs: Sequence[Run]) -> int:
    sizes, last = _sizes(runs), runs[-1]
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
