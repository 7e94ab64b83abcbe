"""What a study found, and its record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from itertools import pairwise
from typing import Any

from tuner.base.atomic_io import dataclass_from_record
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.whatif.axes import SIZE_AXIS, AxisValue, GridPoint
from tuner.whatif.study_candidates import Candidate

FORMAT_VERSION = 1
TIE_TOLERANCE = 1e-9  # relative: times that differ by rounding alone


@dataclass(frozen=True)
class TimedCandidate(Candidate):
    """A candidate and its simulated time in seconds."""

    seconds: float

    def is_same(self, other: Candidate) -> bool:
        """The same algorithm with the same parameters."""
        return (self.algorithm, self.params) == (other.algorithm, other.params)


@dataclass(frozen=True)
class TableRegret:
    """What a table says at a point.

    nodes, ppn      whose rules, of the same number of ranks; 0 if none: the library decides
    regret          its time over the best one's, minus one; None where it cannot be known ...
    reason          ... and why
    """

    algorithm: str
    params: Mapping[str, int]
    nodes: int
    ppn: int
    regret: float | None
    reason: str = ""


@dataclass(frozen=True)
class StudyPoint:
    """One call on one machine.

    at          value of each axis
    timings     the candidates, the fastest first
    left_out    the candidates with more transfers than one call may have
    """

    at: GridPoint
    collective: Collective
    nbytes: int
    timings: tuple[TimedCandidate, ...]
    left_out: tuple[str, ...] = ()
    kept: TableRegret | None = None

    @property
    def best(self) -> TimedCandidate:
        """The fastest; of equally fast ones the first in the order of candidates."""
        return self.timings[0]

    @property
    def runner_up(self) -> TimedCandidate | None:
        """The fastest with another algorithm; None without one."""
        others = (t for t in self.timings if t.algorithm != self.best.algorithm)
        return next(others, None)

    @property
    def coordinates(self) -> dict[str, AxisValue]:
        """Values of the axes and the message size."""
        return {**self.at, SIZE_AXIS: self.nbytes}

    def seconds(self, candidate: Candidate) -> float | None:
        """The time of a candidate, None for one that did not compete here."""
        return next((t.seconds for t in self.timings if t.is_same(candidate)), None)


@dataclass(frozen=True)
class Crossover:
    """Between two neighbouring values of one axis the best choice changes.

    at      the other coordinates
    """

    axis: str
    collective: Collective
    at: GridPoint
    below: AxisValue
    above: AxisValue
    before: Candidate
    after: Candidate


@dataclass(frozen=True)
class TableRegretSummary:
    """Regret of the kept choices over the points where it is known; `unknown` others."""

    mean: float
    worst: float
    points: int
    unknown: int


@dataclass(frozen=True)
class StudyResult:
    """Points in the order of the axes, then collective, then size; and what changes where."""

    name: str
    topology: str
    axes: Mapping[str, tuple[AxisValue, ...]]
    points: tuple[StudyPoint, ...]
    switches: tuple[Crossover, ...]
    keeping: TableRegretSummary | None = None


def crossovers(
    points: Sequence[StudyPoint], axes: Mapping[str, tuple[AxisValue, ...]]
) -> Iterator[Crossover]:
    """Where the best choice changes along each axis and along the size, the others held fixed."""
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
    """A tie is no reason to change."""
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
    """None where no regret is known, or no table was given."""
    kept = [point.kept for point in points if point.kept is not None]
    known = [one.regret for one in kept if one.regret is not None]
    if not known:
        return None
    return TableRegretSummary(
        sum(known) / len(known), max(known), len(known), len(kept) - len(known)
    )


def result_record(result: StudyResult) -> dict[str, Any]:
    """What JSON can hold of it; the same study gives the same record."""
    return {"kind": "study", "version": FORMAT_VERSION, **_to_json(result)}


def _to_json(value: Any) -> Any:
    """Dataclasses as mappings and tuples as lists, all the way down."""
    if is_dataclass(value):
        return {name: _to_json(inner) for name, inner in vars(value).items()}
    if isinstance(value, Mapping):
        return {name: _to_json(inner) for name, inner in value.items()}
    return [_to_json(inner) for inner in value] if isinstance(value, tuple) else value


def result_from_record(record: Any) -> StudyResult:
    """The reverse. Raises InputError for anything else."""
    try:
        if (record["kind"], record["version"]) != ("study", FORMAT_VERSION):
            raise ValueError(f"not of kind study and version {FORMAT_VERSION}")
        own = {name: record[name] for name in record if name not in ("kind", "version")}
        return dataclass_from_record(StudyResult, own)
    except (ValueError, KeyError, TypeError) as reason:
        raise InputError(f"not the result of a study: {reason}") from None
