"""What a probe measures: points, their arms and their share of the time. Read by the ranks too."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tuner.core.measurement import WRONG, Measurement, called, excluded_line
from tuner.core.path_classes import CONSECUTIVE, CYCLIC, HOST, Placed, placed_record
from tuner.core.table import LIBRARY, SCHEDULE, Choice
from tuner.launch.rank_program import SINGLE
from tuner.mpi_libraries.capabilities import Capabilities

# launch, kind, subject, nodes, ppn, p, nbytes, number, memory, and the placement where it is not
# consecutive: files keep keys
Key = tuple[int | str, ...]
Place = tuple[int, int, int, tuple[int, ...], str]  # nodes, ppn, first, hosts, manner

DELAY = 2e-3  # seconds a receiver does not ask for a message, to see whether the sender waits
# Kinds with an arm for each size.
LADDERS = ("pingpong", "exchange", "fan", "overhead", "pairs", "reduction", "copy")
# Manners of a place beside the placements, of which pairs of hosts are cyclic: two ranks of one
# host on one socket if there are such; two on different ones.
NEAR, APART = "near", "apart"
UNSIZED = (*LADDERS, "eager", "sweep")  # kinds whose points are of no single size
TOGETHER = ("collective", "nccl", "reduction", "call")  # kinds that do not go by pairs
TOO_LONG = "takes too long for the time that is left; a larger --budget has it, in another file"
CALLS = ("collective", "nccl")  # kinds whose arms are rivals, and checked
WARM_UP = 3  # untimed repetitions: first use opens connections and touches pages
FEWEST = 12  # repetitions of every point, even when its time is spent
LARGEST_EAGER = 2**20  # the search for the eager limit looks no higher


@dataclass(frozen=True)
class Arm:
    """One of the things compared at a point.

    settings    the library's variables that force the algorithm
    via         who runs it, as `tuner.core.table.Choice` says
    nbytes      of this arm alone, where a point is a ladder of sizes
    """

    algorithm: str = ""
    params: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, int | str] = field(default_factory=dict)
    nbytes: int | None = None
    via: str = LIBRARY

    @property
    def choice(self) -> Choice:
        """The arm as a table would name it."""
        return Choice(self.algorithm, self.params, self.via)

    @property
    def name(self) -> str:
        """Among the arms of its point: the algorithm, of a ladder the size."""
        return f"{self.nbytes} B" if self.nbytes is not None else str(self.choice)


@dataclass(frozen=True)
class Point(Placed):
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
    arms: tuple[Arm, ...]
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
    placement: str = CONSECUTIVE

    def limited(self, capabilities: Capabilities) -> Point:
        """Return the point less the algorithms that the library cannot be made to run."""
        if self.kind != "collective":
            return self
        return replace(
            self, arms=tuple(arm for arm in self.arms if not capabilities.lacks(arm.settings))
        )

    @property
    def key(self) -> Key:
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
            *_unusual(self.placement),
        )

    @property
    def place(self) -> Place:
        """Which ranks take part, and in which manner they are found."""
        manner = self.placement if self.kind in TOGETHER else self._manner
        return self.nodes, self.ppn or self.p, self.first, tuple(self.hosts), manner

    @property
    def _manner(self) -> str:
        if self.nodes > 1:
            return CYCLIC
        if self.memory != HOST:
            return ""  # all ranks of the host: which two of them are meant, their GPUs decide
        two = self.ppn in (0, 2) and self.p == 2
        return APART if self.apart else NEAR if two else ""

    def size(self, arm: Arm) -> int:
        """Bytes of a message or buffer under `arm`."""
        return self.nbytes if arm.nbytes is None else arm.nbytes

    def series(self, arm: Arm, samples: Sequence[float]) -> Measurement:
        """The measurement of one arm."""
        kind = SCHEDULE if arm.via == SCHEDULE else self.kind
        return Measurement(
            kind=kind,
            subject=self.subject,
            nodes=self.nodes,
            ppn=self.ppn or self.p,
            p=self.p,
            nbytes=self.size(arm),
            samples=tuple(samples),
            algorithm=arm.algorithm,
            params=dict(arm.params),
            memory=self.memory,
            launch=self.launch,
            placement=self.placement,
        )

    def __str__(self) -> str:
        nbytes = None if self.kind in UNSIZED else self.nbytes
        shape = f"p={self.p}" if self.ppn == 0 else self.shape
        return called(self.kind, self.subject, shape, nbytes, self.memory)


@dataclass(frozen=True)
class Plan:
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
    points: tuple[Point, ...]
    seed: int = 1
    fewest: int = FEWEST
    hosts: tuple[str, ...] = ()
    ppn: int = 0
    devices: bool = False
    thread_level: str = SINGLE

    @property
    def weight(self) -> float:
        """Of all points together."""
        return sum(point.weight for point in self.points)

    @property
    def fingerprint(self) -> str:
        """Two plans measure the same things in the same way iff these are equal."""
        points = [placed_record(asdict(point)) for point in self.points]
        record = {**asdict(replace(self, points=())), "points": points}
        return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]

    def complete(self, series: Sequence[Measurement]) -> list[Measurement]:
        """Those of `series`, in the order written, that belong to finished points.

        The last point was cut off unless all its arms are there; an arm that lacks at an earlier
        one was excluded.
        """
        measured = {_arm_key(found) for found in series}
        whole = {point.key for point in self.points if not _lacking(point, measured)}
        cut = {_key(found) for found in series[-1:]} - whole
        return [found for found in series if _key(found) not in cut]

    def excluded(
        self, series: Sequence[Measurement], why: Mapping[str, str] | None = None
    ) -> list[str]:
        """The points and arms that a finished probe lacks, by name, and the reason.

        why     point, or point and arm -> the reason; if it does not say (who knew was killed), of
                what is checked a wrong result, of a message that it takes too long

        Points in a GPU's memory without any arm had no such GPU.
        """
        measured, told = {_arm_key(found) for found in series}, why or {}
        begun = {_key(one) for one in series}
        found: dict[str, None] = {}
        for point in self.points:
            for arm in _lacking(point, measured):
                name = f"{point}: {arm.name}"
                if str(point) in told:
                    found[f"{point}: {told[str(point)]}"] = None
                elif point.memory == HOST or point.key in begun:
                    usual = WRONG if point.kind in CALLS else TOO_LONG
                    found[excluded_line(str(point), arm.name, told.get(name, usual))] = None
        return list(found)

    def of_launch(self, launch: int) -> Plan:
        """Return the part that one start of the ranks measures, on this computer by as many as it
        needs.

        Where a message between GPUs is measured, nobody knows yet by which of the ranks.
        """
        points = tuple(q for q in self.points if q.launch == launch)
        among_all = self.hosts or any(q.memory != HOST and q.kind not in CALLS for q in points)
        needed = max((q.p for q in points), default=self.ranks)
        return replace(self, points=points, ranks=self.ranks if among_all else max(needed, 2))

    def after_launch(self, launch: int) -> Plan:
        """The part that later starts of the ranks measure."""
        return replace(self, points=tuple(q for q in self.points if q.launch > launch))

    def limited(self, capabilities: Capabilities) -> Plan:
        """Return the plan less the algorithms that the library cannot be made to run."""
        return replace(self, points=tuple(point.limited(capabilities) for point in self.points))

    def without(self, series: Sequence[Measurement]) -> Plan:
        """The same plan less the points that `series` belong to."""
        done = {_key(found) for found in series}
        return replace(self, points=tuple(q for q in self.points if q.key not in done))

    def less(self, keys: Collection[Sequence[object]]) -> Plan:
        """The same plan less these points."""
        dropped = {tuple(key) for key in keys}
        return replace(self, points=tuple(q for q in self.points if q.key not in dropped))


def _key(series: Measurement) -> Key:
    """Which point of a plan a series belongs to."""
    nbytes = 0 if series.kind in UNSIZED else series.nbytes
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
        *_unusual(series.placement),
    )


def _unusual(placement: str) -> tuple[str, ...]:
    return () if placement == CONSECUTIVE else (placement,)


def _lacking(point: Point, measured: Collection[tuple[object, ...]]) -> list[Arm]:
    """Arms of a point that were not measured."""
    return [arm for arm in point.arms if _arm_key(point.series(arm, ())) not in measured]


def _arm_key(series: Measurement) -> tuple[object, ...]:
    """Which arm of the plan a series belongs to.

    The eager limit is found, not planned; the pairs of a sweep follow from its hosts.
    """
    size = 0 if series.kind == "eager" else series.nbytes
    params = {} if series.kind == "sweep" else series.params
    return *_key(series), series.kind, size, series.algorithm, tuple(sorted(params.items()))


def write_plan(plan: Plan, path: Path) -> None:
    """JSON, for the ranks of one launch."""
    path.write_text(json.dumps(asdict(plan)), encoding="utf-8")


def read_plan(path: Path) -> Plan:
    """What `write_plan` wrote."""
    record = json.loads(path.read_text(encoding="utf-8"))
    record["points"] = tuple(
        Point(
            **{
                **point,
                "arms": tuple(Arm(**arm) for arm in point["arms"]),
                "hosts": tuple(point["hosts"]),
            }
        )
        for point in record["points"]
    )
    return Plan(**{**record, "hosts": tuple(record["hosts"])})
