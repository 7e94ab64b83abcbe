"""What really happened: how long the calls took, so that the service sees when a table goes stale.

Each rank keeps its last calls in a ring of fixed size; nothing is sent before the end of the job.
A time is what the call took on this rank, so it holds waiting for ranks that came late: compare
medians, not single calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tuner.core.path_classes import BLOCK, omit_default_placement
from tuner.runtime.consensus import Consensus, attempt
from tuner.runtime.log import warn

if TYPE_CHECKING:
    from tuner.runtime.agreement import TableAgreement

MAX_CALLS = 16384  # calls
MAX_CALL_KINDS = 4096  # different ones; what comes after them is not recorded
MAX_SUMMARIES = 1000  # of one report: the shapes with the most calls
UNRECORDED = -1


class CallKind(NamedTuple):
    """A kind of call: the key of its rules, its size in bytes, and what was chosen for it."""

    collective: str
    nodes: int
    ppn: int
    memory: str
    operators: str
    algorithm: str
    nbytes: int
    placement: str = BLOCK


@dataclass(frozen=True)
class CallSummary:
    """The calls of one shape: how many, and seconds of the median and of the longest."""

    kind: CallKind
    calls: int
    median_s: float
    max_s: float

    def record(self) -> dict[str, object]:
        """As the service takes it."""
        return {
            **omit_default_placement(self.kind._asdict()),
            "calls": self.calls,
            "median_s": self.median_s,
            "max_s": self.max_s,
        }


class CallRing:
    """The last `capacity` calls of one rank; the oldest are overwritten."""

    def __init__(self, capacity: int = MAX_CALLS) -> None:
        self._kinds: dict[CallKind, int] = {}
        self._kind_numbers = np.full(capacity, UNRECORDED, np.int32)
        self._seconds = np.zeros(capacity)
        self._next, self._capacity = 0, capacity

    def kind_number(self, kind: CallKind) -> int:
        """The number under which calls of this shape are recorded; ask once, not at every call."""
        known = self._kinds.get(kind)
        if known is not None:
            return known
        if len(self._kinds) == MAX_CALL_KINDS:
            return UNRECORDED
        self._kinds[kind] = len(self._kinds)
        return self._kinds[kind]

    def record(self, kind_number: int, seconds: float) -> None:
        """One call. This is inside every collective, and takes a fraction of a microsecond."""
        at = self._next
        self._kind_numbers[at] = kind_number
        self._seconds[at] = seconds
        at += 1
        self._next = at if at < self._capacity else 0

    def clear(self) -> None:
        """Forget all calls. Shapes keep their numbers."""
        self._kind_numbers.fill(UNRECORDED)
        self._next = 0

    def summaries(self) -> list[CallSummary]:
        """Calls, median and maximum of every shape that is in the ring."""
        items = []
        for shape, number in self._kinds.items():
            seconds = self._seconds[self._kind_numbers == number]
            if len(seconds):
                median, longest = float(np.median(seconds)), float(seconds.max())
                items.append(CallSummary(shape, len(seconds), median, longest))
        return sorted(items, key=lambda item: -item.calls)[:MAX_SUMMARIES]


def merge_summaries(ranks: Iterable[list[CallSummary]]) -> list[CallSummary]:
    """One item per shape: a collective took as long as on the rank where it took longest."""
    merged: dict[CallKind, CallSummary] = {}
    for item in (item for items in ranks for item in items):
        known = merged.setdefault(item.kind, item)
        merged[item.kind] = CallSummary(
            item.kind,
            max(known.calls, item.calls),
            max(known.median_s, item.median_s),
            max(known.max_s, item.max_s),
        )
    return sorted(merged.values(), key=lambda item: -item.calls)[:MAX_SUMMARIES]


def post_feedback(consensus: Consensus, ring: CallRing, agreed: TableAgreement) -> None:
    """Send what all ranks recorded to the service that the table came from; collective.

    The ring, which communicators derived from one another share, is empty afterwards. Nothing
    happens when the table came from elsewhere. A service that does not take it in time costs one
    line in the log of rank 0, and the ring stays as it is.
    """
    if agreed.table is None or agreed.version is None:
        return
    comm, mine = consensus.comm, ring.summaries()
    consensus.check()
    ranks = comm.gather(mine)
    sent = ranks is not None and _send(merge_summaries(ranks), comm.size, agreed)
    consensus.check()
    if comm.bcast(sent):
        ring.clear()


def _send(items: list[CallSummary], ranks: int, agreement: TableAgreement) -> bool:
    """Whether the service took what rank 0 has to say."""
    if agreement.request is None or agreement.table is None or not items:
        return False
    record = {
        "version": agreement.version,
        "cluster": agreement.table.cluster.name,
        "library": agreement.table.library,
        "ranks": ranks,
        "items": [item.record() for item in items],
    }
    from tuner.runtime import service_client  # urllib, which nobody else has to wait for

    _, failure = attempt(service_client.post_record, agreement.request, "/v1/feedback", record)
    if failure:
        warn(f"tuner: feedback is lost: {failure}")
    return not failure
