"""Observations from measured series, one per `CallPoint` and candidate `AlgorithmChoice`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from tuner.base.errors import InputError
from tuner.base.statistics import CONFIDENCE, NORMAL_95, log_sd
from tuner.core.collective import Collective
from tuner.core.measurement import (
    Measurement,
    Measurements,
    parse_incorrect_algorithms,
    point_label,
)
from tuner.core.path_classes import BLOCK, PlacementMixin
from tuner.core.speedup import mean_over_launches, student_quantile
from tuner.core.table import RUNNER_OF_KIND, AlgorithmChoice, RuleKey

BATCHES_KEY = "rounds"  # provenance key of measurements whose points were chosen adaptively
Item = TypeVar("Item")
Key = TypeVar("Key")
CallKind = tuple[str, str, str]  # collective, memory, placement


@dataclass(frozen=True, order=True)
class CallPoint(PlacementMixin):
    """One call of a collective: `nbytes` of each rank's buffer on nodes x ppn ranks.

    collective  a `Collective`, or another one that imported files have results of
    """

    collective: str
    nodes: int
    ppn: int
    memory: str
    nbytes: int
    placement: str = BLOCK

    @property
    def p(self) -> int:
        return self.nodes * self.ppn

    @property
    def kind(self) -> CallKind:
        """Return collective, memory and placement; only calls of one kind inform each other."""
        return self.collective, self.memory, self.placement

    @property
    def log_coordinates(self) -> tuple[float, float, float]:
        """Return the logarithms of nodes, ppn and bytes, in which distances are measured."""
        return math.log(self.nodes), math.log(self.ppn), math.log(max(self.nbytes, 1))

    def key(self, operators: str = "any") -> RuleKey:
        """Return the table key of this call; raise ValueError for a collective without tables."""
        collective = Collective(self.collective)
        return RuleKey(collective, self.nodes, self.ppn, self.memory, operators, self.placement)

    def with_size(self, nbytes: int) -> CallPoint:
        return replace(self, nbytes=nbytes)

    def __str__(self) -> str:
        return f"{self.collective} of {self.nbytes} bytes on {self.shape} ranks"


MIN_GAIN = 0.05  # gains up to 5 % are within the noise of repeated measurements

PointConfig = tuple[CallPoint, AlgorithmChoice]
SimulateFunction = Callable[[CallPoint, AlgorithmChoice], float]  # seconds; NaN without a schedule


def no_simulation(_point: CallPoint, _choice: AlgorithmChoice) -> float:
    """Return NaN for every call, so that nothing is simulated."""
    return math.nan


# The algorithm that the library's default runs; None where that is unknown.
DefaultRuns = Callable[[CallPoint], AlgorithmChoice | None]


def unknown_default(_point: CallPoint) -> None:
    """Return None for every call: nothing is known of what the default runs."""


def stands_for(choice: AlgorithmChoice, runs: AlgorithmChoice) -> bool:
    """Return whether a measured choice is the algorithm that a library runs.

    Without parameters it is taken to have the library's own, but for a segment.
    """
    is_plain = choice == AlgorithmChoice(runs.algorithm) and "segment" not in runs.params
    return choice == runs or is_plain


def is_simulated_with_default(
    simulate: SimulateFunction, point: CallPoint, choice: AlgorithmChoice
) -> bool:
    """Return whether both a choice and the default can be simulated.

    Only then simulations count where nothing was measured nearby (decision 0035). Where the
    algorithm of the default is unknown, this is False for all choices.
    """
    return not any(math.isnan(simulate(point, one)) for one in (AlgorithmChoice(), choice))


@dataclass(frozen=True)
class Observation:
    """The measured and simulated times of one choice at one point, in seconds.

    samples             of each launch, by its number
    seconds, low, high  time over the launches (`tuner.core.speedup`) and its 95 % interval
    simulated_seconds   NaN for algorithms of the library that no schedule of ours describes, and
                        for its default where the algorithm that it runs is unknown
    machine             where it was measured, if that is not the machine in question
    """

    point: CallPoint
    choice: AlgorithmChoice
    samples: Mapping[int, tuple[float, ...]]
    seconds: float
    low: float
    high: float
    simulated_seconds: float = math.nan
    machine: str = ""

    def with_samples(self, samples: Mapping[int, tuple[float, ...]]) -> Observation:
        """Return the observation with these samples instead, by launch."""
        seconds, low, high = mean_over_launches([*samples.values()])
        return replace(self, samples=samples, seconds=seconds, low=low, high=high)

    @property
    def log_sd(self) -> float:
        """Return the standard deviation of the logarithm of the time, by its interval.

        That of several launches is Student's.
        """
        count = len(self.samples)
        quantile = student_quantile(count - 1, CONFIDENCE) if count > 1 else NORMAL_95
        return log_sd(self.low, self.high, quantile)


def measured_pairs(measurements: Measurements) -> Collection[PointConfig]:
    """Return the measured points and choices; raise InputError as `build_observations` does."""
    return _samples_by_candidate(measurements).keys()


def build_observations(
    measurements: Measurements, simulate: SimulateFunction
) -> tuple[Observation, ...]:
    """Return every measured collective with its simulated time, sorted by point, in measured order.

    Algorithms that gave a wrong result for the collective anywhere are left out. Raises InputError
    for unknown collectives, an invalid default, series without samples or measured twice, and
    placements that are not nodes x ppn.
    """
    measured, wrong = _samples_by_candidate(measurements), incorrect_algorithms(measurements)
    return tuple(
        Observation(*pair, samples, *mean_over_launches(list(samples.values())), simulate(*pair))
        for pair, samples in sorted(measured.items(), key=lambda item: item[0][0])
        if not is_incorrect(pair, wrong)
    )


# Collective and algorithm, or the label of a call and an algorithm with its parameters.
IncorrectSet = frozenset[tuple[str, str]]


def incorrect_algorithms(measurements: Measurements) -> IncorrectSet:
    """Return the algorithms that gave a wrong result in any call, and those that a call refused.

    The cause of a wrong result is unknown, and so is where else it shows, of any size on any shape.
    Raises InputError for a damaged file.
    """
    excluded = measurements.provenance.get("excluded", [])
    if not isinstance(excluded, list) or not all(isinstance(line, str) for line in excluded):
        raise InputError(
            f"measurements of {measurements.cluster.name}: 'excluded' in the first line does not"
            " say what gave wrong results; probe again"
        )
    return parse_incorrect_algorithms(excluded)


def is_incorrect(pair: PointConfig, incorrect: IncorrectSet) -> bool:
    """Return whether the pair's collective and algorithm, or its call, are in `incorrect`.

    The default never is, because there is no fallback for it.
    """
    point, choice = pair
    if choice.is_default or not incorrect:
        return False
    call = point_label("collective", point.collective, point.shape, point.nbytes, point.memory)
    named = (point.collective, str(replace(choice, params={}))), (call, str(choice))
    return not incorrect.isdisjoint(named)


def _samples_by_candidate(
    measurements: Measurements,
) -> dict[PointConfig, dict[int, tuple[float, ...]]]:
    found: dict[PointConfig, dict[int, tuple[float, ...]]] = defaultdict(dict)
    for entry in measurements.series:
        if entry.kind not in RUNNER_OF_KIND:
            continue
        point = _point(entry)
        choice = _choice(point, entry)
        if entry.launch in found[point, choice]:
            raise InputError(f"{point}: {choice} was measured twice; probe again")
        if not entry.samples or min(entry.samples) <= 0:
            raise InputError(f"{point}: {choice} needs samples above 0 s; probe again")
        found[point, choice][entry.launch] = entry.samples
    return found


def _choice(point: CallPoint, series: Measurement) -> AlgorithmChoice:
    try:
        return AlgorithmChoice(series.algorithm, series.params, RUNNER_OF_KIND[series.kind])
    except ValueError as reason:
        raise InputError(f"measurements: {point}: {reason}; probe again") from None


def group_by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Group items by a key, in the order in which keys are first met."""
    groups = defaultdict[Key, list[Item]](list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)


def group_by_point(observations: Iterable[Observation]) -> dict[CallPoint, list[Observation]]:
    """Group observations by their call, points ascending."""
    return dict(sorted(group_by(observations, lambda row: row.point).items()))


def _point(series: Measurement) -> CallPoint:
    collective = series.collective
    if series.nodes * series.ppn != series.p:
        raise InputError(
            f"measurements: {collective} on p = {series.p} ranks is not {series.nodes} nodes x"
            f" {series.ppn} ranks; probe communicators with the same ppn on every node"
        )
    return CallPoint(
        collective, series.nodes, series.ppn, series.memory, series.nbytes, series.placement
    )
