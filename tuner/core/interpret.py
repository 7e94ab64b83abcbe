"""The reference semantics of a schedule: all ranks in one program, on numpy arrays.

It is written for clarity, not for speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tuner.base.arrays import AnyArray
from tuner.base.errors import ScheduleError
from tuner.core.schedule import ARRIVING_OP_DST, NO_REDUCTION, Schedule

Operator = Callable[[AnyArray, AnyArray], AnyArray]


def interpret(
    schedule: Schedule, buffers: Sequence[AnyArray], op: Operator = np.add
) -> list[AnyArray]:
    """Run a schedule and return every rank's buffer after the call.

    buffers     one per rank, each of shape (count, ...): an element may have inner dimensions
    op          op(left, right) of two arrays of elements; need not be commutative

    Raises ScheduleError when a chunk would move to a slot of another size.
    """
    count = len(buffers[0])
    offsets = schedule.offsets(count)
    memory = [np.concatenate([buffer, np.zeros_like(buffer)]) for buffer in buffers]

    def window(first: int, chunks: int) -> slice:
        shift = count if first >= schedule.n_chunks else 0
        first %= schedule.n_chunks
        return slice(offsets[first] + shift, offsets[first + chunks] + shift)

    for r in schedule.rounds():
        rows = list(zip(*(column.tolist() for column in r.columns), strict=True))
        sent = [memory[src][window(first, n)].copy() for src, _, first, _, n, _ in rows]
        for arriving, (_, dst, _, into, n, reduce) in zip(sent, rows, strict=True):
            there = window(into, n)
            if len(arriving) != there.stop - there.start:
                raise ScheduleError(f"{schedule}: chunks of unequal size cannot change places")
            if reduce == NO_REDUCTION:
                memory[dst][there] = arriving
            elif reduce == ARRIVING_OP_DST:
                memory[dst][there] = op(arriving, memory[dst][there])
            else:
                memory[dst][there] = op(memory[dst][there], arriving)
    return [buffer[:count] for buffer in memory]
