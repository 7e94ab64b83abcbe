"""Rounds of a ring: every rank sends to its successor only, so all rounds have the same pairs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tuner.algorithms.round_columns import RotatedColumn, column
from tuner.base.arrays import Int32Array
from tuner.core.schedule import ARRIVING_OP_DST, NO_REDUCTION, Round


class Ring(NamedTuple):
    """The columns that all rounds of a ring share; row r is rank r."""

    rank: Int32Array
    successor: Int32Array
    no_reduction: Int32Array
    reduction: Int32Array


@lru_cache(maxsize=8)
def ring(p: int) -> Ring:
    """Return the ring of p ranks."""
    rank = np.arange(p)
    return Ring(
        column(rank), column(np.roll(rank, -1)), column(NO_REDUCTION, p), column(ARRIVING_OP_DST, p)
    )


def allgather_rounds(p: int, chunks_per_rank: int, first_chunk: int = 0) -> Iterator[Round]:
    """Yield p - 1 rounds in which each rank passes on the chunks it got last, its own first.

    chunks_per_rank     number of consecutive chunks that each rank owns
    first_chunk         number of the first chunk of rank 0
    """
    src, dst, plain, _ = ring(p)
    chunk = RotatedColumn(first_chunk + np.arange(p) * chunks_per_rank)
    count = column(chunks_per_rank, p)
    for t in range(p - 1):
        first = chunk.at(-t)
        yield Round(src, dst, first, first, count, plain)


def reduce_scatter_rounds(p: int, chunks_per_rank: int, first_chunk: int = 0) -> Iterator[Round]:
    """Yield (p - 1) chunks_per_rank rounds that pass every chunk once round the ring.

    The first chunks of all ranks go round, then their second ones, and so on. A chunk starts at its
    owner's successor and is reduced at each rank until it reaches its owner. Parameters are
    as in `allgather_rounds`.
    """
    src, dst, _, fold = ring(p)
    count = column(1, p)
    for j in range(chunks_per_rank):
        chunk = RotatedColumn(first_chunk + np.arange(p) * chunks_per_rank + j)
        for t in range(p - 1):
            first = chunk.at(-1 - t)
            yield Round(src, dst, first, first, count, fold)
