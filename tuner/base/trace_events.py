"""Traces of Chrome's format, which Perfetto opens: spans on threads of processes.

Format: Trace Event Format (Google, 2016): complete events with `ts` and `dur` in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

MICROSECONDS = 1e6  # per second
DIGITS = 6  # of microseconds: to the picosecond

TraceEvent = dict[str, Any]


def process_events(process: int, name: str) -> list[TraceEvent]:
    """Return what names a process and puts it in the order of the numbers."""
    head = {"ph": "M", "pid": process, "tid": 0}
    return [
        {**head, "name": "process_name", "args": {"name": name}},
        {**head, "name": "process_sort_index", "args": {"sort_index": process}},
    ]


def thread_event(process: int, thread: int, name: str) -> TraceEvent:
    """Return what names a thread."""
    args = {"name": name}
    return {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": args}


def span_event(
    name: str,
    category: str,
    process: int,
    thread: int,
    times: tuple[float, float],
    args: dict[str, Any],
) -> TraceEvent:
    """Return a span.

    times   of its begin and end, in seconds
    """
    begin, end = times
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": process,
        "tid": thread,
        "ts": round(begin * MICROSECONDS, DIGITS),
        "dur": round((end - begin) * MICROSECONDS, DIGITS),
        "args": args,
    }


def trace_text(events: Iterable[TraceEvent]) -> str:
    """Return the JSON of a trace."""
    return json.dumps({"traceEvents": list(events), "displayTimeUnit": "ms"})
