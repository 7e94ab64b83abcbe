"""PAT, parallel aggregated trees: NCCL's allgather and reduce-scatter with logarithmic latency.

Every rank's share spreads down a binomial tree of its own, with the longest hops first; all trees
run at once, each rotated by one rank. A rank sends at most `aggregate` shares to one partner in one
round: if there are more, the near part of the trees is processed group by group, so that few shares
are in flight at a time and buffers stay small.

Source: S. Jeaugey, arXiv 2506.20252.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np

from tuner.algorithms.registry import algorithm
from tuner.algorithms.round_columns import RotatedColumn, column
from tuner.base.arrays import Int32Array, IntArray
from tuner.core.collective import Collective
from tuner.core.schedule import ARRIVING_OP_DST, NO_REDUCTION, Round, Schedule


def aggregated_tree_rounds(p: int, aggregate: int) -> list[tuple[int, IntArray]]:
    """Return (distance, offsets) per round.

    In a round every rank sends the shares of the ranks `offsets` below it to the rank `distance`
    above it.
    """
    rounds: list[tuple[int, IntArray]] = []

    def go_on(offsets: IntArray, distance: int) -> None:
        if distance == 0:
            return
        sent = offsets[offsets + distance < p]
        if len(sent):
            rounds.append((distance, sent))
        held = np.sort(np.concatenate([offsets, sent + distance]))
        for start in range(0, len(held), aggregate):
            go_on(held[start : start + aggregate], distance // 2)

    go_on(np.zeros(1, dtype=np.int64), 1 << max(0, (p - 1).bit_length() - 1))
    return rounds


def _aggregated_rounds(
    p: int, hops: Iterable[tuple[int, IntArray]], reduce: int
) -> Iterator[Round]:
    """Yield one round per hop, in which every rank sends all its shares of that hop.

    With a reduction, the receivers of the hop send instead. Hops of the same distance and number of
    shares reuse the columns of ranks; hops with the same differences between offsets reuse the
    column of shares, rotated.
    """
    rank = np.arange(p)[:, None]
    ends: dict[tuple[int, int], tuple[Int32Array, ...]] = {}
    shares: dict[bytes, RotatedColumn] = {}
    for distance, offsets in hops:
        way, apart = (distance, len(offsets)), offsets - offsets[0]
        if way not in ends:
            near, far = (np.repeat((rank + d) % p, len(offsets)) for d in (0, distance))
            both = (near, far) if reduce == NO_REDUCTION else (far, near)
            alike = (column(value, p * len(offsets)) for value in (1, reduce))
            ends[way] = (*map(column, both), *alike)
        if apart.tobytes() not in shares:
            shares[apart.tobytes()] = RotatedColumn(((rank - apart) % p).reshape(-1))
        share = shares[apart.tobytes()].at(-int(offsets[0]) * len(offsets))
        src, dst, one, kind = ends[way]
        yield Round(src, dst, share, share, one, kind)


def _allgather_rounds(p: int, aggregate: int) -> Iterator[Round]:
    return _aggregated_rounds(p, aggregated_tree_rounds(p, aggregate), NO_REDUCTION)


def _reduce_scatter_rounds(p: int, aggregate: int) -> Iterator[Round]:
    return _aggregated_rounds(p, reversed(aggregated_tree_rounds(p, aggregate)), ARRIVING_OP_DST)


@algorithm(Collective.ALLGATHER, "pat", requires="gpu")
def pat_allgather(p: int, aggregate: int = 8) -> Schedule:
    """Spread all shares down binomial trees at once, at most `aggregate` per round (NCCL's PAT).

    Cost: ceil(log2 p) alpha + (p-1)/p m beta with an aggregate of p/2, m the whole buffer; at most
    (log2 a + p/a) alpha + (p-1)/p m beta with an aggregate of a
    Source: S. Jeaugey, arXiv 2506.20252; NCCL, src/device/all_gather.h (PAT)
    """
    return Schedule(Collective.ALLGATHER, p, p, partial(_allgather_rounds, p, aggregate))


@algorithm(Collective.REDUCE_SCATTER, "pat", requires="gpu")
def pat_reduce_scatter(p: int, aggregate: int = 8) -> Schedule:
    """Run the allgather's trees in reverse, with reduction (NCCL's PAT).

    Cost: ceil(log2 p) alpha + (p-1)/p m (beta + gamma) with an aggregate of p/2, m the whole
    vector; at most (log2 a + p/a) alpha + (p-1)/p m (beta + gamma) with an aggregate of a
    Source: S. Jeaugey, arXiv 2506.20252; NCCL, src/device/reduce_scatter.h (PAT)
    """
    return Schedule(Collective.REDUCE_SCATTER, p, p, partial(_reduce_scatter_rounds, p, aggregate))
