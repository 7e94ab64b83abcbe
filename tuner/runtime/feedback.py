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

from tuner.core.path_classes import CONSECUTIVE, placed_record
from tuner.runtime.consensus import Consensus, attempt
from tuner.runtime.log import warn

if TYPE_CHECKING:
    from tuner.runtime.agreement import Agreed

CAPACITY = 16384  # calls
SHAPES = 4096  # different ones; what comes after them is not recorded
ITEMS = 1000  # of one report: the shapes with the most calls
UNRECORDED = -1


class Shape(NamedTuple):
    """A kind of call: the key of its rules, its size in bytes, and what was chosen for it."""

    collective: str
    nodes: int
    ppn: int
    memory: str
    operators: str
    algorithm: str
    nbytes: int
    placement: str = CONSECUTIVE


@dataclass(frozen=True)
class Item:
    """The calls of one shape: how many, and seconds of the median and of the longest."""

    shape: Shape
    calls: int
    median: float
    longest: float

    def record(self) -> dict[str, object]:
        """As the service takes it."""
        return {
            **placed_record(self.shape._asdict()),
            "calls": self.calls,
            "median_s": self.median,
            "max_s": self.longest,
        }


class Ring:
    """The last `capacity` calls of one rank; the oldest are overwritten."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._shapes: dict[Shape, int] = {}
        self._which = np.full(capacity, UNRECORDED, np.int32)
        self._seconds = np.zeros(capacity)
        self._next, self._capacity = 0, capacity

    def shape(self, shape: Shape) -> int:
        """The number under which calls of this shape are recorded; ask once, not at every call."""
        known = self._shapes.get(shape)
        if known is not None:
            return known
        if len(self._shapes) == SHAPES:
            return UNRECORDED
        self._shapes[shape] = len(self._shapes)
        return self._shapes[shape]

    def record(self, shape: int, seconds: float) -> None:
        """One call. This is inside every collective, and takes a fraction of a microsecond."""
        at = self._next
        self._which[at] = shape
        self._seconds[at] = seconds
        at += 1
        self._next = at if at < self._capacity else 0

    def clear(self) -> None:
        """Forget all calls. Shapes keep their numbers."""
        self._which.fill(UNRECORDED)
        self._next = 0

    def summary(self) -> list[Item]:
        """Calls, median and maximum of every shape that is in the ring."""
        items = []
        for shape, number in self._shapes.items():
            seconds = self._seconds[self._which == number]
            if len(seconds):
                median, longest = float(np.median(seconds)), float(seconds.max())
                items.append(Item(shape, len(seconds), median, longest))
        return sorted(items, key=lambda item: -item.calls)[:ITEMS]


def merge(ranks: Iterable[list[Item]]) -> list[Item]:
    """One item per shape: a collective took as long as on the rank where it took longest."""
    merged: dict[Shape, Item] = {}
    for item in (item for items in ranks for item in items):
        known = merged.setdefault(item.shape, item)
        merged[item.shape] = Item(
            item.shape,
            max(known.calls, item.calls),
            max(known.median, item.median),
            max(known.longest, item.longest),
        )
    return sorted(merged.values(), key=lambda item: -item.calls)[:ITEMS]


def post(consensus: Consensus, ring: Ring, agreed: Agreed) -> None:
    """Send what all ranks recorded to the service that the table came from; collective.

    The ring, which communicators derived from one another share, is empty afterwards. Nothing
    happens when the table came from elsewhere. A service that does not take it in time costs one
    line in the log of rank 0, and the ring stays as it is.
    """
    if agreed.table is None or agreed.version is None:
        return
    comm, mine = consensus.comm, ring.summary()
    consensus.check()
    ranks = comm.gather(mine)
    sent = ranks is not None and _sent(merge(ranks), comm.size, agreed)
    consensus.check()
    if comm.bcast(sent):
        ring.clear()


def _sent(items: list[Item], ranks: int, agreed: Agreed) -> bool:
    """Whether the service took what rank 0 has to say."""
    if agreed.request is None or agreed.table is None or not items:
        return False
    record = {
        "version": agreed.version,
        "cluster": agreed.table.cluster.name,
        "library": agreed.table.library,
        "ranks": ranks,
        "items": [item.record() for item in items],
    }
    from tuner.runtime import service_client  # urllib, which nobody else has to wait for

    _, failure = attempt(service_client.post, agreed.request, "/v1/feedback", record)
    if failure:
        warn(f"tuner: feedback is lost: {failure}")
    return not failure
