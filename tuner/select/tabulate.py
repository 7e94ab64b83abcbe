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
_CROSSING_PRECISION = 1.02  # a predicted crossing is narrowed down to this ratio of sizes


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
        rules += _rules(key, _runs(ladder, safe), selector)
        if key.collective.reduces:
            commutative = Key(key.collective, key.nodes, key.ppn, key.memory, "commutative")
            rules += _rules(commutative, _runs(ladder, lambda _: True), selector)
    provenance = {
        "method": "paired gain over the default, Bonferroni over the candidates of a point;"
        " elsewhere a belief learned from measurements and simulations",
        "level": LEVEL, "noise": noise, "points": sum(map(len, ladders.values())),
        "probe": dict(measurements.provenance),
    }  # fmt: skip
    return TuningTable(measurements.cluster, measurements.library, tuple(rules), provenance)


def _runs(ladder: Sequence[Contest], allowed: Callable[[Choice], bool]) -> list[Run]:
    """As few runs as possible: each extends for as long as one choice is acceptable throughout."""
    runs: list[tuple[frozenset[Choice], tuple[Contest, ...]]] = []
    for contest in ladder:
        acceptable = contest.acceptable(allowed)
        shared, contests = runs[-1] if runs else (frozenset[Choice](), ())
        if shared & acceptable:
            runs[-1] = (shared & acceptable, (*contests, contest))
        else:
            runs.append((acceptable, (contest,)))
    return [_run(shared, contests, allowed) for shared, contests in runs]


def _run(
    shared: frozenset[Choice], contests: tuple[Contest, ...], allowed: Callable[[Choice], bool]
) -> Run:
    choice = _best(shared, contests)
    everywhere = frozenset.intersection(
        *(frozenset([Choice(), *filter(allowed, contest.gains)]) for contest in contests)
    )
    others = everywhere - {choice}
    return Run(choice, contests, _best(others, contests) if others else None)


def _best(choices: frozenset[Choice], contests: Sequence[Contest]) -> Choice:
    return max(sorted(choices, key=str), key=lambda choice: _mean_gain(choice, contests))


def _mean_gain(choice: Choice, contests: Sequence[Contest]) -> float:
    """Geometric mean over the contests; the default gains 1 over itself."""
    if choice.is_default:
        return 1.0
    logs = [math.log(contest.gains[choice]) for contest in contests]
    return math.exp(sum(logs) / len(logs))


def _rules(key: Key, runs: Sequence[Run], selector: Selector) -> list[Rule]:
    """The runs with the thresholds between them and a fence on either side, where nothing was
    probed within one ladder gap and the library keeps the decision.
    """
    sizes = [contest.point.nbytes for run in runs for contest in run.contests]
    bounds: list[int] = [_lowest(sizes)]
    bounds += [_threshold(low, high, selector) for low, high in pairwise(runs)]
    bounds.append(max(math.ceil(sizes[-1] * gap_above(sizes)), sizes[-1] + 1))
    rules = [
        Rule(key, lo, hi, run.choice, _evidence(run))
        for run, (lo, hi) in zip(runs, pairwise(bounds), strict=True)
    ]
    fence = Evidence(NOTHING)
    if bounds[0] > 0:
        rules.insert(0, Rule(key, 0, bounds[0], Choice(), fence))
    return [*rules, Rule(key, bounds[-1], math.inf, Choice(), fence)]


def _lowest(sizes: Sequence[int]) -> int:
    """Below one byte there is nothing to fence off: such calls only synchronise."""
    lowest = math.ceil(sizes[0] / gap_below(sizes))
    return lowest if lowest > 1 else 0


def _threshold(low: Run, high: Run, selector: Selector) -> int:
    """Where `high` is predicted to overtake `low` between the two probed sizes around the switch;
    their geometric mean when the selector sees no crossing there.
    """
    below, above = low.contests[-1].point, high.contests[0].point

    def ahead(nbytes: int) -> float:
        point = below.at(nbytes)
        return selector.seconds(point, low.choice)[0] - selector.seconds(point, high.choice)[0]

    lo, hi = below.nbytes, above.nbytes
    if not ahead(lo) < 0 < ahead(hi):
        return max(round(math.sqrt(lo * hi)), lo + 1)
    while hi - lo > 1 and hi > lo * _CROSSING_PRECISION:
        middle = min(max(round(math.sqrt(lo * hi)), lo + 1), hi - 1)
        lo, hi = (middle, hi) if ahead(middle) < 0 else (lo, middle)
    return hi


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
