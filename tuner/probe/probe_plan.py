"""The plan of a probe: its points, their candidates and their weights.

The ranks read it too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tuner.base.thread_levels import THREAD_SINGLE
from tuner.core.measurement import WRONG_RESULT, Measurement, format_exclusion, point_label
from tuner.core.path_classes import BLOCK, CYCLIC, HOST, PlacementMixin, omit_default_placement
from tuner.core.table import LIBRARY, SCHEDULE, AlgorithmChoice
from tuner.mpi_libraries.capabilities import Capabilities

# launch, kind, subject, nodes, ppn, p, nbytes, number, memory, and the placement unless it is
# block; these keys are stored in files
PointKey = tuple[int | str, ...]
RankSet = tuple[int, int, int, tuple[int, ...], str]  # nodes, ppn, first, hosts, manner

# Seconds after which a late receiver asks for a message, to see whether the sender waits.
RECEIVER_DELAY_S = 2e-3
# Kinds with a candidate for each size.
SIZE_SERIES_KINDS = ("pingpong", "exchange", "fan", "overhead", "pairs", "reduction", "copy")
# How two ranks of one host are chosen: on one socket if possible; on different sockets. Pairs of
# ranks on two hosts are placed cyclically.
ON_ONE_SOCKET, ON_TWO_SOCKETS = "near", "apart"
UNSIZED_KINDS = (*SIZE_SERIES_KINDS, "eager", "sweep")  # kinds without a single size
COMMUNICATOR_KINDS = ("collective", "nccl", "reduction", "call")  # kinds without pairs
OUT_OF_TIME = "takes too long for the time that is left; a larger --budget has it, in another file"
COLLECTIVE_KINDS = ("collective", "nccl")  # kinds of competing, checked candidates
WARM_UP_REPETITIONS = 3  # untimed repetitions: first use opens connections and touches pages
MIN_REPETITIONS = 12  # repetitions of short calls, even when the time of their point is spent
MIN_LONG_REPETITIONS = 3  # repetitions of long calls, which need fewer
MIN_LONG_WARM_UPS = 2  # untimed ones; the second shows how long they are
MAX_EAGER_BYTES = 2**20  # upper end of the search for the eager limit


@dataclass(frozen=True)
class ProbeCandidate:
    """An algorithm, message size or parameter set that is timed at a point beside others.

    settings    the library's variables that force the algorithm
    nbytes      size of this candidate alone, where the point is a series of sizes; else None
    runner      who runs it, as in `tuner.core.table.AlgorithmChoice`
    """

    algorithm: str = ""
    params: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, int | str] = field(default_factory=dict)
    nbytes: int | None = None
    runner: str = LIBRARY

    @property
    def choice(self) -> AlgorithmChoice:
        return AlgorithmChoice(self.algorithm, self.params, self.runner)

    @property
    def name(self) -> str:
        """The name among the candidates of a point: its size in a size series, else its choice."""
        return f"{self.nbytes} B" if self.nbytes is not None else str(self.choice)


@dataclass(frozen=True)
class ProbePoint(PlacementMixin):
    """Candidates that are timed together, in turn.

    A point is either a collective at one size with a candidate for each algorithm, or a series of
    sizes with a candidate for each size. As the candidates take turns, drift of the machine affects
    all of them alike.

    weight              share of the measurement time
    nodes, ppn          number of hosts that take part and ranks on each; ppn 0: all `p` ranks on
                        one host
    first_host          number of the first host; the others follow it
    hosts               host numbers, where they are not consecutive
    concurrency_group   points of one group on different hosts are measured concurrently; 0: alone
    index               distinguishes otherwise equal points, such as repeated sentinels or
                        distances
    cross_socket        whether the two ranks of a host are on different sockets
    memory              where the buffers are; points that need a GPU are left out where there is
                        none
    placement           of the ranks of a communicator; point-to-point kinds have an order of their
                        own
    """

    kind: str
    subject: str
    p: int
    nbytes: int
    candidates: tuple[ProbeCandidate, ...]
    weight: float
    launch: int = 0
    nodes: int = 1
    ppn: int = 0
    first_host: int = 0
    hosts: tuple[int, ...] = ()
    concurrency_group: int = 0
    index: int = 0
    cross_socket: bool = False
    memory: str = HOST
    placement: str = BLOCK

    def drop_unsupported(self, capabilities: Capabilities) -> ProbePoint:
        """Return the point without the algorithms that the library cannot be made to run."""
        if self.kind != "collective":
            return self
        return replace(
            self,
            candidates=tuple(
                candidate
                for candidate in self.candidates
                if not capabilities.missing_reason(candidate.settings)
            ),
        )

    @property
    def key(self) -> PointKey:
        return (
            self.launch,
            self.kind,
            self.subject,
            self.nodes,
            self.ppn or self.p,
            self.p,
            self.nbytes,
            self.index,
            self.memory,
            *_placement_suffix(self.placement),
        )

    @property
    def rank_set(self) -> RankSet:
        """The ranks that take part, and how they are found on their hosts."""
        manner = self.placement if self.kind in COMMUNICATOR_KINDS else self._placement_kind
        return self.nodes, self.ppn or self.p, self.first_host, tuple(self.hosts), manner

    @property
    def _placement_kind(self) -> str:
        if self.nodes > 1:
            return CYCLIC
        if self.memory != HOST:
            return ""  # all ranks of the host: their GPUs decide which two measure
        two = self.ppn in (0, 2) and self.p == 2
        return ON_TWO_SOCKETS if self.cross_socket else ON_ONE_SOCKET if two else ""

    def nbytes_of(self, candidate: ProbeCandidate) -> int:
        """Return the bytes of a message or buffer for `candidate`."""
        return self.nbytes if candidate.nbytes is None else candidate.nbytes

    def to_measurement(self, candidate: ProbeCandidate, samples: Sequence[float]) -> Measurement:
        kind = SCHEDULE if candidate.runner == SCHEDULE else self.kind
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
    """All that the ranks need to know for a probe.

    ranks           ranks to start
    cores           cores of the computer
    ci_half_width   relative half-width of a median's 95 % interval at which a point is done
    operators       `commutative`, or `any` to leave out algorithms that reorder operands
    seed            decides the order of candidates and the data
    min_repetitions minimum repetitions of short calls, even when the time of their point is spent
    hosts           host names, in the order of their numbers; empty: this computer alone
    ppn             ranks on each host
    detect_gpus     whether GPUs are looked for and described, even if no point of theirs is left
    thread_level    thread level that MPI is initialised with, named as for MPI_Init_thread
    """

    library: str
    ranks: int
    cores: int
    ci_half_width: float
    operators: str
    points: tuple[ProbePoint, ...]
    seed: int = 1
    min_repetitions: int = MIN_REPETITIONS
    hosts: tuple[str, ...] = ()
    ppn: int = 0
    detect_gpus: bool = False
    thread_level: str = THREAD_SINGLE

    @property
    def total_weight(self) -> float:
        return sum(point.weight for point in self.points)

    @property
    def launches(self) -> int:
        """The number of launches, those before the first point included."""
        return 1 + max((point.launch for point in self.points), default=0)

    @property
    def fingerprint(self) -> str:
        """A hash that is equal for plans that measure the same things in the same way."""
        points = [omit_default_placement(asdict(point)) for point in self.points]
        record = {**asdict(replace(self, points=())), "points": points}
        return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]

    def select_finished(self, series: Sequence[Measurement]) -> list[Measurement]:
        """Return those of `series` that belong to finished points, in the order written.

        The last point was interrupted unless all its candidates are there; a candidate that is
        missing at an earlier point was excluded.
        """
        measured = {_candidate_key(found) for found in series}
        whole = {point.key for point in self.points if not _missing_candidates(point, measured)}
        cut = {_point_key(found) for found in series[-1:]} - whole
        return [found for found in series if _point_key(found) not in cut]

    def list_exclusions(
        self, series: Sequence[Measurement], reasons: Mapping[str, str] | None = None
    ) -> list[str]:
        """Return a sentence for each point or candidate that a finished probe lacks.

        reasons     point, or point and candidate -> the reason. Where it is missing (the run that
                    knew it was killed) it is taken to be a wrong result for collectives, and lack
                    of time for messages.

        Points in GPU memory without any measured candidate are not listed: there was no such GPU.
        """
        measured, told = {_candidate_key(found) for found in series}, reasons or {}
        begun = {_point_key(one) for one in series}
        found: dict[str, None] = {}
        for point in self.points:
            for candidate in _missing_candidates(point, measured):
                name = f"{point}: {candidate.name}"
                if str(point) in told:
                    found[f"{point}: {told[str(point)]}"] = None
                elif point.memory == HOST or point.key in begun:
                    usual = WRONG_RESULT if point.kind in COLLECTIVE_KINDS else OUT_OF_TIME
                    found[format_exclusion(str(point), candidate.name, told.get(name, usual))] = (
                        None
                    )
        return list(found)

    def for_launch(self, launch: int) -> ProbePlan:
        """Return the part of the plan that one launch measures.

        On this computer no more ranks are started than its points need. Messages between GPUs need
        all ranks, since it is not known yet which of them have the GPUs in question.
        """
        points = tuple(q for q in self.points if q.launch == launch)
        among_all = self.hosts or any(
            q.memory != HOST and q.kind not in COLLECTIVE_KINDS for q in points
        )
        needed = max((q.p for q in points), default=self.ranks)
        return replace(self, points=points, ranks=self.ranks if among_all else max(needed, 2))

    def after_launch(self, launch: int) -> ProbePlan:
        """Return the part of the plan that later launches measure."""
        return replace(self, points=tuple(q for q in self.points if q.launch > launch))

    def drop_unsupported(self, capabilities: Capabilities) -> ProbePlan:
        """Return the plan without the algorithms that the library cannot be made to run."""
        return replace(
            self, points=tuple(point.drop_unsupported(capabilities) for point in self.points)
        )

    def drop_candidates(self, dropped: Collection[tuple[str, str]]) -> ProbePlan:
        """Return the plan without the candidates of these collectives and names."""

        def without(point: ProbePoint) -> ProbePoint:
            kept = (
                candidate
                for candidate in point.candidates
                if (point.subject, candidate.name) not in dropped
            )
            return replace(point, candidates=tuple(kept))

        return replace(self, points=tuple(map(without, self.points)))

    def drop_measured(self, series: Sequence[Measurement]) -> ProbePlan:
        """Return the plan without the points that `series` belong to."""
        done = {_point_key(found) for found in series}
        return replace(self, points=tuple(q for q in self.points if q.key not in done))

    def drop_points(self, keys: Collection[Sequence[object]]) -> ProbePlan:
        dropped = {tuple(key) for key in keys}
        return replace(self, points=tuple(q for q in self.points if q.key not in dropped))


def _point_key(series: Measurement) -> PointKey:
    """Return the key of the plan's point that a series belongs to."""
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
    return [
        candidate
        for candidate in point.candidates
        if _candidate_key(point.to_measurement(candidate, ())) not in measured
    ]


def _candidate_key(series: Measurement) -> tuple[object, ...]:
    """Return a key for the candidate of the plan that a series belongs to.

    Without the size of an eager limit, which is found and not planned, and without the parameters
    of an all-pairs sweep, whose pairs follow from its hosts.
    """
    size = 0 if series.kind == "eager" else series.nbytes
    params = {} if series.kind == "sweep" else series.params
    return *_point_key(series), series.kind, size, series.algorithm, tuple(sorted(params.items()))


def write_plan(plan: ProbePlan, path: Path) -> None:
    """Write a plan as JSON, for the ranks of one launch."""
    path.write_text(json.dumps(asdict(plan)), encoding="utf-8")


def read_plan(path: Path) -> ProbePlan:
    """Read a plan written by `write_plan`."""
    record = json.loads(path.read_text(encoding="utf-8"))
    record["points"] = tuple(
        ProbePoint(
            **{
                **point,
                "candidates": tuple(ProbeCandidate(**each) for each in point["candidates"]),
                "hosts": tuple(point["hosts"]),
            }
        )
        for point in record["points"]
    )
    return ProbePlan(**{**record, "hosts": tuple(record["hosts"])})
