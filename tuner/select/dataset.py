"""From measured series to labelled rows: one per call (`Point`) and candidate (`Choice`)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.measurement import Measurement, Measurements, wrong_algorithms
from tuner.core.path_classes import CONSECUTIVE, Placed
from tuner.core.speedup import over_launches
from tuner.core.table import RUNNER, Choice, Key

Kind = tuple[str, str, str]  # collective, memory, placement


@dataclass(frozen=True, order=True)
class Point(Placed):
    """One call of a collective: `nbytes` of each rank's buffer on nodes x ppn ranks.

    collective  a `Collective`, or another one that files have results of
    """

    collective: str
    nodes: int
    ppn: int
    memory: str
    nbytes: int
    placement: str = CONSECUTIVE

    @property
    def p(self) -> int:
        """Ranks of the communicator."""
        return self.nodes * self.ppn

    @property
    def kind(self) -> Kind:
        """Calls of one kind speak for one another, and for no others."""
        return self.collective, self.memory, self.placement

    @property
    def place(self) -> tuple[float, float, float]:
        """Logarithms of nodes, ppn and bytes, in which distances are told."""
        return math.log(self.nodes), math.log(self.ppn), math.log(max(self.nbytes, 1))

    def key(self, operators: str = "any") -> Key:
        """The key of a table that this call falls under; ValueError where tables know none."""
        collective = Collective(self.collective)
        return Key(collective, self.nodes, self.ppn, self.memory, operators, self.placement)

    def at(self, nbytes: int) -> Point:
        """The same call with another size."""
        return replace(self, nbytes=nbytes)

    def __str__(self) -> str:
        return f"{self.collective} of {self.nbytes} bytes on {self.shape} ranks"


NOISE = 0.05  # gains up to 5 % are within what repeated measurements differ by

Pair = tuple[Point, Choice]
Simulate = Callable[[Point, Choice], float]  # seconds; NaN where no schedule of ours says it


def simulated_beside_default(simulate: Simulate, point: Point, choice: Choice) -> bool:
    """Whether simulations say both: then they speak where nothing was measured nearby (decision
    0035). Where nobody knows what the default runs, nothing else is simulated.
    """
    return not any(math.isnan(simulate(point, one)) for one in (Choice(), choice))


@dataclass(frozen=True)
class Row:
    """What was measured and simulated for one choice at one point. Seconds.

    samples             of each launch, by its number
    typical, low, high  time over the launches (`tuner.core.speedup`) and its 95 % interval
    simulated           NaN for algorithms of the library that no schedule of ours describes, and
                        for its default where nobody knows what that runs
    """

    point: Point
    choice: Choice
    samples: Mapping[int, tuple[float, ...]]
    typical: float
    low: float
    high: float
    simulated: float = math.nan


def measured_pairs(measurements: Measurements) -> Collection[Pair]:
    """What collectives were measured; raises InputError as `label` does."""
    return _by_candidate(measurements).keys()


def label(measurements: Measurements, simulate: Simulate) -> tuple[Row, ...]:
    """Every measured collective with its simulated time, sorted by point, in measured order.

    Without the algorithms that gave a wrong result of the collective anywhere. Raises InputError
    for unknown collectives, a default that is no library's, series without samples or measured
    twice, and placements that are not nodes x ppn.
    """
    measured, wrong = _by_candidate(measurements), wrong_of(measurements)
    return tuple(
        Row(*pair, samples, *over_launches(list(samples.values())), simulate(*pair))
        for pair, samples in sorted(measured.items(), key=lambda item: item[0][0])
        if not is_wrong(pair, wrong)
    )


Wrong = frozenset[tuple[str, str]]  # collective and algorithm


def wrong_of(measurements: Measurements) -> Wrong:
    """What gave a wrong result in any call, of any size on any shape. What its fault is nobody
    knows, nor where else it shows. Raises InputError for a damaged file.
    """
    excluded = measurements.provenance.get("excluded", [])
    if not isinstance(excluded, list) or not all(isinstance(line, str) for line in excluded):
        raise InputError(
            f"measurements of {measurements.cluster.name}: 'excluded' in the first line does not"
            " say what gave wrong results; probe again"
        )
    return wrong_algorithms(excluded)


def is_wrong(pair: Pair, wrong: Wrong) -> bool:
    """Whether these are that pair's collective and algorithm. The default stays whatever it does:
    nothing else is there to fall back on.
    """
    point, choice = pair
    name = str(replace(choice, params={}))
    return not choice.is_default and (point.collective, name) in wrong


def _by_candidate(measurements: Measurements) -> dict[Pair, dict[int, tuple[float, ...]]]:
    """The samples of every launch of every candidate."""
    found: dict[Pair, dict[int, tuple[float, ...]]] = defaultdict(dict)
    for entry in measurements.series:
        if entry.kind not in RUNNER:
            continue
        point = _point(entry)
        choice = _choice(point, entry)
        if entry.launch in found[point, choice]:
            raise InputError(f"{point}: {choice} was measured twice; probe again")
        if not entry.samples or min(entry.samples) <= 0:
            raise InputError(f"{point}: {choice} needs samples above 0 s; probe again")
        found[point, choice][entry.launch] = entry.samples
    return found


def _choice(point: Point, series: Measurement) -> Choice:
    try:
        return Choice(series.algorithm, series.params, RUNNER[series.kind])
    except ValueError as reason:
        raise InputError(f"measurements: {point}: {reason}; probe again") from None


def by_point(rows: Iterable[Row]) -> dict[Point, list[Row]]:
    """Rows of the same call together, points ascending."""
    groups: dict[Point, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.point].append(row)
    return dict(sorted(groups.items()))


def ladders(rows: Iterable[Row]) -> dict[Key, list[int]]:
    """The sizes probed under each key (operators `any`), ascending."""
    sizes: dict[Key, set[int]] = defaultdict(set)
    for row in rows:
        sizes[row.point.key()].add(row.point.nbytes)
    return {key: sorted(probed) for key, probed in sizes.items()}


def _point(series: Measurement) -> Point:
    try:
        collective = Collective(series.subject)
    except ValueError:
        raise InputError(f"measurements: there is no collective {series.subject!r}") from None
    if series.nodes * series.ppn != series.p:
        raise InputError(
            f"measurements: {collective} on p = {series.p} ranks is not {series.nodes} nodes x"
            f" {series.ppn} ranks; probe communicators with the same ppn on every node"
        )
    return Point(
        collective, series.nodes, series.ppn, series.memory, series.nbytes, series.placement
    )
