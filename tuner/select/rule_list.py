"""A rule list: a partition of sizes with the crossovers between its choices, and evidence."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import fmean
from types import ModuleType

from tuner.core.table import (
    LEARNED,
    MEASURED,
    NO_EVIDENCE,
    SIMULATED,
    AlgorithmChoice,
    Evidence,
    Rule,
    RuleKey,
)
from tuner.select.coverage import max_factor_beyond
from tuner.select.crossover import crossover_size, max_extrapolation_ratio, roundest_size
from tuner.select.dataset import CallPoint
from tuner.select.rule_merging import AllowedPredicate, SizePartition, drop_group, expected_regret
from tuner.select.selector import Selector
from tuner.select.significance import Comparison

_MIN_RANGE_RATIO = 1.02  # smallest end of a rule over its start: the precision of crossovers
_ELEMENT_BYTES = 4  # of most element types


@dataclass(frozen=True)
class SizeRange:
    """Neighbouring probed sizes with the same choice, and the best alternative to it."""

    choice: AlgorithmChoice
    comparisons: tuple[Comparison, ...]
    runner_up: AlgorithmChoice | None


@dataclass(frozen=True)
class RuleList:
    """The rules of one key.

    size_ranges     the choices at the probed sizes
    regrets         at the probed sizes, relative to the choices allowed there
    """

    rules: tuple[Rule, ...]
    size_ranges: tuple[SizeRange, ...]
    regrets: tuple[float, ...]

    @property
    def n_unmerged_rules(self) -> int:
        """Return the number of rules with one rule for each of the sizes."""
        return len(self.rules) + sum(len(run.comparisons) - 1 for run in self.size_ranges)

    def regrets_for(self, allowed: AllowedPredicate) -> tuple[float, ...]:
        """Return the regrets relative to the choices allowed in another operator class."""
        return _regrets(self.size_ranges, allowed)


class CrossoverCache:
    """The crossovers of one call's rule lists, cached because alternative partitions share most.

    library     module in `tuner.mpi_libraries`
    """

    def __init__(self, selector: Selector, library: ModuleType) -> None:
        self.selector, self.library = selector, library
        self._cache: dict[tuple[int, AlgorithmChoice, AlgorithmChoice], int] = {}

    def between(self, low: SizeRange, high: SizeRange) -> int:
        """Return the first size of the upper of two consecutive ranges."""
        below, above = low.comparisons[-1], high.comparisons[0]
        place = below.point.nbytes, low.choice, high.choice
        if place not in self._cache:
            self._cache[place] = crossover_size(
                below, above, low.choice, high.choice, self.selector
            )
        return self._cache[place]

    def first_runnable_size(self, size_range: SizeRange, bound: float) -> float:
        """Return a lower bound of a range that the library can run.

        It is `bound`, or the first size above it from which the library runs the choice without
        substituting another algorithm, as it does for too few bytes.
        """
        point, first = size_range.comparisons[0].point, math.floor(bound)

        def is_runnable(nbytes: int) -> bool:
            return self._effective(point, size_range.choice, nbytes) == size_range.choice

        if is_runnable(first):
            return bound
        skipped = bisect_left(range(first + 1, point.nbytes), True, key=is_runnable)
        return float(min(first + 1 + skipped, point.nbytes))

    def substitute_between(
        self, low: SizeRange, high: SizeRange, start: float
    ) -> tuple[SizeRange, int] | None:
        """Return a range of what the library runs instead of a choice below its range.

        Also return its first size, where it overtakes the choice below. Its evidence is at the last
        probed size of `low`. None where the library runs the choice itself, or where the gain there
        of the substitute over the default is not certain to last until `start`.
        """
        below, above = low.comparisons[-1], high.comparisons[0]
        instead = self._effective(above.point, high.choice, math.ceil(start) - 1)
        if (
            instead == high.choice
            or instead not in below.winners
            or start > below.point.nbytes * max_extrapolation_ratio(below, instead)
        ):
            return None
        first = crossover_size(below, above, low.choice, instead, self.selector)
        return SizeRange(instead, (below,), low.choice), first

    def _effective(self, point: CallPoint, choice: AlgorithmChoice, nbytes: int) -> AlgorithmChoice:
        found: AlgorithmChoice = self.library.effective_algorithm(
            point.key().collective, choice, point.p, nbytes
        )
        return found


def build_rule_list(
    key: RuleKey,
    partition: SizePartition,
    comparisons: Sequence[Comparison],
    allowed: AllowedPredicate,
    crossovers: CrossoverCache,
) -> RuleList:
    """Build the rule list of a partition.

    Ranges of algorithms that turn out to be one size wide are replaced by the default.
    """
    while True:
        runs = _size_ranges(partition, comparisons, allowed, crossovers.selector)
        bounds = _bounds(runs, crossovers)
        lone = _single_size_range(runs, bounds)
        if lone is None:
            rules = _rules(key, *_with_substitutes(runs, bounds, allowed, crossovers))
            return RuleList(tuple(rules), tuple(runs), _regrets(runs, allowed))
        partition = drop_group(partition, lone, allowed)


def _regrets(size_ranges: Sequence[SizeRange], allowed: AllowedPredicate) -> tuple[float, ...]:
    return tuple(
        expected_regret(comparison, run.choice, allowed)
        for run in size_ranges
        for comparison in run.comparisons
    )


def _single_size_range(size_ranges: Sequence[SizeRange], bounds: Sequence[float]) -> int | None:
    """Return the index of the first range of an algorithm that is only one size wide, if any.

    Ranges that extend to the neighbouring probed sizes do not count.
    """
    sizes = _sizes(size_ranges)
    for number, (run, (lo, hi)) in enumerate(zip(size_ranges, pairwise(bounds), strict=True)):
        first, last = (sizes.index(run.comparisons[end].point.nbytes) for end in (0, -1))
        start = sizes[first - 1] + 1 if first else 0
        end = sizes[last + 1] if last + 1 < len(sizes) else math.inf
        if not run.choice.is_default and hi <= lo * _MIN_RANGE_RATIO and (lo, hi) != (start, end):
            return number
    return None


def _size_ranges(
    partition: SizePartition,
    comparisons: Sequence[Comparison],
    allowed: AllowedPredicate,
    selector: Selector,
) -> list[SizeRange]:
    sizes = [comparison.point.nbytes for comparison in comparisons]
    return [
        _size_range(
            _fastest_overall(
                group.choices, group.comparisons, _midpoints(sizes, group.comparisons), selector
            ),
            group.comparisons,
            allowed,
        )
        for group in partition.groups
    ]


def _midpoints(sizes: Sequence[int], comparisons: Sequence[Comparison]) -> list[int]:
    """Return the geometric midpoints between probed sizes around and among the comparisons."""
    first, last = comparisons[0].point.nbytes, comparisons[-1].point.nbytes
    beside = [pair for pair in pairwise(sizes) if pair[0] <= last and pair[1] >= first]
    return [round(math.sqrt(low * high)) for low, high in beside]


def _fastest_overall(
    choices: frozenset[AlgorithmChoice],
    comparisons: Sequence[Comparison],
    between: Iterable[int],
    selector: Selector,
) -> AlgorithmChoice:
    """Return the fastest of choices that tie at the probed sizes, also counting sizes in between.

    An algorithm without segments may tie at one size and fall behind soon after.
    """
    if len(choices) == 1:
        return next(iter(choices))
    points = [comparisons[0].point.with_size(nbytes) for nbytes in between]

    def cost(choice: AlgorithmChoice) -> float:
        seconds = [comparison.seconds[choice] for comparison in comparisons]
        seconds += [selector.predict_seconds(point, choice)[0] for point in points]
        return fmean(map(math.log, seconds))

    return min(sorted(choices, key=str), key=cost)


def _size_range(
    choice: AlgorithmChoice, comparisons: tuple[Comparison, ...], allowed: AllowedPredicate
) -> SizeRange:
    everywhere = frozenset.intersection(
        *(
            frozenset([AlgorithmChoice(), *filter(allowed, comparison.gains)])
            for comparison in comparisons
        )
    )
    others = sorted(everywhere - {choice}, key=str)
    runner_up = max(others, key=partial(_mean_gain, comparisons=comparisons), default=None)
    return SizeRange(choice, comparisons, runner_up)


def _mean_gain(choice: AlgorithmChoice, comparisons: Sequence[Comparison]) -> float:
    """Return the geometric mean gain over the comparisons; 1 for the default."""
    if choice.is_default:
        return 1.0
    logs = [math.log(comparison.gains[choice]) for comparison in comparisons]
    return math.exp(sum(logs) / len(logs))


def _bounds(size_ranges: Sequence[SizeRange], crossovers: CrossoverCache) -> list[float]:
    """Return where the ranges begin, and where the last one ends."""
    bounds = [
        _first_bound(size_ranges, crossovers),
        *(crossovers.between(*pair) for pair in pairwise(size_ranges)),
        _last_bound(size_ranges),
    ]
    for n, run in enumerate(size_ranges):
        if bounds[n + 1] <= bounds[n] * _MIN_RANGE_RATIO:
            below, above = size_ranges[n - 1 : n], size_ranges[n + 1 : n + 2]
            if _may_displace(run, below):
                bounds[n] = _just_below(below[0], run)
            if _may_displace(run, above):
                bounds[n + 1] = _just_above(run, above[0])
    inner = [
        crossovers.first_runnable_size(run, bounds[n]) for n, run in enumerate(size_ranges) if n > 0
    ]
    return [bounds[0], *inner, bounds[-1]]


def _with_substitutes(
    size_ranges: Sequence[SizeRange],
    bounds: Sequence[float],
    allowed: AllowedPredicate,
    crossovers: CrossoverCache,
) -> tuple[list[SizeRange], list[float]]:
    """Return the ranges and their bounds, with ranges of substitutes where these are faster.

    A range may begin later than it pays, at the first size from which the library runs its choice.
    Below that size the library would run a substitute, which has a range of its own from where it
    overtakes the choice below.
    """
    ranges, starts = [size_ranges[0]], [bounds[0]]
    for low, high, start in zip(size_ranges, size_ranges[1:], bounds[1:], strict=False):
        found = crossovers.substitute_between(low, high, start)
        if found and not low.choice.is_default and allowed(found[0].choice):
            between, first = found
            if between.choice != low.choice and start > first * _MIN_RANGE_RATIO:
                ranges.append(between)
                starts.append(first)
        ranges.append(high)
        starts.append(start)
    return ranges, [*starts, bounds[-1]]


def _may_displace(size_range: SizeRange, beside: Sequence[SizeRange]) -> bool:
    """Return whether a range may take sizes from its neighbour.

    The default may take them from any, an algorithm only from another algorithm.
    """
    return any(size_range.choice.is_default or not other.choice.is_default for other in beside)


def _just_below(low: SizeRange, high: SizeRange) -> int:
    """Return a bound just below the sizes of `high`, so that its range is wide enough."""
    first, last = high.comparisons[0].point.nbytes, low.comparisons[-1].point.nbytes
    lowest = math.ceil(first / _MIN_RANGE_RATIO**2)
    return max(roundest_size(lowest, first / _MIN_RANGE_RATIO), last + 1)


def _just_above(low: SizeRange, high: SizeRange) -> int:
    last, first = low.comparisons[-1].point.nbytes, high.comparisons[0].point.nbytes
    lowest = math.ceil(last * _MIN_RANGE_RATIO)
    return min(roundest_size(lowest, last * _MIN_RANGE_RATIO**2), first)


def _rules(key: RuleKey, size_ranges: Sequence[SizeRange], bounds: Sequence[float]) -> list[Rule]:
    """Return the rules of the ranges, and rules for the default at both ends if needed.

    Beyond one step of the probed sizes, or where a gain is not certain to last, the default is
    used. Calls without data are all like the measured one, and have one rule.
    """
    if not key.collective.has_data:
        bounds = (0, math.inf)
    rules = [
        Rule(key, int(lo), hi if hi == math.inf else int(hi), run.choice, _evidence(run))
        for run, (lo, hi) in zip(size_ranges, pairwise(bounds), strict=True)
    ]
    if bounds[0] > 0:
        rules.insert(0, Rule(key, 0, int(bounds[0]), AlgorithmChoice(), Evidence(NO_EVIDENCE)))
    if bounds[-1] < math.inf:
        rules.append(Rule(key, int(bounds[-1]), math.inf, AlgorithmChoice(), Evidence(NO_EVIDENCE)))
    return rules


def _sizes(size_ranges: Iterable[SizeRange]) -> list[int]:
    return [comparison.point.nbytes for run in size_ranges for comparison in run.comparisons]


def _first_bound(size_ranges: Sequence[SizeRange], crossovers: CrossoverCache) -> int:
    """Return where the first range begins.

    Sizes below one element of most programs take as long as one element, and need no rule of their
    own, but for those that the choice must not have.
    """
    sizes, first = _sizes(size_ranges), size_ranges[0]
    if first.choice.is_default:
        return 0
    ratio = max_extrapolation_ratio(first.comparisons[0], first.choice)
    lowest = math.ceil(sizes[0] / min(max_factor_beyond(sizes[:2]), ratio))
    begin = math.ceil(crossovers.first_runnable_size(first, max(lowest, _ELEMENT_BYTES)))
    if begin > _ELEMENT_BYTES or lowest == _ELEMENT_BYTES:
        return begin
    least: int = crossovers.library.min_call_bytes(first.choice)
    return least


def _last_bound(size_ranges: Sequence[SizeRange]) -> float:
    sizes, last = _sizes(size_ranges), size_ranges[-1]
    if last.choice.is_default:
        return math.inf
    ratio = max_extrapolation_ratio(last.comparisons[-1], last.choice)
    return max(math.ceil(sizes[-1] * min(max_factor_beyond(sizes[-2:]), ratio)), sizes[-1] + 1)


def _evidence(size_range: SizeRange) -> Evidence:
    """Return the evidence for a range, whose basis is the weakest of its points."""
    comparisons = size_range.comparisons
    simulated = tuple(comparison.simulated_seconds[size_range.choice] for comparison in comparisons)
    bases = {comparison.basis(size_range.choice) for comparison in comparisons}
    gain, interval = _pooled_gain(size_range)
    return Evidence(
        basis=next(one for one in (SIMULATED, LEARNED, MEASURED) if one in bases),
        nbytes=tuple(comparison.point.nbytes for comparison in comparisons),
        default_s=tuple(comparison.seconds[AlgorithmChoice()] for comparison in comparisons),
        chosen_s=tuple(comparison.seconds[size_range.choice] for comparison in comparisons),
        predicted_s=() if any(map(math.isnan, simulated)) else simulated,
        gain=gain,
        gain_ci95=interval,
        runner_up=str(size_range.runner_up or ""),
        slowdown_probability=_largest_slowdown_probability(size_range),
    )


def _largest_slowdown_probability(size_range: SizeRange) -> float | None:
    if size_range.choice.is_default:
        return None
    known = (each.slowdown_probability(size_range.choice) for each in size_range.comparisons)
    return max((one for one in known if one is not None), default=None)


def _pooled_gain(size_range: SizeRange) -> tuple[float, tuple[float, float]]:
    """Return the geometric mean gain over a range, and of the bounds of its points' intervals.

    All points were timed in the same launches, so their errors are correlated and do not average
    out.
    """
    if size_range.choice.is_default:
        return 1.0, (1.0, 1.0)
    bounds = zip(
        *(comparison.interval(size_range.choice) for comparison in size_range.comparisons),
        strict=True,
    )
    low, high = (math.exp(fmean(map(math.log, bound))) for bound in bounds)
    return _mean_gain(size_range.choice, size_range.comparisons), (low, high)
