"""All rows of a schedule below one another, with where their buffers lie."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from tuner.base.arrays import BoolArray, IntArray
from tuner.core.schedule import Schedule
from tuner.sim.traffic_pattern import ALONE, manners
from tuner.topology import CUDA


@dataclass(frozen=True)
class Rows:
    """Rows of a schedule in (round, row) order; columns of shape (rows,).

    cuda        the buffers are in device memory
    staging     a local row that moves between host and device
    manner      traffic pattern of the row (`tuner.sim.traffic_pattern`); ALONE in the first round
    """

    src: IntArray
    dst: IntArray
    round: IntArray
    first: IntArray
    into: IntArray
    count: IntArray
    reduce: IntArray
    cuda: BoolArray
    staging: BoolArray
    manner: IntArray

    def only(self, there: BoolArray) -> Rows:
        """Some of the rows."""
        if there.all():
            return self
        return Rows(*(getattr(self, column.name)[there] for column in fields(self)))


def rows_of(schedule: Schedule, node: IntArray, memory: str) -> Rows:
    """All rows of a schedule whose ranks are on these nodes, buffers in one kind of memory."""
    rounds = list(schedule.rounds())
    columns = [
        np.concatenate([c, *(r.columns[i] for r in rounds)])
        for i, c in enumerate(np.empty((6, 0), dtype=np.int32))
    ]
    src, dst, first, into, chunks, reduce = (column.astype(np.int64) for column in columns)
    number = np.repeat(np.arange(len(rounds)), [len(r) for r in rounds])
    cuda = np.full(len(src), memory == CUDA)
    staging = np.zeros(len(src), dtype=bool)
    if schedule.staged:  # scratch is in host memory
        n = schedule.n_chunks
        cuda &= (first < n) | (into < n)
        staging = cuda & (src == dst) & ((first < n) != (into < n))
    manner = [
        np.full(len(rounds[0]) if rounds else 0, ALONE),
        *(manners(r.src, r.dst, node) for r in rounds[1:]),
    ]
    return Rows(
        src, dst, number, first, into, chunks, reduce, cuda, staging, np.concatenate(manner)
    )
