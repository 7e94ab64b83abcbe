"""Where the time of a run goes: the chain of events that the last rank waited for, and its parts.

Walking back from the end of the last rank: a rank folds what arrived, after the transfer that came
last, which started when the later of its two ranks was ready or when the message before it released
the port, and so on to the beginning. Whatever is on this path made the run as long as it is.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.base.arrays import FloatArray, IntArray
from tuner.base.errors import InputError
from tuner.core.calibration import Calibration
from tuner.core.schedule import Schedule
from tuner.sim.reference_engine import Bar, trace
from tuner.sim.transfers import Traffic, traffic
from tuner.topology import CUDA, HOST, Placement

LATENCY, BANDWIDTH, CONTENTION, REDUCTION, COPYING, OVERHEAD = PARTS = (
    "latency",
    "bandwidth",
    "contention",
    "reduction",
    "copying",
    "overhead",
)
MEANING: Mapping[str, str] = {
    LATENCY: "last bytes on their way (alpha), and acknowledgements",
    BANDWIDTH: "bytes flowing as fast as they can alone (beta)",
    CONTENTION: "flowing longer, because others share a link",
    REDUCTION: "arrivals being reduced (gamma)",
    COPYING: "local copies, and between host and device",
    OVERHEAD: "ports and ranks busy per message or call",
}
NONE = -1
MOST_TRANSFERS = 100_000  # the reference engine takes half a minute for them


@dataclass(frozen=True)
class Span:
    """A stretch of the critical path, in seconds; `rank` spends it, with a transfer or by itself.

    number      of the transfer, NONE for work of the rank alone
    """

    part: str
    rank: int
    begin: float
    end: float
    number: int = NONE


@dataclass(frozen=True)
class Visits:
    """When each visit of a rank to a round began, its copies and its transfers were complete, and
    what arrived was folded; shapes (visits,), in the order of the traffic.
    """

    entered: FloatArray
    copied: FloatArray
    complete: FloatArray
    left: FloatArray
    rank: IntArray


@dataclass(frozen=True)
class Explained:
    """A run of the reference engine and what it waited for.

    parts       seconds of each of `PARTS`; together they are the time of the run
    """

    bars: Sequence[Bar]
    visits: Visits
    path: Sequence[Span]
    parts: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """Of the whole run."""
        return math.fsum(self.parts.values())


def explain(
    schedule: Schedule,
    placement: Placement,
    calibration: Calibration,
    nbytes: int,
    itemsize: int = 1,
    memory: str = HOST,
) -> Explained:
    """Play one call; arguments and errors as for `simulate`.

    Raises InputError for more than MOST_TRANSFERS, too.
    """
    transfers = 0
    for r in schedule.rounds():
        transfers += len(r)
        if transfers > MOST_TRANSFERS:
            raise InputError(
                f"{schedule} has more than {MOST_TRANSFERS} transfers, too many to trace: take"
                " fewer ranks or larger segments"
            )
    priced = traffic(schedule, placement, calibration, nbytes, itemsize, memory)
    bars = trace(priced)
    path = critical_path(priced, bars)
    own = parts(path)
    own[OVERHEAD] += calibration.pointer_query if memory == CUDA else 0.0
    return Explained(bars, visits(priced, bars), path, own)


def visits(traffic: Traffic, bars: Sequence[Bar]) -> Visits:
    """From the times of all transfers, in the order of `traffic`."""
    arrived = np.array([bar.arrived for bar in bars])
    rank = np.repeat(np.arange(traffic.p), np.diff(traffic.visit_start))
    owner = np.repeat(rank, np.diff(traffic.post_start))
    sends = traffic.src[traffic.posts] == owner
    heard = np.array([bar.heard for bar in bars])
    done = np.where(sends, heard[traffic.posts], arrived[traffic.posts])
    entered, copied, complete, left = (np.zeros(len(rank)) for _ in range(4))
    for visit in range(len(rank)):
        first = visit == traffic.visit_start[rank[visit]]
        entered[visit] = 0.0 if first else left[visit - 1]
        own = done[traffic.post_start[visit] : traffic.post_start[visit + 1]]
        copied[visit] = entered[visit] + traffic.copying[visit]
        complete[visit] = max(copied[visit], own.max(initial=0.0))
        left[visit] = complete[visit] + traffic.folding[visit]
    return Visits(entered, copied, complete, left, rank)


def critical_path(traffic: Traffic, bars: Sequence[Bar]) -> list[Span]:
    """Spans from 0 to the end of the last rank, each beginning where the one before it ends."""
    spans = list(_Walk(traffic, bars).back())
    return [span for span in reversed(spans) if span.end > span.begin]


def parts(path: Sequence[Span]) -> dict[str, float]:
    """Seconds of each of `PARTS`; together they are the length of the path."""
    return {
        part: math.fsum(span.end - span.begin for span in path if span.part == part)
        for part in PARTS
    }


class _Walk:
    """Back along the critical path."""

    def __init__(self, traffic: Traffic, bars: Sequence[Bar]) -> None:
        self.traffic, self.bars = traffic, bars
        self.visits = visits(traffic, bars)
        owner = np.repeat(np.arange(len(self.visits.rank)), np.diff(traffic.post_start))
        sends = traffic.src[traffic.posts] == self.visits.rank[owner]
        self.visit_of = np.zeros((2, len(bars)), dtype=np.int64)  # the sender's, the receiver's
        self.visit_of[0, traffic.posts[sends]] = owner[sends]
        self.visit_of[1, traffic.posts[~sends]] = owner[~sends]
        self.alone = _seconds_alone(traffic)
        # (port, time) -> what released it then, the first of several that took no time
        self.freed: dict[tuple[int, float], int] = {}
        for number in sorted(range(len(bars)), key=self._turn, reverse=True):
            for port in self._ports(number):
                self.freed[port, bars[number].released] = number

    def _turn(self, number: int) -> tuple[float, int]:
        """What transfers queue for ports by."""
        return float(self.visits.entered[self._latest(number)]), number

    def _ports(self, number: int) -> tuple[int, int]:
        """The port of the sender, and that of the receiver, numbered after all of those."""
        return int(self.traffic.out[number]), 2 * self.traffic.p + int(self.traffic.back[number])

    def back(self) -> Iterator[Span]:
        """The last span first."""
        left = self.visits.left
        visit = int(left.argmax()) if len(left) else NONE
        while visit != NONE:
            rank = int(self.visits.rank[visit])
            yield Span(REDUCTION, rank, float(self.visits.complete[visit]), float(left[visit]))
            entered, copied = float(self.visits.entered[visit]), float(self.visits.copied[visit])
            if self.visits.complete[visit] == copied:
                yield Span(COPYING, rank, entered, copied)
                visit = self._before(visit)
            else:
                visit = yield from self._through(self._awaited(visit), rank)

    def _before(self, visit: int) -> int:
        start = self.traffic.visit_start
        return NONE if visit == start[self.visits.rank[visit]] else visit - 1

    def _awaited(self, visit: int) -> int:
        """The transfer of a visit that was complete last; of several one that brought data."""
        span = slice(*self.traffic.post_start[visit : visit + 2])
        posts, when = self.traffic.posts[span].tolist(), self.visits.complete[visit]
        last = [number for number in posts if self._complete(number, visit) == when]
        return int(min(last, key=lambda number: self.visit_of[1, number] != visit))

    def _complete(self, number: int, visit: int) -> float:
        bar = self.bars[number]
        return bar.heard if self.visit_of[0, number] == visit else bar.arrived

    def _through(self, number: int, rank: int) -> Generator[Span, None, int]:
        """Back through a transfer, and those before it at its ports, to a visit that made it wait.

        Returns the visit before that one.
        """
        bar = self.bars[number]
        receives = int(self.visit_of[1, number])
        asked, sends = float(self.visits.entered[receives]), rank == bar.src
        if sends and self.traffic.awaited[number] and asked > bar.arrived:
            yield Span(LATENCY, bar.src, asked, bar.heard, number)
            return self._before(receives)
        if sends and bar.heard > bar.arrived:
            yield Span(LATENCY, bar.src, bar.arrived, bar.heard, number)
        if not sends or bar.heard > bar.released:
            yield Span(LATENCY, bar.dst, bar.released, bar.arrived, number)
        while True:
            yield from self._flow(number)
            bar = self.bars[number]
            visit = self._latest(number)
            if self.visits.entered[visit] == bar.started:
                return self._before(visit)
            number = self._ahead(number)

    def _flow(self, number: int) -> Iterator[Span]:
        bar = self.bars[number]
        begun = bar.started + float(self.traffic.overhead[number])
        alone = max(begun, bar.released - max(0.0, bar.released - begun - self.alone[number]))
        yield Span(CONTENTION, bar.src, min(alone, bar.released), bar.released, number)
        yield Span(BANDWIDTH, bar.src, begun, min(alone, bar.released), number)
        yield Span(OVERHEAD, bar.src, bar.started, begun, number)

    def _latest(self, number: int) -> int:
        """The visit, of the sender or where it must be ready of the receiver, that began later."""
        sender, receiver = self.visit_of[:, number].tolist()
        if self.traffic.eager[number]:
            return int(sender)
        entered = self.visits.entered
        return int(receiver if entered[receiver] > entered[sender] else sender)

    def _ahead(self, number: int) -> int:
        """The transfer that released the sender's or the receiver's port when this one started."""
        started = self.bars[number].started
        at_sender, at_receiver = (
            self.freed.get((port, started), number) for port in self._ports(number)
        )
        return at_receiver if at_sender == number else at_sender


def _seconds_alone(traffic: Traffic) -> FloatArray:
    """How long each transfer flows if it meets no other."""
    width = np.append(traffic.capacity, np.inf)[traffic.links]
    with np.errstate(divide="ignore", invalid="ignore"):
        per_byte = np.where(traffic.use > 0.0, traffic.use / width, 0.0).max(axis=1, initial=0.0)
    slowest = np.maximum(per_byte[traffic.path], traffic.beta * traffic.port_share.max(axis=1))
    seconds: FloatArray = traffic.nbytes * slowest
    return seconds
