"""What a probe measures: points, their arms and their share of the time. Read by the ranks too."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tuner.core.measurement import WRONG_RESULT, Measurement, format_exclusion, point_label
from tuner.core.path_classes import BLOCK, CYCLIC, HOST, PlacementMixin, omit_default_placement
from tuner.core.table import LIBRARY, SCHEDULE, AlgorithmConfig
from tuner.launch.rank_program import THREAD_SINGLE
from tuner.mpi_libraries.capabilities import Capabilities

# launch, kind, subject, nodes, ppn, p, nbytes, number, memory, and the placement where it is not
# consecutive: files keep keys
PointKey = tuple[int | str, ...]
RankSet = tuple[int, int, int, tuple[int, ...], str]  # nodes, ppn, first, hosts, manner

RECEIVER_DELAY_S = (
    2e-3  # seconds a receiver does not ask for a message, to see whether the sender waits
)
# Kinds with an arm for each size.
SIZE_SERIES_KINDS = ("pingpong", "exchange", "fan", "overhead", "pairs", "reduction", "copy")
# Manners of a place beside the placements, of which pairs of hosts are cyclic: two ranks of one
# host on one socket if there are such; two on different ones.
ON_ONE_SOCKET, ON_TWO_SOCKETS = "near", "apart"
UNSIZED_KINDS = (*SIZE_SERIES_KINDS, "eager", "sweep")  # kinds whose points are of no single size
COMMUNICATOR_KINDS = ("collective", "nccl", "reduction", "call")  # kinds that do not go by pairs
OUT_OF_TIME = "takes too long for the time that is left; a larger --budget has it, in another file"
COLLECTIVE_KINDS = ("collective", "nccl")  # kinds whose arms are rivals, and checked
WARM_UP_REPETITIONS = 3  # untimed repetitions: first use opens connections and touches pages
MIN_REPETITIONS = 12  # repetitions of every point, even when its time is spent
MAX_EAGER_BYTES = 2**20  # the search for the eager limit looks no higher


@dataclass(frozen=True)
class ProbeCandidate:
    """One of the things compared at a point.

    settings    the library's variables that force the algorithm
    via         who runs it, as `tuner.core.table.AlgorithmConfig` says
    nbytes      of this arm alone, where a point is a ladder of sizes
    """

    algorithm: str = ""
    params: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, int | str] = field(default_factory=dict)
    nbytes: int | None = None
    via: str = LIBRARY

    @property
    def config(self) -> AlgorithmConfig:
        """The arm as a table would name it."""
        return AlgorithmConfig(self.algorithm, self.params, self.via)

    @property
    def name(self) -> str:
        """Among the arms of its point: the algorithm, of a ladder the size."""
        return f"{self.nbytes} B" if self.nbytes is not None else str(self.config)


@dataclass(frozen=True)
class ProbePoint(PlacementMixin):
    """What is measured together, its arms taken in turn. `weight` is its share of the time.

    A collective of one size with an arm for each algorithm, or a ladder of sizes with an arm for
    each size: so a drift of the machine cannot bend the ladder.

    nodes, ppn  hosts that take part and ranks on each; ppn 0: all `p` ranks on one host
    first       number of the first host; the others follow it
    hosts       their numbers instead, where they do not follow one another
    group       points of one group on other hosts are measured at the same time; 0: alone
    number      tells apart points that are otherwise equal: the how-manieth sentinel, distance
    apart       two ranks of a host that are on different sockets
    memory      where the buffers are; what needs a GPU is left out where there is none
    placement   of the ranks of a communicator; what goes by pairs has its own order
    """

    kind: str
    subject: str
    p: int
    nbytes: int
    arms: tuple[ProbeCandidate, ...]
    weight: float
    launch: int = 0
    nodes: int = 1
    ppn: int = 0
    first: int = 0
    hosts: tuple[int, ...] = ()
    group: int = 0
    number: int = 0
    apart: bool = False
    memory: str = HOST
    placement: str = BLOCK

    def drop_unsupported(self, capabilities: Capabilities) -> ProbePoint:
        """Return the point less the algorithms that the library cannot be made to run."""
        if self.kind != "collective":
            return self
        return replace(
            self,
            arms=tuple(arm for arm in self.arms if not capabilities.missing_reason(arm.settings)),
        )

    @property
    def key(self) -> PointKey:
        """What identifies the point in its plan."""
        return (
            self.launch,
            self.kind,
            self.subject,
            self.nodes,
            self.ppn or self.p,
            self.p,
            self.nbytes,
            self.number,
            self.memory,
            *_placement_suffix(self.placement),
        )

    @property
    def rank_set(self) -> RankSet:
        """Which ranks take part, and in which manner they are found."""
        manner = self.placement if self.kind in COMMUNICATOR_KINDS else self._placement_kind
        return self.nodes, self.ppn or self.p, self.first, tuple(self.hosts), manner

    @property
    def _placement_kind(self) -> str:
        if self.nodes > 1:
            return CYCLIC
        if self.memory != HOST:
            return ""  # all ranks of the host: which two of them are meant, their GPUs decide
        two = self.ppn in (0, 2) and self.p == 2
        return ON_TWO_SOCKETS if self.apart else ON_ONE_SOCKET if two else ""

    def nbytes_of(self, candidate: ProbeCandidate) -> int:
        """Bytes of a message or buffer under `arm`."""
        return self.nbytes if candidate.nbytes is None else candidate.nbytes

    def to_measurement(self, candidate: ProbeCandidate, samples: Sequence[float]) -> Measurement:
        """The measurement of one arm."""
        kind = SCHEDULE if candidate.via == SCHEDULE else self.kind
        return Measurement(
            kind=kind,
            subject=self.subject,
            nodes=self.nodes,
            ppn=self.ppn or self.p,
            p=self.p,
            nbytes=self.nbytes_of(candidate),
            samples=tuple(samples),
            algorithm=candidate.algorithm,
            params=dict(candidate.params),
            memory=self.memory,
            launch=self.launch,
            placement=self.placement,
        )

    def __str__(self) -> str:
        nbytes = None if self.kind in UNSIZED_KINDS else self.nbytes
        shape = f"p={self.p}" if self.ppn == 0 else self.shape
        return point_label(self.kind, self.subject, shape, nbytes, self.memory)


@dataclass(frozen=True)
class ProbePlan:
    """Everything the ranks need to know. `seed` decides the order of arms and the data.

    operators   `commutative`, or `any` to leave out algorithms that reorder operands
    fewest      repetitions of every arm, even when the time of its point is spent
    hosts       names, in the order of their numbers; none: this computer alone
    ppn         ranks on each of the hosts
    devices     GPUs are looked for and described, however few of their points are left
    thread_level    with which MPI is initialised, as MPI_Init_thread calls it
    """

    library: str
    ranks: int
    cores: int
    target: float
    operators: str
    points: tuple[ProbePoint, ...]
    seed: int = 1
    fewest: int = MIN_REPETITIONS
    hosts: tuple[str, ...] = ()
    ppn: int = 0
    devices: bool = False
    thread_level: str = THREAD_SINGLE

    @property
    def total_weight(self) -> float:
        """Of all points together."""
        return sum(point.weight for point in self.points)

    @property
    def fingerprint(self) -> str:
        """Two plans measure the same things in the same way iff these are equal."""
        points = [omit_default_placement(asdict(point)) for point in self.points]
        record = {**asdict(replace(self, points=())), "points": points}
        return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]

    def select_finished(self, series: Sequence[Measurement]) -> list[Measurement]:
        """Those of `series`, in the order written, that belong to finished points.

        The last point was cut off unless all its arms are there; an arm that lacks at an earlier
        one was excluded.
        """
        measured = {_candidate_key(found) for found in series}
        whole = {point.key for point in self.points if not _missing_candidates(point, measured)}
        cut = {_point_key(found) for found in series[-1:]} - whole
        return [found for found in series if _point_key(found) not in cut]

    def list_exclusions(
        self, series: Sequence[Measurement], reasons: Mapping[str, str] | None = None
    ) -> list[str]:
        """The points and arms that a finished probe lacks, by name, and the reason.

        why     point, or point and arm -> the reason; if it does not say (who knew was killed), of
                what is checked a wrong result, of a message that it takes too long

        Points in a GPU's memory without any arm had no such GPU.
        """
        measured, told = {_candidate_key(found) for found in series}, reasons or {}
        begun = {_point_key(one) for one in series}
        found: dict[str, None] = {}
        for point in self.points:
            for arm in _missing_candidates(point, measured):
                name = f"{point}: {arm.name}"
                if str(point) in told:
                    found[f"{point}: {told[str(point)]}"] = None
                elif point.memory == HOST or point.key in begun:
                    usual = WRONG_RESULT if point.kind in COLLECTIVE_KINDS else OUT_OF_TIME
                    found[format_exclusion(str(point), arm.name, told.get(name, usual))] = None
        return list(found)

    def for_launch(self, launch: int) -> ProbePlan:
        """Return the part that one start of the ranks measures, on this computer by as many as it
        needs.

        Where a message between GPUs is measured, nobody knows yet by which of the ranks.
        """
        points = tuple(q for q in self.points if q.launch == launch)
        among_all = self.hosts or any(
            q.memory != HOST and q.kind not in COLLECTIVE_KINDS for q in points
        )
        needed = max((q.p for q in points), default=self.ranks)
        return replace(self, points=points, ranks=self.ranks if among_all else max(needed, 2))

    def after_launch(self, launch: int) -> ProbePlan:
        """The part that later starts of the ranks measure."""
        return replace(self, points=tuple(q for q in self.points if q.launch > launch))

    def drop_unsupported(self, capabilities: Capabilities) -> ProbePlan:
        """Return the plan less the algorithms that the library cannot be made to run."""
        return replace(
            self, points=tuple(point.drop_unsupported(capabilities) for point in self.points)
        )

    def drop_measured(self, series: Sequence[Measurement]) -> ProbePlan:
        """The same plan less the points that `series` belong to."""
        done = {_point_key(found) for found in series}
        return replace(self, points=tuple(q for q in self.points if q.key not in done))

    def drop_points(self, keys: Collection[Sequence[object]]) -> ProbePlan:
        """The same plan less these points."""
        dropped = {tuple(key) for key in keys}
        return replace(self, points=tuple(q for q in self.points if q.key not in dropped))


def _point_key(series: Measurement) -> PointKey:
    """Which point of a plan a series belongs to."""
    nbytes = 0 if series.kind in UNSIZED_KINDS else series.nbytes
    kind = "collective" if series.kind == SCHEDULE else series.kind
    return (
        series.launch,
        kind,
        series.subject,
        series.nodes,
        series.ppn,
        series.p,
        nbytes,
        series.params.get("of", 0),
        series.memory,
        *_placement_suffix(series.placement),
    )


def _placement_suffix(placement: str) -> tuple[str, ...]:
    return () if placement == BLOCK else (placement,)


def _missing_candidates(
    point: ProbePoint, measured: Collection[tuple[object, ...]]
) -> list[ProbeCandidate]:
    """Arms of a point that were not measured."""
    return [
        arm for arm in point.arms if _candidate_key(point.to_measurement(arm, ())) not in measured
    ]


def _candidate_key(series: Measurement) -> tuple[object, ...]:
    """Which arm of the plan a series belongs to.

    The eager limit is found, not planned; the pairs of a sweep follow from its hosts.
    """
    size = 0 if series.kind == "eager" else series.nbytes
    params = {} if series.kind == "sweep" else series.params
    return *_point_key(series), series.kind, size, series.algorithm, tuple(sorted(params.items()))


def write_plan(plan: ProbePlan, path: Path) -> None:
    """JSON, for the ranks of one launch."""
    path.write_text(json.dumps(asdict(plan)), encoding="utf-8")


def read_plan(path: Path) -> ProbePlan:
    """What `write_plan` wrote."""
    record = json.loads(path.read_text(encoding="utf-8"))
    record["points"] = tuple(
        ProbePoint(
            **{
                **point,
                "arms": tuple(ProbeCandidate(**arm) for arm in point["arms"]),
                "hosts": tuple(point["hosts"]),
            }
        )
        for point in record["points"]
    )
    return ProbePlan(**{**record, "hosts": tuple(record["hosts"])})
