"""All rows of a schedule as flat columns, with the memory that their buffers are in."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from tuner.base.arrays import BoolArray, IntArray
from tuner.core.schedule import Schedule
from tuner.sim.traffic_pattern import UNIDIRECTIONAL, classify_transfers
from tuner.topology import CUDA


@dataclass(frozen=True)
class FlatSchedule:
    """Rows of a schedule in (round, row) order; columns of shape (rows,).

    cuda        whether the buffers are in device memory
    staging     whether it is a local row that copies between host and device
    pattern     traffic pattern of the row (`tuner.sim.traffic_pattern`); UNIDIRECTIONAL in the
                first round
    """

    src: IntArray
    dst: IntArray
    round: IntArray
    src_chunk: IntArray
    dst_chunk: IntArray
    count: IntArray
    reduce: IntArray
    cuda: BoolArray
    staging: BoolArray
    pattern: IntArray

    def select(self, mask: BoolArray) -> FlatSchedule:
        if mask.all():
            return self
        return FlatSchedule(*(getattr(self, column.name)[mask] for column in fields(self)))


def flatten_schedule(schedule: Schedule, node_of: IntArray, memory: str) -> FlatSchedule:
    """Return all rows of a schedule whose ranks are on `node_of`, with buffers in `memory`."""
    rounds = list(schedule.rounds())
    columns = [
        np.concatenate([c, *(r.columns[i] for r in rounds)])
        for i, c in enumerate(np.empty((6, 0), dtype=np.int32))
    ]
    src, dst, first, into, chunks, reduce = (column.astype(np.int64) for column in columns)
    number = np.repeat(np.arange(len(rounds)), [len(r) for r in rounds])
    cuda = np.full(len(src), memory == CUDA)
    staging = np.zeros(len(src), dtype=bool)
    if schedule.staged:  # scratch chunks are in host memory
        n = schedule.n_chunks
        cuda &= (first < n) | (into < n)
        staging = cuda & (src == dst) & ((first < n) != (into < n))
    manner = [
        np.full(len(rounds[0]) if rounds else 0, UNIDIRECTIONAL),
        *(classify_transfers(r.src, r.dst, node_of) for r in rounds[1:]),
    ]
    return FlatSchedule(
        src, dst, number, first, into, chunks, reduce, cuda, staging, np.concatenate(manner)
    )
