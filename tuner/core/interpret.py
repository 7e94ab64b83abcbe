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

    buffers     what each rank gives, each of shape (count, ...): an element may have inner
                dimensions
    op          op(left, right) of two arrays of elements; need not be commutative

    Raises ScheduleError when a chunk would move to a slot of another size.
    """
    count = len(buffers[0])
    offsets = schedule.offsets(count)
    place = int(schedule.collective.gives_in_scratch)
    memory = []
    for buffer in buffers:
        parts = [np.zeros_like(buffer)] * (1 + schedule.scratch_buffers)
        memory.append(np.concatenate([*parts[:place], buffer, *parts[place + 1 :]]))

    def begin(chunk: int) -> int:
        return int(chunk // schedule.n_chunks * count + offsets[chunk % schedule.n_chunks])

    def window(first: int, chunks: int) -> slice:
        last = first + chunks - 1
        size = offsets[last % schedule.n_chunks + 1] - offsets[last % schedule.n_chunks]
        return slice(begin(first), begin(last) + size)

    for r in schedule.rounds():
        r = r.consecutive()
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
