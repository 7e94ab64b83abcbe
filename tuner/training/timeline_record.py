"""The timeline of a predicted iteration on rank 0 as JSON data: its streams and bars."""

from __future__ import annotations

from typing import Any

from tuner.training.iteration import PredictedIteration
from tuner.training.recorded import COMPUTE
from tuner.training.timeline import PHASES, Operation

MAX_BARS = 20_000
MAX_STREAMS = 8


def timeline_record(found: PredictedIteration) -> dict[str, Any]:
    """Return the busiest streams and the bars of the last iteration in the order of their starts.

    Each bar has the index of its stream and of its name, its phase, start and duration in seconds,
    the bytes of its call (0 without one), how many calls it stands for, and their algorithm. Of
    more than `MAX_BARS` the first ones are returned.
    """
    streams = busiest_streams(found)
    bars = sorted(
        (one for one in found.timeline if one.stream in streams and one.end[0] > one.start[0]),
        key=lambda one: float(one.start[0]),
    )
    begin = float(bars[0].start[0]) if bars else 0.0
    names = list(dict.fromkeys(one.name for one in bars))
    algorithms = {one.call: one.algorithm for one in found.calls}
    stream_at = {stream: number for number, stream in enumerate(streams)}
    name_at = {name: number for number, name in enumerate(names)}

    def bar(one: Operation) -> list[Any]:
        return [
            stream_at[one.stream],
            name_at[one.name],
            PHASES.index(one.phase),
            float(one.start[0]) - begin,
            float(one.end[0] - one.start[0]),
            one.call.nbytes if one.call else 0,
            one.count,
            algorithms.get(one.call, "") if one.call else "",
        ]

    return {
        "ranks": found.ranks,
        "streams": list(streams.values()),
        "phases": list(PHASES),
        "names": names,
        "bars": [bar(one) for one in bars[:MAX_BARS]],
        "omitted": max(0, len(bars) - MAX_BARS),
    }


def busiest_streams(found: PredictedIteration) -> dict[str, str]:
    """Return the streams that are drawn with their labels.

    Computation is first; the others follow in the order in which they begin. Of streams whose names
    differ in a number only, such as those of several servers, that is the one that is busy for the
    longest time.
    """
    busy: dict[str, float] = {}
    begin: dict[str, float] = {}
    for one in found.timeline:
        if one.end[0] > one.start[0]:
            begin.setdefault(one.stream, float(one.start[0]))
        busy[one.stream] = busy.get(one.stream, 0.0) + float(one.end[0] - one.start[0])
    kinds: dict[str, list[str]] = {}
    for stream in sorted(busy, key=lambda stream: (stream != COMPUTE, -busy[stream])):
        if busy[stream] > 0.0:
            kinds.setdefault(stream.rstrip("0123456789"), []).append(stream)
    shown = sorted(
        list(kinds.values())[:MAX_STREAMS], key=lambda own: (own[0] != COMPUTE, begin[own[0]])
    )
    return {
        own[0]: f"{own[0]}\n(busiest of {len(own)})" if len(own) > 1 else own[0] for own in shown
    }
