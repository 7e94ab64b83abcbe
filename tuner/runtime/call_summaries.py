"""Summaries of the calls of a run by kind, as the service takes them; this module starts no MPI."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from tuner.core.path_classes import BLOCK, omit_default_placement
from tuner.core.table import TuningTable
from tuner.runtime.table_source import TableRequest

MAX_SUMMARIES = 1000  # per report: the kinds with the most calls
MAX_CALLS = 1_000_000  # of a kind, as far as a report says


class CallKind(NamedTuple):
    """A kind of call: the key of its rules, its size in bytes, and the algorithm used."""

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
    """The number of calls of one kind, with the median and maximum of their times in seconds."""

    kind: CallKind
    calls: int
    median_s: float
    max_s: float

    def record(self) -> dict[str, object]:
        return {
            **omit_default_placement(self.kind._asdict()),
            "calls": min(self.calls, MAX_CALLS),
            "median_s": self.median_s,
            "max_s": self.max_s,
        }


def merge_summaries(ranks: Iterable[list[CallSummary]]) -> list[CallSummary]:
    """Merge the summaries of all ranks, with the maximum over the ranks for each kind of call."""
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


def post_summaries(
    request: TableRequest,
    version: int,
    table: TuningTable,
    ranks: int,
    items: Iterable[CallSummary],
) -> None:
    """Send the summaries of a run under a table to the service that the table came from.

    Raises InputError when the service does not accept them in time.
    """
    from tuner.runtime import service_client  # urllib is slow to import

    record = {
        "version": version,
        "cluster": table.cluster.name,
        "library": table.library,
        "ranks": ranks,
        "items": [item.record() for item in items],
    }
    service_client.post_record(request, "/v1/feedback", record)
