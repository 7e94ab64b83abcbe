"""The timeline of training: operations on streams, on all ranks at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.training.groups import Call

FORWARD, BACKWARD, UPDATE, COMPUTATION, COPY, WAIT, CALL = PHASES = (
    "forward",
    "backward",
    "update",
    "computation",  # of a recorded iteration, whose passes are not distinguished
    "copy",
    "wait",
    "communication",
)


@dataclass(frozen=True)
class Operation:
    """An operation that has its place in a timeline.

    stream      what executes it; operations of a stream run in the order of their numbers
    phase       one of `PHASES`
    start       seconds, shape (ranks,)
    end         seconds, shape (ranks,)
    iteration   number of the iteration that it belongs to
    call        the call of a collective that it is, if any
    count       how many of these calls, one after another, it stands for
    number      its number in the timeline
    after       numbers of the operations that it waits for, besides the one before it on its stream
    """

    name: str
    stream: str
    phase: str
    start: FloatArray
    end: FloatArray
    iteration: int
    call: Call | None = None
    count: int = 1
    number: int = 0
    after: tuple[int, ...] = ()


class Timeline:
    """Operations on streams, each placed as soon as it is added.

    An operation begins when the one before it on its stream has ended, when those that it waits for
    have ended, and not before a given moment. Ranks run side by side: durations are seconds of all
    ranks, or arrays of shape (ranks,). A call of a collective begins on all ranks when the last one
    is there and ends on all of them at once.

    ranks       number of ranks whose times differ; 1 if all ranks behave alike
    """

    def __init__(self, ranks: int = 1) -> None:
        self.ranks = ranks
        self.iteration = 0
        self.operations: list[Operation] = []
        self._free: dict[str, FloatArray] = {}
        self._last_free: dict[str, float] = {}  # on all ranks
        self._last_end: list[float] = []  # of each operation on all ranks
        self._called: dict[str, Call] = {}  # last call of streams that were not idle since
        self._never = np.zeros(ranks)

    def add(
        self,
        name: str,
        stream: str,
        phase: str,
        seconds: float | FloatArray,
        after: Iterable[int] = (),
        not_before: float = 0.0,
        call: Call | None = None,
        count: int = 1,
    ) -> int:
        """Place an operation, or `count` equal calls one after another, and return its number."""
        waited, number = tuple(after), len(self.operations)
        free = self.end_of(stream)
        last = max(free, not_before, self.ready(waited))
        if last > free:
            self._called.pop(stream, None)
        if call is not None:
            self._called[stream] = call
        alike = phase == CALL or self.ranks == 1
        start = np.array([last] * self.ranks) if alike else self._start(stream, waited, not_before)
        end = start + seconds
        self._free[stream] = end
        self._last_free[stream] = float(end.max() if self.ranks > 1 else end[0])
        self._last_end.append(self._last_free[stream])
        self.operations.append(
            Operation(name, stream, phase, start, end, self.iteration, call, count, number, waited)
        )
        return number

    def call_before(
        self, stream: str, after: Sequence[int], not_before: float = 0.0
    ) -> Call | None:
        """Return the call that an operation would follow on its stream without a pause, if any."""
        if max(self.ready(after), not_before) > self.end_of(stream):
            return None
        return self._called.get(stream)

    def ready(self, after: Sequence[int]) -> float:
        """Return when some operations have ended on all ranks, in seconds; 0 without any."""
        return max((self._last_end[number] for number in after), default=0.0)

    def end_of(self, stream: str) -> float:
        """Return when a stream is free on all ranks, in seconds."""
        return self._last_free.get(stream, 0.0)

    def _start(self, stream: str, after: Iterable[int], not_before: float) -> FloatArray:
        """Return when each rank can begin an operation, shape (ranks,)."""
        start = np.maximum(self._free.get(stream, self._never), not_before)
        for number in after:
            start = np.maximum(start, self.operations[number].end)
        return start


def busy_seconds(operations: Iterable[Operation]) -> float:
    """Return how long at least one of some operations runs, in seconds, on rank 0."""
    total, until = 0.0, -np.inf
    for start, end in sorted((float(one.start[0]), float(one.end[0])) for one in operations):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total
