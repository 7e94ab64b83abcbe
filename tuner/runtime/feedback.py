"""Recorded times of calls, by which the service sees when a table is out of date.

Each rank keeps its last calls in a ring of fixed size; nothing is sent before the end of the job.
A time is the duration of the call on this rank, so it includes waiting for late ranks: compare
medians, not single calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tuner.runtime.call_summaries import (
    MAX_SUMMARIES,
    CallKind,
    CallSummary,
    merge_summaries,
    post_summaries,
)
from tuner.runtime.consensus import Consensus, attempt
from tuner.runtime.log import warn

if TYPE_CHECKING:
    from tuner.runtime.agreement import TableAgreement

MAX_CALLS = 16384  # in the ring
MAX_CALL_KINDS = 4096  # calls of further kinds are not recorded
UNRECORDED = -1


class CallRing:
    """A ring buffer of the last `capacity` calls of one rank; the oldest are overwritten."""

    def __init__(self, capacity: int = MAX_CALLS) -> None:
        self._kinds: dict[CallKind, int] = {}
        self._kind_numbers = np.full(capacity, UNRECORDED, np.int32)
        self._seconds = np.zeros(capacity)
        self._next, self._capacity = 0, capacity

    def kind_number(self, kind: CallKind) -> int:
        """Return the number of a kind of call for `record`, UNRECORDED if there are too many.

        Callers keep the number instead of asking at every call.
        """
        known = self._kinds.get(kind)
        if known is not None:
            return known
        if len(self._kinds) == MAX_CALL_KINDS:
            return UNRECORDED
        self._kinds[kind] = len(self._kinds)
        return self._kinds[kind]

    def record(self, kind_number: int, seconds: float) -> None:
        """Record one call; this runs in every collective and takes a fraction of a microsecond."""
        at = self._next
        self._kind_numbers[at] = kind_number
        self._seconds[at] = seconds
        at += 1
        self._next = at if at < self._capacity else 0

    def clear(self) -> None:
        """Forget all calls; kinds of calls keep their numbers."""
        self._kind_numbers.fill(UNRECORDED)
        self._next = 0

    def summaries(self) -> list[CallSummary]:
        """Return the summary of each kind of call in the ring, most calls first."""
        items = []
        for shape, number in self._kinds.items():
            seconds = self._seconds[self._kind_numbers == number]
            if len(seconds):
                median, longest = float(np.median(seconds)), float(seconds.max())
                items.append(CallSummary(shape, len(seconds), median, longest))
        return sorted(items, key=lambda item: -item.calls)[:MAX_SUMMARIES]


def post_feedback(consensus: Consensus, ring: CallRing, agreed: TableAgreement) -> None:
    """Send the records of all ranks to the service that the table came from; collective.

    The ring, which communicators derived from one another share, is empty afterwards. Nothing
    happens when the table did not come from a service. When the service does not accept the records
    in time, rank 0 logs one line and the ring stays as it is.
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
    """Post the summaries from rank 0; return whether the service accepted them."""
    request, table, version = agreement.request, agreement.table, agreement.version
    if request is None or table is None or version is None or not items:
        return False
    _, failure = attempt(post_summaries, request, version, table, ranks, items)
    if failure:
        warn(f"tuner: feedback is lost: {failure}")
    return not failure
