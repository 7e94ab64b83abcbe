"""Double binary trees: each of two trees carries one half of the message.

Inner nodes of one tree are leaves of the other, so that all ports are busy in both directions.
"""

from __future__ import annotations

import numpy as np

from tuner.algorithms import trees
from tuner.algorithms.power_of_two import rank_ordered_reduction
from tuner.algorithms.registry import algorithm, count_segments
from tuner.base.arrays import IntArray
from tuner.core.collective import Collective
from tuner.core.schedule import Schedule, concat

BCAST, REDUCE, ALLREDUCE = Collective.BCAST, Collective.REDUCE, Collective.ALLREDUCE


def _down(p: int, half: int) -> trees.Hops:
    """Return hops down two in-order trees of all ranks but 0, which is above both.

    The second tree is shifted by one place; the second half of the chunks uses it. A rank sends at
    most one message and receives at most one per round: a hop follows the one above it in the next
    round of its own parity.

    half    number of chunks of one half
    """
    pair = [trees.in_order_tree(p), trees.in_order_tree(p, shift=1)]
    hops = trees.concat_hops(
        *(trees.broadcast_hops(tree).with_chunk_offset(i * half) for i, tree in enumerate(pair))
    )
    turn, delay = _alternate_rounds(hops), np.empty_like(hops.delay)
    ready = np.zeros((2, p), dtype=np.int64)  # first round in which a rank can pass data on
    half_of = (hops.first_chunk > 0).astype(np.int64)
    for level in range(hops.n_rounds):
        now = np.flatnonzero(hops.delay == level)
        earliest = ready[half_of[now], hops.src[now]]
        delay[now] = earliest + (earliest + turn[now]) % 2
        ready[half_of[now], hops.dst[now]] = delay[now] + 1
    return hops._replace(delay=delay)


def _up(p: int, half: int) -> trees.Hops:
    """Return the hops of `_down` reversed, with reduction."""
    down = _down(p, half)
    return down.time_reversed(rank_ordered_reduction(down.dst, down.src))


def _alternate_rounds(hops: trees.Hops) -> IntArray:
    """Return 0 or 1 for each hop, so that no rank sends or receives two with the same number.

    Every rank sends at most two and receives at most two, so hops that share a port form lines and
    even cycles, along which the numbers alternate.
    """
    neighbours: list[list[int]] = [[] for _ in hops.src]
    for rank in (hops.src, hops.dst):
        order = np.argsort(rank, kind="stable")
        same = rank[order[:-1]] == rank[order[1:]]
        for one, other in zip(order[:-1][same].tolist(), order[1:][same].tolist(), strict=True):
            neighbours[one].append(other)
            neighbours[other].append(one)
    turn = np.full(len(hops.src), -1)
    for start in range(len(turn)):
        waiting = [(start, 0)] if turn[start] < 0 else []
        while waiting:
            hop, number = waiting.pop()
            turn[hop] = number
            waiting += [(other, 1 - number) for other in neighbours[hop] if turn[other] < 0]
    return turn


def _segments_per_half(nbytes: int, segment: int) -> int:
    return count_segments(-(-nbytes // 2), segment)


@algorithm(BCAST, "double_tree")
def broadcast(p: int, root: int, nbytes: int, segment: int = 0) -> Schedule:
    """Pass the segments of each half down a tree of their own.

    Cost: at most (2 ceil(log2 p) + S) (alpha + m/S beta), S the segments of both halves
    Source: P. Sanders, J. Speck, J. L. Traeff, Parallel Computing 35(12), 2009
    """
    half = _segments_per_half(nbytes, segment)
    return trees.pipelined_schedule(BCAST, p, 2 * half, _down(p, half), half, root, period=2)


@algorithm(REDUCE, "double_tree")
def reduce(p: int, root: int, nbytes: int, segment: int = 0) -> Schedule:
    """Pass the segments of each half up a tree of their own and reduce them at each rank.

    Cost: at most (2 ceil(log2 p) + S) (alpha + m/S (beta + gamma)), S the segments of both halves
    Source: P. Sanders, J. Speck, J. L. Traeff, Parallel Computing 35(12), 2009
    """
    half = _segments_per_half(nbytes, segment)
    return trees.pipelined_schedule(REDUCE, p, 2 * half, _up(p, half), half, root, period=2)


@algorithm(ALLREDUCE, "double_tree")
def allreduce(p: int, nbytes: int, segment: int = 0) -> Schedule:
    """Reduce the segments of each half up a tree of their own, then broadcast them down again.

    Cost: at most (2 ceil(log2 p) + S) (2 alpha + m/S (2 beta + gamma)), S the segments of both
    Source: P. Sanders, J. Speck, J. L. Traeff, Parallel Computing 35(12), 2009; NCCL 2.4's tree
    """
    return concat(ALLREDUCE, reduce(p, 0, nbytes, segment), broadcast(p, 0, nbytes, segment))
