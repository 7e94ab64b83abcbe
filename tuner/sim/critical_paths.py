"""The critical path of a run, the chain of events that the last rank waited for, and its parts.

The path is traced back from the end of the last rank: a rank reduces what arrived, after the
transfer that completed last, which started when the later of its two ranks was ready or when the
message before it released the port, and so on to the beginning.
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
from tuner.sim.event_engine import trace
from tuner.sim.transfer_spans import TransferSpan
from tuner.sim.transfers import TransferTable, build_transfers
from tuner.topology import CUDA, HOST, Placement

FLIGHT, BANDWIDTH, CONTENTION, REDUCTION, COPYING, OVERHEAD = TIME_COMPONENTS = (
    "flight",
    "bandwidth",
    "contention",
    "reduction",
    "copying",
    "overhead",
)
COMPONENT_DESCRIPTIONS: Mapping[str, str] = {
    FLIGHT: "time of flight of last bytes (alpha) and of acknowledgements",
    BANDWIDTH: "bytes flowing as fast as they can alone (beta)",
    CONTENTION: "flowing longer, because others share a link",
    REDUCTION: "arrivals being reduced (gamma)",
    COPYING: "local copies, and between host and device",
    OVERHEAD: "ports and ranks busy per message or call",
}
NO_TRANSFER = -1
MAX_TRACED_TRANSFERS = 100_000  # tracing that many takes some seconds


@dataclass(frozen=True)
class PathSegment:
    """A segment of the critical path, in seconds, that `rank` spends in a transfer or by itself.

    transfer    number of the transfer, NO_TRANSFER for work of the rank alone
    """

    component: str
    rank: int
    begin: float
    end: float
    transfer: int = NO_TRANSFER


@dataclass(frozen=True)
class RankTimeline:
    """Times of each rank's visits to rounds, shape (visits,), in seconds, rank by rank.

    entered     the visit began
    copied      its local copies were complete
    completed   its transfers were complete, too
    exited      what arrived was reduced
    """

    entered: FloatArray
    copied: FloatArray
    completed: FloatArray
    exited: FloatArray
    rank: IntArray


@dataclass(frozen=True)
class Explanation:
    """A run and its critical path.

    table           what was run
    components      seconds of each of `TIME_COMPONENTS`; together they are the time of the run
    """

    table: TransferTable
    transfers: Sequence[TransferSpan]
    timeline: RankTimeline
    path: Sequence[PathSegment]
    components: Mapping[str, float]

    @property
    def seconds(self) -> float:
        return math.fsum(self.components.values())


def explain(
    schedule: Schedule,
    placement: Placement,
    calibration: Calibration,
    nbytes: int,
    itemsize: int = 1,
    memory: str = HOST,
) -> Explanation:
    """Simulate one call and explain its time; arguments and errors as for `simulate`.

    Raises InputError also for more than MAX_TRACED_TRANSFERS transfers.
    """
    transfers = 0
    for r in schedule.rounds():
        transfers += len(r)
        if transfers > MAX_TRACED_TRANSFERS:
            raise InputError(
                f"{schedule} has more than {MAX_TRACED_TRANSFERS} transfers, too many to trace:"
                " take fewer ranks or larger segments"
            )
    priced = build_transfers(schedule, placement, calibration, nbytes, itemsize, memory)
    bars = trace(priced)
    path = critical_path(priced, bars)
    own = sum_components(path)
    own[OVERHEAD] += calibration.pointer_query_seconds if memory == CUDA else 0.0
    return Explanation(priced, bars, rank_timeline(priced, bars), path, own)


def rank_timeline(transfers: TransferTable, transfer_spans: Sequence[TransferSpan]) -> RankTimeline:
    """Return the timeline, given the times of all transfers in the order of `build_transfers`."""
    arrived = np.array([bar.arrived for bar in transfer_spans])
    rank = np.repeat(np.arange(transfers.p), np.diff(transfers.visit_start))
    owner = np.repeat(rank, np.diff(transfers.post_start))
    sends = transfers.src[transfers.posts] == owner
    heard = np.array([bar.send_completed for bar in transfer_spans])
    done = np.where(sends, heard[transfers.posts], arrived[transfers.posts])
    entered, copied, complete, left = (np.zeros(len(rank)) for _ in range(4))
    for visit in range(len(rank)):
        first = visit == transfers.visit_start[rank[visit]]
        entered[visit] = 0.0 if first else left[visit - 1]
        own = done[transfers.post_start[visit] : transfers.post_start[visit + 1]]
        copied[visit] = entered[visit] + transfers.copy_seconds[visit]
        complete[visit] = max(copied[visit], own.max(initial=0.0))
        left[visit] = complete[visit] + transfers.reduction_seconds[visit]
    return RankTimeline(entered, copied, complete, left, rank)


def critical_path(
    transfers: TransferTable, transfer_spans: Sequence[TransferSpan]
) -> list[PathSegment]:
    """Return the segments from 0 to the end of the last rank, without gaps."""
    spans = list(_Backtrace(transfers, transfer_spans).walk())
    return [span for span in reversed(spans) if span.end > span.begin]


def sum_components(path: Sequence[PathSegment]) -> dict[str, float]:
    """Return the seconds of each of `TIME_COMPONENTS`; together they are the length of the path."""
    return {
        part: math.fsum(span.end - span.begin for span in path if span.component == part)
        for part in TIME_COMPONENTS
    }


class _Backtrace:
    """A walk back along the critical path."""

    def __init__(self, transfers: TransferTable, transfer_spans: Sequence[TransferSpan]) -> None:
        self.traffic, self.transfer_spans = transfers, transfer_spans
        self.timeline = rank_timeline(transfers, transfer_spans)
        owner = np.repeat(np.arange(len(self.timeline.rank)), np.diff(transfers.post_start))
        sends = transfers.src[transfers.posts] == self.timeline.rank[owner]
        self.visit_of = np.zeros(
            (2, len(transfer_spans)), dtype=np.int64
        )  # row 0: of the sender, row 1: of the receiver
        self.visit_of[0, transfers.posts[sends]] = owner[sends]
        self.visit_of[1, transfers.posts[~sends]] = owner[~sends]
        self.solo_seconds = _solo_seconds(transfers)
        # (port, time) -> the transfer that released it then, the first one if several took no time
        self.released_by: dict[tuple[int, float], int] = {}
        for number in sorted(range(len(transfer_spans)), key=self._queue_key, reverse=True):
            for port in self._ports(number):
                self.released_by[port, transfer_spans[number].released] = number

    def _queue_key(self, number: int) -> tuple[float, int]:
        """Return what transfers queue for ports by: time, then number."""
        return float(self.timeline.entered[self._gating_visit(number)]), number

    def _ports(self, number: int) -> tuple[int, int]:
        """Return the sender's port and the receiver's, numbered after all sending ports."""
        return int(self.traffic.send_port[number]), 2 * self.traffic.p + int(
            self.traffic.recv_port[number]
        )

    def walk(self) -> Iterator[PathSegment]:
        """Yield the segments of the path, the last one first."""
        left = self.timeline.exited
        visit = int(left.argmax()) if len(left) else NO_TRANSFER
        while visit != NO_TRANSFER:
            rank = int(self.timeline.rank[visit])
            yield PathSegment(
                REDUCTION, rank, float(self.timeline.completed[visit]), float(left[visit])
            )
            entered = float(self.timeline.entered[visit])
            copied = float(self.timeline.copied[visit])
            if self.timeline.completed[visit] == copied:
                yield PathSegment(COPYING, rank, entered, copied)
                visit = self._previous_visit(visit)
            else:
                visit = yield from self._trace_transfer(self._last_transfer(visit), rank)

    def _previous_visit(self, visit: int) -> int:
        start = self.traffic.visit_start
        return NO_TRANSFER if visit == start[self.timeline.rank[visit]] else visit - 1

    def _last_transfer(self, visit: int) -> int:
        """Return the transfer of a visit that completed last, preferably one that brought data."""
        span = slice(*self.traffic.post_start[visit : visit + 2])
        posts, when = self.traffic.posts[span].tolist(), self.timeline.completed[visit]
        last = [number for number in posts if self._completion_time(number, visit) == when]
        return int(min(last, key=lambda number: self.visit_of[1, number] != visit))

    def _completion_time(self, number: int, visit: int) -> float:
        bar = self.transfer_spans[number]
        return bar.send_completed if self.visit_of[0, number] == visit else bar.arrived

    def _trace_transfer(self, number: int, rank: int) -> Generator[PathSegment, None, int]:
        """Trace a transfer, and those before it at its ports, back to a visit that made it wait.

        Yields their segments and returns the visit before that one.
        """
        bar = self.transfer_spans[number]
        receives = int(self.visit_of[1, number])
        asked, sends = float(self.timeline.entered[receives]), rank == bar.src
        if sends and self.traffic.waits_for_recv[number] and asked > bar.arrived:
            yield PathSegment(FLIGHT, bar.src, asked, bar.send_completed, number)
            return self._previous_visit(receives)
        if sends and bar.send_completed > bar.arrived:
            yield PathSegment(FLIGHT, bar.src, bar.arrived, bar.send_completed, number)
        if not sends or bar.send_completed > bar.released:
            yield PathSegment(FLIGHT, bar.dst, bar.released, bar.arrived, number)
        while True:
            yield from self._transfer_segments(number)
            bar = self.transfer_spans[number]
            visit = self._gating_visit(number)
            if self.timeline.entered[visit] == bar.started:
                return self._previous_visit(visit)
            number = self._port_predecessor(number)

    def _transfer_segments(self, number: int) -> Iterator[PathSegment]:
        bar = self.transfer_spans[number]
        begun = bar.started + float(self.traffic.overhead[number])
        alone = max(
            begun, bar.released - max(0.0, bar.released - begun - self.solo_seconds[number])
        )
        yield PathSegment(CONTENTION, bar.src, min(alone, bar.released), bar.released, number)
        yield PathSegment(BANDWIDTH, bar.src, begun, min(alone, bar.released), number)
        yield PathSegment(OVERHEAD, bar.src, bar.started, begun, number)

    def _gating_visit(self, number: int) -> int:
        """Return the visit that a transfer waits for.

        That is the sender's for an eager message, else the later one of both ranks.
        """
        sender, receiver = self.visit_of[:, number].tolist()
        if self.traffic.eager[number]:
            return int(sender)
        entered = self.timeline.entered
        return int(receiver if entered[receiver] > entered[sender] else sender)

    def _port_predecessor(self, number: int) -> int:
        """Return the transfer that released one of the ports when this one started."""
        started = self.transfer_spans[number].started
        at_sender, at_receiver = (
            self.released_by.get((port, started), number) for port in self._ports(number)
        )
        return at_receiver if at_sender == number else at_sender


def _solo_seconds(transfers: TransferTable) -> FloatArray:
    """Return how long each transfer flows if no other flow shares its path."""
    width = np.append(transfers.capacity, np.inf)[transfers.links]
    with np.errstate(divide="ignore", invalid="ignore"):
        per_byte = np.where(transfers.load_factor > 0.0, transfers.load_factor / width, 0.0).max(
            axis=1, initial=0.0
        )
    slowest = np.maximum(
        per_byte[transfers.path], transfers.beta * transfers.port_share.max(axis=1)
    )
    seconds: FloatArray = transfers.nbytes * slowest
    return seconds
