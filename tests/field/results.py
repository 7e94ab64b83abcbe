"""Compare the two arms of a check, call by call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from tests.field.calls import Call
from tests.field.launches import PATTERNS, Launch
from tests.field.ratios import Estimate, by_chance, estimate, holm, level_out
from tests.field.record import FAR, Pair
from tests.field.tables import Comparison, Library
from tuner.base.arrays import BoolArray, FloatArray

ALL = "all"  # the four patterns together: the mean of their logarithms
COLUMNS = (*PATTERNS, ALL)


@dataclass(frozen=True)
class Row:
    """Hold what a check found for one call: default over tuned, so above 1 is faster."""

    library: str
    call: Call
    estimates: dict[str, Estimate]
    certain: dict[str, bool]  # whether the ratio differs from 1 after Holm's correction
    default_s: dict[str, float]  # geometric mean over launches, by pattern
    comparison: Comparison | None
    wrong: int

    def within(self, column: str = ALL) -> bool:
        """Return whether the report's ratio lies in the interval."""
        found = self.estimates[column]
        return self.comparison is not None and found.low <= self.comparison.ratio <= found.high

    def certainly(self, verdict: str) -> bool:
        """Return whether a pattern, or all together, is faster or slower after the correction."""
        return any(self.certain[c] and self.estimates[c].verdict == verdict for c in COLUMNS)


@dataclass(frozen=True)
class SelfCheck:
    """Hold how often launches of the default differ significantly from each other."""

    significant: int
    tests: int

    @property
    def expected(self) -> float:
        return 2 * by_chance(self.tests)


@dataclass(frozen=True)
class AtDistance:
    """Changed calls in pairs of launches with cores of similar distance (ns)."""

    library: str
    ranks: int
    distances: tuple[float, float]
    pairs: int
    estimate: Estimate


@dataclass(frozen=True)
class Result:
    """All rows, and geometric means over calls by library and column."""

    rows: tuple[Row, ...]
    changed: dict[str, dict[str, Estimate]]
    kept: dict[str, dict[str, Estimate]]
    by_distance: tuple[AtDistance, ...]
    self_check: SelfCheck
    pairs: tuple[Pair, ...]

    @property
    def failed(self) -> bool:
        return any(row.certainly("slower") or row.wrong for row in self.rows)


@dataclass(frozen=True)
class _Measured:
    """A call with the logarithms of its ratios and of the default's times: (pairs, patterns).

    `far` says in which pairs the cores were far apart.
    """

    library: Library
    call: Call
    pairs: list[Pair]
    far: BoolArray
    logs: FloatArray
    default_logs: FloatArray

    @property
    def conditions(self) -> int:
        return 2 if self.far.any() else 1


def analyse(
    libraries: list[Library], calls: dict[str, list[Call]], pairs: Iterable[Pair]
) -> Result:
    """Compare the arms; all calls of a library have the same number of pairs, at least two."""
    by_launch: dict[tuple[str, int], list[Pair]] = defaultdict(list)
    for pair in sorted(pairs, key=lambda pair: pair.number):
        by_launch[pair.library, pair.ranks].append(pair)
    measured = [
        _measured(library, call, by_launch[library.name, call.ranks])
        for library in libraries
        for call in calls[library.name]
    ]
    return Result(
        _corrected(measured),
        _means([one for one in measured if one.call.changed]),
        _means([one for one in measured if not one.call.changed]),
        tuple(_by_distance([one for one in measured if one.call.changed])),
        _self_check(measured),
        tuple(pair for launched in by_launch.values() for pair in launched),
    )


def _measured(library: Library, call: Call, pairs: list[Pair]) -> _Measured:
    default = _logs(call, [pair.default for pair in pairs])
    tuned = _logs(call, [pair.tuned for pair in pairs])
    return _Measured(library, call, pairs, _far(pairs), default - tuned, default)


def _far(pairs: list[Pair]) -> BoolArray:
    """Return in which pairs the cores were far apart, none where all are alike or one differs."""
    distances = np.array([pair.distance or 1.0 for pair in pairs])
    if distances.max() <= FAR * distances.min():
        return np.zeros(len(pairs), dtype=bool)
    far: BoolArray = distances > np.sqrt(distances.min() * distances.max())
    return far if 1 < far.sum() < len(far) - 1 else np.zeros_like(far)


def _logs(call: Call, launches: list[Launch]) -> FloatArray:
    """Return logarithms of times, shape (launches, patterns)."""
    times = [[launch.seconds[call.word, pattern] for pattern in PATTERNS] for launch in launches]
    logs: FloatArray = np.log(np.array(times, dtype=np.float64))
    return logs


def _estimates(measured: list[_Measured]) -> dict[str, Estimate]:
    """Estimate the geometric mean over calls; its interval is that of the pairs of launches.

    The ratio may depend on the distance of the cores: the estimate is for the mix of distances
    that occurred, the interval for what else differs between pairs.
    """
    logs = np.mean([level_out(one.logs, one.far) for one in measured], axis=0)
    conditions = max(one.conditions for one in measured)
    found = {p: estimate(logs[:, i], conditions) for i, p in enumerate(PATTERNS)}
    return {**found, ALL: estimate(logs.mean(axis=1), conditions)}


def _corrected(measured: list[_Measured]) -> tuple[Row, ...]:
    """Apply Holm's correction over all calls, and over all calls and patterns."""
    estimates = [_estimates([one]) for one in measured]
    overall = holm([found[ALL].p for found in estimates])
    single = iter(holm([found[pattern].p for found in estimates for pattern in PATTERNS]))
    rows = []
    for one, found, certain in zip(measured, estimates, overall, strict=True):
        certainty = {**{pattern: next(single) for pattern in PATTERNS}, ALL: certain}
        times = dict(zip(PATTERNS, np.exp(one.default_logs.mean(axis=0)).tolist(), strict=True))
        comparison = _comparison(one.library, one.call)
        rows.append(
            Row(one.library.name, one.call, found, certainty, times, comparison, _wrong(one))
        )
    return tuple(rows)


def _wrong(one: _Measured) -> int:
    launches = [launch for pair in one.pairs for launch in (pair.default, pair.tuned)]
    return sum(launch.wrong.get(one.call.word, 0) for launch in launches)


def _comparison(library: Library, call: Call) -> Comparison | None:
    if call.origin != "report":
        return None
    key = (call.collective, call.ranks, call.nbytes)
    return next(c for c in library.comparisons if (c.collective, c.ranks, c.nbytes) == key)


def _means(measured: list[_Measured]) -> dict[str, dict[str, Estimate]]:
    libraries: dict[str, list[_Measured]] = defaultdict(list)
    for one in measured:
        libraries[one.library.name].append(one)
    return {name: _estimates(calls) for name, calls in libraries.items()}


def _by_distance(measured: list[_Measured]) -> Iterator[AtDistance]:
    """Return the means over calls with near and with far cores, where both occurred."""
    settings: dict[tuple[str, int], list[_Measured]] = defaultdict(list)
    for one in measured:
        if one.far.any():
            settings[one.library.name, one.call.ranks].append(one)
    for (name, ranks), calls in settings.items():
        logs = np.mean([one.logs.mean(axis=1) for one in calls], axis=0)
        distances = np.array([pair.distance for pair in calls[0].pairs])
        for group in (~calls[0].far, calls[0].far):
            bounds = float(distances[group].min()), float(distances[group].max())
            yield AtDistance(name, ranks, bounds, int(group.sum()), estimate(logs[group]))


def _self_check(measured: list[_Measured]) -> SelfCheck:
    """Compare every other launch of the default with the next one, at the same distance."""
    tests = significant = 0
    for one in measured:
        same = [
            number
            for number in range(0, len(one.pairs) - 1, 2)
            if _same_distance(one.pairs[number], one.pairs[number + 1])
        ]
        differences = one.default_logs[same] - one.default_logs[[number + 1 for number in same]]
        if len(same) > 1:
            found = [estimate(differences[:, i]) for i in range(len(PATTERNS))]
            tests += len(found)
            significant += sum(one.verdict != "same" for one in found)
    return SelfCheck(significant, tests)


def _same_distance(first: Pair, second: Pair) -> bool:
    both = [*first.distances, *second.distances]
    return not both or max(both) <= FAR * min(both)
