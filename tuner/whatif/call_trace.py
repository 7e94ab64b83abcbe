"""One simulated call as a trace that Perfetto opens: a process for each rank.

Spans of one thread must not overlap, so that messages which share a port have threads of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from tuner.base.trace_events import TraceEvent, process_events, span_event, thread_event, trace_text
from tuner.sim.critical_paths import NO_TRANSFER
from tuner.sim.transfer_spans import TransferSpan
from tuner.whatif.traced_call import COPYING, REDUCING, SimulatedCall

Times = tuple[float, float]  # begin and end, in seconds
CRITICAL_PATH = "critical path"
SENDING, RECEIVING, WORK = "sending", "receiving", "work"
WORK_THREAD = 0
MAX_LANES = 1000  # of a rank and direction; threads of the other direction come after them


def call_trace_text(call: SimulatedCall) -> str:
    """Return the JSON of the trace: the critical path, and what each rank does."""
    return trace_text(_events(call))


def _events(call: SimulatedCall) -> Iterator[TraceEvent]:
    yield from process_events(0, CRITICAL_PATH)
    for segment in call.run.path:
        args = {"rank": segment.rank}
        if segment.transfer != NO_TRANSFER:
            args["to"] = call.run.transfers[segment.transfer].dst
        times = segment.begin, segment.end
        yield span_event(segment.component, CRITICAL_PATH, 0, WORK_THREAD, times, args)
    nodes = call.machine.topology.nodes
    for rank, node in enumerate(call.placement.node_of.tolist()):
        yield from process_events(rank + 1, f"rank {rank} on {nodes[node].name}")
        yield thread_event(rank + 1, WORK_THREAD, WORK)
    yield from _work_events(call)
    sends = [(one.src, (one.started, one.released)) for one in call.run.transfers]
    receives = [(one.dst, (one.started, one.arrived)) for one in call.run.transfers]
    yield from _message_events(call.run.transfers, SENDING, sends, 1)
    yield from _message_events(call.run.transfers, RECEIVING, receives, 1 + MAX_LANES)


def _work_events(call: SimulatedCall) -> Iterator[TraceEvent]:
    own = call.run.timeline
    for kind, begins, ends in (
        (COPYING, own.entered, own.copied),
        (REDUCING, own.completed, own.exited),
    ):
        columns = (column.tolist() for column in (own.rank, begins, ends))
        for rank, begin, end in zip(*columns, strict=True):
            if end > begin:
                yield span_event(kind, WORK, rank + 1, WORK_THREAD, (begin, end), {})


def _message_events(
    transfers: Sequence[TransferSpan],
    direction: str,
    bars: Sequence[tuple[int, Times]],
    first_thread: int,
) -> Iterator[TraceEvent]:
    """Yield the messages in one direction.

    bars    rank and times of each transfer
    """
    named: set[tuple[int, int]] = set()
    for transfer, (rank, times), lane in zip(transfers, bars, _lanes(bars), strict=True):
        thread = first_thread + lane
        if (rank, lane) not in named:
            named.add((rank, lane))
            yield thread_event(rank + 1, thread, f"{direction} {lane + 1}" if lane else direction)
        other = f"to {transfer.dst}" if direction == SENDING else f"from {transfer.src}"
        args = {"round": transfer.round, "bytes": transfer.nbytes}
        yield span_event(other, direction, rank + 1, thread, times, args)


def _lanes(bars: Sequence[tuple[int, Times]]) -> list[int]:
    """Return a lane for each bar, in which no other of its rank overlaps it."""
    lanes = [0] * len(bars)
    free: dict[int, list[tuple[float, int]]] = {}  # rank -> (end, lane) of each lane
    for number in sorted(range(len(bars)), key=lambda i: bars[i][1]):
        rank, (begin, end) = bars[number]
        known = free.setdefault(rank, [])
        reused = known and known[0][0] <= begin
        lanes[number] = min(heappop(known)[1] if reused else len(known), MAX_LANES - 1)
        heappush(known, (end, lanes[number]))
    return lanes
