"""Calls whose blocks are of different lengths, as schedules for simulation.

A schedule of copies says which blocks travel in each message, whatever their lengths. With the
bytes of every block its messages have theirs, and that is all that the time of a call needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tuner.base.arrays import Int32Array, IntArray
from tuner.base.errors import LimitExceededError
from tuner.core.schedule import MAX_MESSAGE_BYTES, Round, Schedule

MAX_PLACES = 1 << 27  # of blocks on all ranks; half a gigabyte of memory
NOTHING = -1


def with_block_sizes(schedule: Schedule, sizes: IntArray, mean: int) -> Schedule:
    """Return a schedule of messages as long as the blocks that those of a schedule carry.

    sizes   elements of the block for each rank (column) from each rank (row), shape (p, p); those
            of each rank's one block, shape (1, p), where all ranks get it
    mean    elements of the call for which the result is simulated, at least 1

    Chunks are single elements, and only their number in each message has a meaning: the result can
    be simulated, but not verified or run. Messages of nothing are not sent, as in Open MPI and
    MPICH (coll_base_alltoallv.c, alltoallv_intra_scattered.c). Raises LimitExceededError for too
    many ranks, and its rounds raise it for too long a message.
    """
    p = schedule.p
    places = p * schedule.slots
    if places > MAX_PLACES:
        raise LimitExceededError(
            f"{schedule}: {places} places of blocks would be followed, and at most {MAX_PLACES}"
            " can be: take fewer ranks"
        )
    n_chunks = -(-mean // p) * p

    def make() -> Iterator[Round]:
        held = _blocks_before(schedule)
        for r in schedule.rounds():
            amount = _moved(r, held, sizes)
            if amount.max() > MAX_MESSAGE_BYTES:
                raise LimitExceededError(
                    f"{schedule}: a message of {amount.max()} elements, and at most"
                    f" {MAX_MESSAGE_BYTES} can be sent: take a smaller size"
                )
            yield Round.of(r.src, r.dst, 0, 0, amount).select(amount > 0)

    return replace(schedule, n_chunks=n_chunks, make_rounds=make, scratch_buffers=1)


def _blocks_before(schedule: Schedule) -> Int32Array:
    """Return the number of the block at each place before a call, shape (p, slots)."""
    p = schedule.p
    held = np.full((p, schedule.slots), NOTHING, np.int32)
    if schedule.collective.gives_in_scratch:
        held[:, p : 2 * p] = np.arange(p * p).reshape(p, p)
    else:
        held[np.arange(p), np.arange(p)] = np.arange(p)
    return held


def _moved(r: Round, held: Int32Array, sizes: IntArray) -> NDArray[np.int64]:
    """Carry out a round of copies in `held`; return the elements that each of its rows moves."""
    pieces, row = r.pieces()
    piece = np.repeat(np.arange(len(pieces)), pieces.count)
    within = np.arange(len(piece)) - np.repeat(np.cumsum(pieces.count) - pieces.count, pieces.count)
    block = held[pieces.src[piece], pieces.src_chunk[piece] + within]
    held[pieces.dst[piece], pieces.dst_chunk[piece] + within] = block
    amount = np.where(block == NOTHING, 0, sizes.reshape(-1)[block])
    moved = np.zeros(len(r), np.int64)
    np.add.at(moved, row[piece], amount)
    return moved
