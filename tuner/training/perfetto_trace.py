"""A predicted iteration as a trace, which Perfetto opens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tuner.base import trace_events
from tuner.base.trace_events import TraceEvent, process_events, span_event, thread_event
from tuner.training.iteration import PredictedIteration
from tuner.training.recorded import COMPUTE, HOST
from tuner.training.timeline import Operation

SERVERS = "parameter servers"
COMMUNICATING = "communication"


def stream_group(stream: str) -> str:
    """Return the group of a stream: computation, host, communication, or parameter servers."""
    if stream == COMPUTE or re.fullmatch(r"stage \d+", stream):
        return COMPUTE
    if stream == HOST:
        return HOST
    return SERVERS if "server" in stream else COMMUNICATING


def trace_text(found: PredictedIteration) -> str:
    """Return the JSON of the last iteration on rank 0: a process for each group of streams."""
    operations = [one for one in found.timeline if one.end[0] > one.start[0]]
    begin = min((float(one.start[0]) for one in operations), default=0.0)
    streams = sorted(dict.fromkeys(one.stream for one in operations), key=lambda s: s != COMPUTE)
    processes = {
        name: number for number, name in enumerate(dict.fromkeys(map(stream_group, streams)))
    }
    threads = {stream: number for number, stream in enumerate(streams)}
    algorithms = {one.call: one.algorithm for one in found.calls}
    return trace_events.trace_text(
        [
            *_names(processes, threads),
            *(_event(one, begin, processes, threads, algorithms) for one in operations),
        ]
    )


def _names(processes: dict[str, int], threads: dict[str, int]) -> Iterator[TraceEvent]:
    for name, number in processes.items():
        yield from process_events(number, name)
    for stream, number in threads.items():
        yield thread_event(processes[stream_group(stream)], number, stream)


def _event(
    one: Operation,
    begin: float,
    processes: dict[str, int],
    threads: dict[str, int],
    algorithms: dict[Any, str],
) -> TraceEvent:
    args: dict[str, Any] = {"phase": one.phase}
    if one.call is not None:
        args |= {
            "bytes": one.call.nbytes,
            "ranks": one.call.group.size,
            "algorithm": algorithms.get(one.call, ""),
            "calls": one.count,
        }
    times = float(one.start[0]) - begin, float(one.end[0]) - begin
    process = processes[stream_group(one.stream)]
    return span_event(one.name, one.phase, process, threads[one.stream], times, args)
