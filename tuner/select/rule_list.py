"""One ladder of rules: a plan with the switches between its choices, and the evidence for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import fmean

from tuner.core.collective import Collective
from tuner.core.table import LEARNED, MEASURED, NOTHING, SIMULATED, Choice, Evidence, Key, Rule
from tuner.select.coverage import gap_above, gap_below
from tuner.select.crossover import beyond, roundest, switch
from tuner.select.dataset import Point
from tuner.select.rule_merging import Allowed, Plan, cost_of, leaving
from tuner.select.selector import Selector
from tuner.select.significance import Contest

# Why a library would run another algorithm than it was asked for, p ranks and so many bytes; empty
# where it does not.
Redirected = Callable[[Collective, Choice, int, int], str]

_NARROWEST = 1.02  # ends of a rule over its start: as precisely as switches are looked for
_ELEMENT = 4  # bytes


@dataclass(frozen=True)
class Run:
    """Neighbouring probed sizes with the same choice, and what would have been chosen else."""

    choice: Choice
    contests: tuple[Contest, ...]
    runner_up: Choice | None


@dataclass(frozen=True)
class Ladder:
    """The rules of one key.

    runs    what they say at the probed sizes
    cost    sum over these of the regrets among what is allowed
    """

    rules: tuple[Rule, ...]
    runs: tuple[Run, ...]
    cost: float

    @property
    def sizes(self) -> int:
        """How many were probed."""
        return sum(len(run.contests) for run in self.runs)

    @property
    def naive(self) -> int:
        """How many rules these would be with one for each of the sizes."""
        return len(self.rules) - len(self.runs) + self.sizes

    def cost_for(self, allowed: Allowed) -> float:
        """The same among other choices, of calls that might have a ladder of their own."""
        return sum(
            cost_of(contest, run.choice, allowed) for run in self.runs for contest in run.contests
        )


class Switches:
    """Where the ladders of one call change: plans of more or fewer rules share most of it."""

    def __init__(self, selector: Selector, redirected: Redirected) -> None:
        self.selector, self._redirected = selector, redirected
        self._known: dict[tuple[int, Choice, Choice], int] = {}

    def between(self, low: Run, high: Run) -> int:
        """The first size of the upper of two runs that follow one another."""
        below, above = low.contests[-1], high.contests[0]
        place = below.point.nbytes, low.choice, high.choice
        if place not in self._known:
            self._known[place] = switch(below, above, low.choice, high.choice, self.selector)
        return self._known[place]

    def running(self, run: Run, bound: float) -> float:
        """A bound below the sizes of a run, or the first size above it from which on the library
        runs the choice under its own name: of too few bytes it makes another one."""
        point, low = run.contests[0].point, math.floor(bound)
        if self._runs(point, run.choice, low):
            return bound
        high = point.nbytes
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._runs(point, run.choice, middle) else (middle, high)
        return float(high)

    def _runs(self, point: Point, choice: Choice, nbytes: int) -> bool:
        return not self._redirected(point.key().collective, choice, point.p, nbytes)


def drawn(
    key: Key, plan: Plan, contests: Sequence[Contest], allowed: Allowed, switches: Switches
) -> Ladder:
    """The ladder of a plan; less what is known of one size alone, and reaches no other."""
    while True:
        runs = _runs(plan, contests, allowed, switches.selector)
        bounds = _bounds(runs, switches)
        lone = _lone(runs, bounds, [contest.point.nbytes for contest in contests])
        if lone is None:
            return Ladder(tuple(_rules(key, runs, bounds)), tuple(runs), plan.cost)
        plan = leaving(plan, lone, allowed)


def _lone(runs: Sequence[Run], bounds: Sequence[float], sizes: Sequence[int]) -> int | None:
    """The first run for an algorithm that has no more than its size, though those that were probed
    beside it are further away; None where there is none.
    """
    for number, (run, (lo, hi)) in enumerate(zip(runs, pairwise(bounds), strict=True)):
        first, last = (sizes.index(run.contests[end].point.nbytes) for end in (0, -1))
        start = sizes[first - 1] + 1 if first else 0
        end = sizes[last + 1] if last + 1 < len(sizes) else math.inf
        if not run.choice.is_default and hi <= lo * _NARROWEST and (lo, hi) != (start, end):
            return number
    return None


def _runs(plan: Plan, ladder: Sequence[Contest], allowed: Allowed, selector: Selector) -> list[Run]:
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


def _run(choice: Choice, contests: tuple[Contest, ...], allowed: Allowed) -> Run:
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


def _bounds(runs: Sequence[Run], switches: Switches) -> list[float]:
    """Where the runs begin, and where the last one ends."""
    bounds = [
        _lowest(runs, switches),
        *(switches.between(*pair) for pair in pairwise(runs)),
        _highest(runs),
    ]
    for n, run in enumerate(runs):
        if bounds[n + 1] <= bounds[n] * _NARROWEST:
            below, above = runs[n - 1 : n], runs[n + 1 : n + 2]
            if _yield(run, below):
                bounds[n] = _just_below(below[0], run)
            if _yield(run, above):
                bounds[n + 1] = _just_above(run, above[0])
    inner = [switches.running(run, bounds[n]) for n, run in enumerate(runs) if n > 0]
    return [bounds[0], *inner, bounds[-1]]


def _yield(run: Run, beside: Sequence[Run]) -> bool:
    """Whether an algorithm is beside a run, or whatever is beside one of the default."""
    return any(run.choice.is_default or not other.choice.is_default for other in beside)


def _just_below(low: Run, high: Run) -> int:
    """A bound as far below the sizes of a run as they speak for what is next to them."""
    first, last = high.contests[0].point.nbytes, low.contests[-1].point.nbytes
    lowest = math.ceil(first / _NARROWEST**2)
    return max(roundest(lowest, first / _NARROWEST), last + 1)


def _just_above(low: Run, high: Run) -> int:
    last, first = low.contests[-1].point.nbytes, high.contests[0].point.nbytes
    lowest = math.ceil(last * _NARROWEST)
    return min(roundest(lowest, last * _NARROWEST**2), first)


def _rules(key: Key, runs: Sequence[Run], bounds: Sequence[float]) -> list[Rule]:
    """Of the runs and, beyond an algorithm, fences: where nothing was probed within one ladder gap,
    or its gain is not sure to last, the library decides.
    """
    rules = [
        Rule(key, int(lo), hi if hi == math.inf else int(hi), run.choice, _evidence(run))
        for run, (lo, hi) in zip(runs, pairwise(bounds), strict=True)
    ]
    if bounds[0] > 0:
        rules.insert(0, Rule(key, 0, int(bounds[0]), Choice(), Evidence(NOTHING)))
    if bounds[-1] < math.inf:
        rules.append(Rule(key, int(bounds[-1]), math.inf, Choice(), Evidence(NOTHING)))
    return rules


def _sizes(runs: Iterable[Run]) -> list[int]:
    return [contest.point.nbytes for run in runs for contest in run.contests]


def _lowest(runs: Sequence[Run], switches: Switches) -> int:
    """Where the first run begins. What is shorter than an element of most programs takes as long as
    one: there is nothing to fence off.
    """
    sizes, first = _sizes(runs), runs[0]
    if first.choice.is_default:
        return 0
    lowest = math.ceil(sizes[0] / min(gap_below(sizes), beyond(first.contests[0], first.choice)))
    begin = math.ceil(switches.running(first, max(lowest, _ELEMENT)))
    return begin if begin > _ELEMENT or lowest == _ELEMENT else 0


def _highest(runs: Sequence[Run]) -> float:
    sizes, last = _sizes(runs), runs[-1]
    if last.choice.is_default:
        return math.inf
    ratio = min(gap_above(sizes), beyond(last.contests[-1], last.choice))
    return max(math.ceil(sizes[-1] * ratio), sizes[-1] + 1)


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
