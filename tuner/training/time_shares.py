"""Where the time of an iteration goes: its computation by phase, and what a rank waits for."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.training.iteration import PredictedIteration
from tuner.training.recorded import COMPUTE
from tuner.training.timeline import CALL, COPY, PHASES, WAIT, Operation

OTHER_STAGES = re.compile(f"{COMPUTE}$|stage [1-9]")  # streams that rank 0 does not have


def time_shares(found: PredictedIteration) -> dict[str, float]:
    """Return the seconds of an iteration by phase; together they are its time.

    Time in which rank 0 does not compute belongs to the calls that run then, else to the copies,
    else to WAIT: what a framework waits for, or slower ranks.
    """
    own = [one for one in found.timeline if one.stream == COMPUTE]
    if not own:
        return dict.fromkeys(PHASES, 0.0) | {WAIT: found.seconds}
    end = max(float(one.end[0]) for one in own)
    start = min(float(own[0].start[0]), end - found.seconds)
    shares = {
        phase: sum(float(one.end[0] - one.start[0]) for one in own if one.phase == phase)
        for phase in PHASES
    }
    idle = _gaps(_intervals(own), start, end)
    others = [one for one in found.timeline if not OTHER_STAGES.match(one.stream)]
    for phase in (CALL, COPY):
        busy = _repeated(_intervals(one for one in others if one.phase == phase), found.seconds)
        left = [gap for whole in idle for gap in _gaps(busy, *whole)]
        shares[phase] += _length(idle) - _length(left)
        idle = left
    shares[WAIT] += _length(idle)
    factor = found.seconds / sum(shares.values())
    return {phase: seconds * factor for phase, seconds in shares.items()}


def _intervals(operations: Iterable[Operation]) -> FloatArray:
    """Return start and end of some operations on rank 0, shape (operations, 2)."""
    ends = [(float(one.start[0]), float(one.end[0])) for one in operations]
    return np.array(sorted(ends)).reshape(-1, 2)


def _repeated(intervals: FloatArray, seconds: float) -> FloatArray:
    """Return the intervals with those of the iteration before, `seconds` earlier."""
    both = np.concatenate([intervals - seconds, intervals])
    return both[np.argsort(both[:, 0], kind="stable")]


def _gaps(intervals: FloatArray, start: float, end: float) -> list[tuple[float, float]]:
    """Return the parts between two moments that lie in none of some sorted intervals."""
    gaps, until = [], start
    for begin, stop in intervals:
        if begin >= end:
            break
        if begin > until:
            gaps.append((until, float(begin)))
        until = max(until, float(stop))
    return [*gaps, (until, end)] if until < end else gaps


def _length(gaps: Iterable[tuple[float, float]]) -> float:
    return sum(end - start for start, end in gaps)
