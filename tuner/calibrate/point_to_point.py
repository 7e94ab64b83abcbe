"""What messages cost: piecewise alpha and beta, eager limit and overhead of a path."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.calibrate.bootstrap import INSTANT, estimate
from tuner.calibrate.latency_curve import ALIKE, Ladder, busy, drawn_at, eager, parameters
from tuner.calibrate.piecewise import breaks
from tuner.calibrate.series_index import Launches, Series, params
from tuner.core.calibration import PathCost, Segment

AHEAD = 0.5  # of the time of a message: who asked late and has it sooner need not wait for it
WAITED = 1e-3  # s; half of what a probe's receiver stays away: a sender that took less did not wait


@dataclass(frozen=True)
class Fitted:
    """A path with its price.

    latency     seconds of the links on the way that the price leaves to the topology
    gaps        sentences about what the series do not determine
    sources     where eager limit and overhead come from
    moved       not fitted to times of its own: the price of another path and what lies between them
    """

    ladder: Ladder
    cost: PathCost
    latency: float = 0.0
    gaps: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)
    moved: bool = False


def fitted(series: Series, ladder: Ladder, subject: str, latency: float = 0.0) -> Fitted:
    """Price a path.

    subject     path class whose bursts and eager limit apply
    latency     seconds to leave out because the simulator adds those of the links
    """
    limit, known = _eager_limit(series, subject, ladder)
    beta = parameters(ladder)[1][:, -1]
    overhead, source = _overhead(series, subject, ladder, beta)
    overhead = np.clip(ladder.times.min(axis=1) - latency, 0.0, overhead)
    floor = overhead + latency
    alpha, slopes = parameters(ladder, floor)
    flows = busy(ladder, slopes)
    begins = breaks(ladder.lines, ladder.sizes, [limit])
    bounds = [0.0, *begins, math.inf]
    segments = tuple(
        Segment(
            bounds[k],
            bounds[k + 1],
            estimate(np.maximum(alpha[:, k] - floor, 0.0)),
            estimate(flows[:, k]),
            lag=estimate(slopes[:, k] - flows[:, k]),
        )
        for k in range(len(ladder.lines))
    )
    ahead = _ahead_limit(series, subject, ladder)
    cost = PathCost(segments, limit, estimate(overhead), ahead_limit=ahead)
    gaps = tuple(_gaps(series, ladder, subject, cost, latency))
    return Fitted(ladder, cost, latency, gaps, {"eager_limit": known, "overhead": source})


def _gaps(
    series: Series, ladder: Ladder, subject: str, cost: PathCost, latency: float
) -> Iterator[str]:
    for s in cost.segments:
        if s.beta.value == 0.0:
            yield f"{ladder.name}: beta of [{s.lo:.0f}, {s.hi:.0f}) B, below resolution"
    if not _bursts(series, subject, ladder.memory):
        yield f"{ladder.name}: overhead, no bursts of two lengths were measured"
    elif cost.overhead.value == 0.0:
        yield f"{ladder.name}: overhead, no message of a burst took longer than its bytes"
    if not eager(series, subject, ladder.memory):
        yield f"{ladder.name}: eager limit, it was not looked for"
    if latency > ladder.times[0].min():
        yield (
            f"{ladder.name}: alpha, the links of the topology have more latency than the whole"
            f" message took ({latency:.3g} s, {ladder.times[0].min():.3g} s): correct the topology"
        )


def _eager_limit(series: Series, subject: str, ladder: Ladder) -> tuple[float, str]:
    """Bytes, and how they are known."""
    found = eager(series, subject, ladder.memory)
    if not found:
        return 0.0, "not measured: every sender waits for its receiver"
    size = found[0][0].nbytes
    if float(np.median(found[0][0].samples)) < WAITED:
        return float(size), f"no sender waited for its receiver up to {size} B, the largest tried"
    return float(size), f"measured: from {size} B on a sender waits for its receiver"


def _ahead_limit(series: Series, subject: str, ladder: Ladder) -> float:
    """Bytes below which a message is on its way before it is asked for, infinite if all are.

    A receiver that asks late then has it in less than half the time that it takes.
    """
    ahead, waits = 0.0, math.inf
    for one in series.of("ahead", subject, ladder.memory):
        nbytes = float(one[0].nbytes)
        message = float(drawn_at(ladder, np.array([nbytes]))[0, 0])
        if float(series.median(one)[0]) < AHEAD * message:
            ahead = max(ahead, nbytes)
        else:
            waits = min(waits, nbytes)
    if ahead == 0.0 or ahead > waits:
        return 0.0
    return math.sqrt(ahead * waits)


def _bursts(series: Series, subject: str, memory: str) -> list[Launches]:
    """Of the smallest messages between one pair, from few messages to many; empty with one."""
    found = series.of("burst", subject, memory)
    found = found or series.of("burst", ALIKE.get(subject, subject), memory)
    if not found:
        return []
    p = min(one[0].p for one in found)
    same = [one for one in found if one[0].p == p]
    smallest = [one for one in same if one[0].nbytes == same[0][0].nbytes]
    ordered = sorted(smallest, key=lambda one: params(one, "messages"))
    return ordered if len(ordered) > 1 else []


def _overhead(
    series: Series, subject: str, ladder: Ladder, beta: FloatArray
) -> tuple[FloatArray, str]:
    """Drawn seconds a port is busy per further message of a burst, beyond the flow of its bytes.

    beta    of long messages: that of short ones contains what is looked for here

    Without bursts, how long the sender is busy with handing over a message, if that is known.
    """
    bursts = _bursts(series, subject, ladder.memory)
    if bursts:
        few, many = bursts[0], bursts[-1]
        further = params(many, "messages") - params(few, "messages")
        each = (series.median(many) - series.median(few)) / further
        return np.maximum(each - beta * few[0].nbytes, 0.0), "bursts"
    handed = series.of("overhead", subject, ladder.memory)
    if handed:
        return np.maximum(series.median(handed[0]), INSTANT), "the sender alone"
    return np.zeros_like(beta), "not measured"
