"""The result of a study, and its record."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from itertools import pairwise
from typing import Any

from tuner.core.collective import Collective
from tuner.machines.model_accuracy import SIMULATION
from tuner.prediction.call_candidates import Candidate
from tuner.whatif.axes import NCCL_AXIS, SIZE_AXIS, AxisValue, GridPoint
from tuner.whatif.machine_resources import limiting_resources

FORMAT_VERSION = 1
TIE_TOLERANCE = 1e-9  # relative difference of times that counts as rounding


@dataclass(frozen=True)
class TimedCandidate(Candidate):
    """A candidate and its time in seconds, simulated or predicted from NCCL's model."""

    seconds: float
    predicted_by: str = SIMULATION

    def is_same(self, other: Candidate) -> bool:
        """Return whether the algorithm and its parameters are the same."""
        return (self.algorithm, self.params) == (other.algorithm, other.params)


@dataclass(frozen=True)
class TableRegret:
    """The choice of a tuning table at a point, and its regret.

    nodes, ppn      shape of the rules that apply, with the same number of ranks; 0 if there are
                    none and the library default applies
    regret          its time over the best one's, minus one; None if unknown
    reason          why it is unknown
    """

    algorithm: str
    params: Mapping[str, int]
    nodes: int
    ppn: int
    regret: float | None
    reason: str = ""


@dataclass(frozen=True)
class StudyPoint:
    """The simulated times of one call on one machine.

    axis_values     value of each axis
    candidates      the candidates, the fastest first
    skipped         the candidates that are too large to be simulated
    table_regret    regret of the given table
    nccl_choice     algorithm that NCCL chooses by itself, which may be none of the candidates;
                    empty where that is not known
    sensitivities   how many times as fast the best candidate is with a resource twice as fast;
                    resources as in `RESOURCE_NAMES`
    shares          share of its time that goes with each resource; those that bound it to the same
                    rate have it each
    rates           bytes per second at which each resource would bound the best candidate, where
                    NCCL's model predicts it: of each NIC, or on one node of the bus bandwidth
    nccl_seconds    time of `nccl_choice`; None where that is not known
    """

    axis_values: GridPoint
    collective: Collective
    nbytes: int
    candidates: tuple[TimedCandidate, ...]
    skipped: tuple[str, ...] = ()
    table_regret: TableRegret | None = None
    nccl_choice: str = ""
    sensitivities: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    nccl_seconds: float | None = None

    @property
    def limits(self) -> tuple[str, ...]:
        """The resources that limit the best candidate; several bound it to the same rate."""
        return limiting_resources(self.shares)

    @property
    def best(self) -> TimedCandidate:
        """The fastest candidate; of equally fast ones the first in the order of candidates."""
        return self.candidates[0]

    @property
    def runner_up(self) -> TimedCandidate | None:
        """The fastest candidate with another algorithm than the best; None if there is none."""
        others = (t for t in self.candidates if t.algorithm != self.best.algorithm)
        return next(others, None)

    @property
    def coordinates(self) -> dict[str, AxisValue]:
        return {**self.axis_values, SIZE_AXIS: self.nbytes}

    def seconds(self, candidate: Candidate) -> float | None:
        """Return the time of a candidate, None if it was not simulated here."""
        return next((t.seconds for t in self.candidates if t.is_same(candidate)), None)


@dataclass(frozen=True)
class Crossover:
    """A change of the best candidate between two neighbouring values of one axis.

    axis_values     the other coordinates
    """

    axis: str
    collective: Collective
    axis_values: GridPoint
    lower_value: AxisValue
    upper_value: AxisValue
    lower_best: Candidate
    upper_best: Candidate


@dataclass(frozen=True)
class AxisStep:
    """The gain of a step from one value of an axis to the next, with the best algorithm at each.

    min_speedup     time at the lower value over time at the upper one, the smallest
    max_speedup     and the largest over all values of the other axes and all sizes
    max_at          the other coordinates where the step changes most
    nccl_speedups   the smallest and the largest of what NCCL chooses by itself, where that is known
    break_even      value of the axis above which there is no gain at `max_at`, where that is known
    """

    axis: str
    collective: Collective
    lower_value: AxisValue
    upper_value: AxisValue
    min_speedup: float
    max_speedup: float
    max_at: GridPoint
    nccl_speedups: tuple[float, ...] = ()
    break_even: float | None = None

    @property
    def upper_at(self) -> dict[str, AxisValue]:
        """The coordinates at which the step changes most, with the upper value."""
        return {**self.max_at, self.axis: self.upper_value}


@dataclass(frozen=True)
class TableRegretSummary:
    """The regret of a table, in fractions of the best time, over the points where it is known."""

    mean_regret: float
    max_regret: float
    known_points: int
    unknown_points: int


@dataclass(frozen=True)
class MachineValue:
    """The price of one machine of a study, and the cost of its calls.

    price           of the whole machine
    parts           how many of each part it has
    relative_cost   collective -> price per node times the geometric mean of the best times over all
                    sizes, over that of the machine where this is least; without machines on which
                    a call takes no time
    """

    axis_values: GridPoint
    price: float
    parts: Mapping[str, int]
    relative_cost: Mapping[Collective, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyResult:
    """The points in the order of axes, then collective, then size, and what follows from them.

    machine_values  price of each machine, where the study has prices
    summary         a paragraph that says what the study found
    verdicts        a sentence for each step along an axis that says what it gains, and why no more
    accuracy        how far predictions were off measured results of this machine
    default_title   name of the library whose default is the study's table; empty for others
    """

    name: str
    topology: str
    axes: Mapping[str, tuple[AxisValue, ...]]
    points: tuple[StudyPoint, ...]
    crossovers: tuple[Crossover, ...]
    table_regret: TableRegretSummary | None = None
    axis_steps: tuple[AxisStep, ...] = ()
    machine_values: tuple[MachineValue, ...] = ()
    summary: str = ""
    verdicts: tuple[str, ...] = ()
    accuracy: str = ""
    default_title: str = ""


def axis_steps(
    points: Sequence[StudyPoint], axes: Mapping[str, tuple[AxisValue, ...]]
) -> Iterator[AxisStep]:
    """Yield the gain of every step along every axis, for each collective."""
    by_place = {_key(point.collective, point.coordinates): point for point in points}
    for axis, values in axes.items():
        below: dict[tuple[Collective, AxisValue], list[StudyPoint]] = {}
        for point in points:
            below.setdefault((point.collective, point.axis_values[axis]), []).append(point)
        for lower, upper in pairwise(values):
            for collective in dict.fromkeys(own for own, _ in below):
                yield from _axis_step(axis, upper, below[collective, lower], by_place)


def _axis_step(
    axis: str,
    upper: AxisValue,
    below: Sequence[StudyPoint],
    by_place: Mapping[tuple[object, ...], StudyPoint],
) -> Iterator[AxisStep]:
    """Yield the step, unless nothing takes any time, as on one rank, or is touched by it.

    A version of NCCL touches the points at which NCCL chooses.
    """
    pairs = [
        (point, by_place[_key(point.collective, {**point.coordinates, axis: upper})])
        for point in below
        if axis != NCCL_AXIS or point.nccl_choice
    ]
    speedups = [
        (low.best.seconds / high.best.seconds, low)
        for low, high in pairs
        if min(low.best.seconds, high.best.seconds) > 0.0
    ]
    if not speedups:
        return
    own = [
        low.nccl_seconds / high.nccl_seconds
        for low, high in pairs
        if low.nccl_seconds and high.nccl_seconds
    ]
    most = max(speedups, key=lambda pair: abs(math.log(pair[0])))[1]
    yield AxisStep(
        axis,
        most.collective,
        most.axis_values[axis],
        upper,
        min(one for one, _ in speedups),
        max(one for one, _ in speedups),
        {name: value for name, value in most.coordinates.items() if name != axis},
        (min(own), max(own)) if own else (),
    )


def machine_values(
    prices: Sequence[tuple[float, Mapping[str, int]]],
    points: Sequence[StudyPoint],
    grid: Sequence[GridPoint],
) -> Iterator[MachineValue]:
    """Yield each machine of `grid` with its price and parts, and the relative cost of its calls."""
    times: dict[tuple[Collective, tuple[AxisValue, ...]], list[float]] = {}
    for point in points:
        key = point.collective, tuple(point.axis_values.values())
        times.setdefault(key, []).append(point.best.seconds)
    cost: dict[Collective, dict[int, float]] = {}
    for number, (at, (price, _)) in enumerate(zip(grid, prices, strict=True)):
        for collective in dict.fromkeys(own for own, _ in times):
            seconds = times[collective, tuple(at.values())]
            if min(seconds) > 0.0:
                mean = math.exp(math.fsum(map(math.log, seconds)) / len(seconds))
                cost.setdefault(collective, {})[number] = price / int(at["nodes"]) * mean
    for number, (at, (price, parts)) in enumerate(zip(grid, prices, strict=True)):
        relative = {
            collective: own[number] / min(own.values())
            for collective, own in cost.items()
            if number in own and min(own.values()) > 0.0
        }
        yield MachineValue(at, price, parts, relative)


def crossovers(
    points: Sequence[StudyPoint], axes: Mapping[str, tuple[AxisValue, ...]]
) -> Iterator[Crossover]:
    """Yield where the best candidate changes along each axis and the size, the others fixed."""
    by_place = {_key(point.collective, point.coordinates): point for point in points}
    sizes: tuple[AxisValue, ...] = tuple(dict.fromkeys(point.nbytes for point in points))
    for axis, values in {**axes, SIZE_AXIS: sizes}.items():
        following = dict(pairwise(values))
        for point in points:
            at = point.coordinates
            if at[axis] in following:
                moved = {**at, axis: following[at[axis]]}
                yield from _crossover(axis, point, by_place[_key(point.collective, moved)])


def _key(collective: Collective, coordinates: GridPoint) -> tuple[object, ...]:
    return (collective, *coordinates.values())


def _crossover(axis: str, below: StudyPoint, above: StudyPoint) -> Iterator[Crossover]:
    """Yield the crossover between two points, unless the best candidate below ties above."""
    still = above.seconds(below.best)
    if still is None or still > above.best.seconds * (1 + TIE_TOLERANCE):
        others = {name: value for name, value in below.coordinates.items() if name != axis}
        yield Crossover(
            axis,
            below.collective,
            others,
            below.coordinates[axis],
            above.coordinates[axis],
            Candidate(below.best.algorithm, below.best.params),
            Candidate(above.best.algorithm, above.best.params),
        )


def summarise_table_regret(points: Sequence[StudyPoint]) -> TableRegretSummary | None:
    """Return the summary; None where no regret is known or no table was given."""
    kept = [point.table_regret for point in points if point.table_regret is not None]
    known = [one.regret for one in kept if one.regret is not None]
    if not known:
        return None
    return TableRegretSummary(
        sum(known) / len(known), max(known), len(known), len(kept) - len(known)
    )


def result_record(result: StudyResult) -> dict[str, Any]:
    """Return the result as JSON data; the same study gives the same record."""
    return {"kind": "study", "version": FORMAT_VERSION, **_to_json(result)}


def _to_json(value: Any) -> Any:
    """Convert dataclasses to mappings and tuples to lists, recursively."""
    if is_dataclass(value):
        return {name: _to_json(inner) for name, inner in vars(value).items()}
    if isinstance(value, Mapping):
        return {name: _to_json(inner) for name, inner in value.items()}
    return [_to_json(inner) for inner in value] if isinstance(value, tuple) else value
