"""Broadcast trees, and pipelines of segments along them.

A tree is `children[v]`, the children of rank v in the order in which v serves them; the root is
rank 0. A reduction tree is the same tree used backwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from tuner.algorithms.power_of_two import rank_ordered_reduction
from tuner.algorithms.round_columns import column
from tuner.base.arrays import IntArray
from tuner.core.collective import Collective
from tuner.core.schedule import NO_REDUCTION, Round, Schedule

Tree = Sequence[Sequence[int]]


def linear(p: int) -> Tree:
    """Return the tree in which the root serves all other ranks."""
    return [range(1, p), *([] for _ in range(1, p))]


def chain(p: int, chains: int) -> Tree:
    """Return the tree of `chains` lines of consecutive ranks below the root, of similar length."""
    children: list[list[int]] = [[] for _ in range(p)]
    heads = np.array_split(np.arange(1, p), max(1, min(chains, p - 1)))
    for line in heads:
        previous = 0
        for rank in line.tolist():
            children[previous].append(rank)
            previous = rank
    return children


def binary(p: int) -> Tree:
    """Return a complete binary tree: odd ranks in the root's left subtree, even ones in the right.

    Rank v of level l (2^l - 1 <= v < 2^(l+1) - 1) serves v + 2^l and v + 2^(l+1), as in Open MPI
    (coll_base_topo.c, ompi_coll_base_topo_build_tree with fan-out 2).
    """
    return [
        [c for c in (v + (1 << level), v + (2 << level)) if c < p]
        for v in range(p)
        for level in [(v + 1).bit_length() - 1]
    ]


def binomial(p: int) -> Tree:
    """Return the binomial tree: v serves v + 2^s for every 2^s > v, the largest subtree first."""
    return [
        [v + (1 << s) for s in range(v.bit_length(), p.bit_length()) if v + (1 << s) < p]
        for v in range(p)
    ]


def knomial(p: int, radix: int) -> Tree:
    """Return the k-nomial tree, with the largest subtrees served first.

    Rank v serves v + j radix^s below its lowest non-zero digit. Every subtree is a run of
    consecutive ranks.
    """
    children: list[list[int]] = [[] for _ in range(p)]
    for v in range(p):
        span = 1
        while span < p and v % (span * radix) == 0:
            span *= radix
        while span > 0:
            children[v] += [
                c
                for c in range(v + span, min(v + radix * span, p), span)
                if v % (span * radix) == 0
            ]
            span //= radix
    return children


def in_order_tree(p: int, shift: int = 0) -> Tree:
    """Return a tree of rank 0 above a binary tree of the others, numbered from left to right.

    Rank v has place v + shift. Odd places are leaves; the parent of a place is the nearest one
    with one more trailing zero, on the side where there is one. A subtree is a run of ranks.
    Shifted by one place, every leaf but the last becomes an inner node and every inner node a leaf
    (P. Sanders, J. Speck, J. L. Traeff, Parallel Computing 35(12), 2009; NCCL's trees.cc).
    """
    children: list[list[int]] = [[] for _ in range(p)]
    for v in range(1, p):
        place = v + shift
        bit = place & -place
        above = (place ^ bit) | (bit << 1)
        parent = above if above < p + shift else place ^ bit
        children[parent - shift if parent else 0].append(v)
    return children


def depths(children: Tree) -> list[int]:
    """Return the number of hops from the root to each rank."""
    depth = [0] * len(children)
    frontier = [0]
    while frontier:
        v = frontier.pop()
        for child in children[v]:
            depth[child] = depth[v] + 1
            frontier.append(child)
    return depth


class Hops(NamedTuple):
    """The transfers that each segment of a pipeline makes.

    src, dst, reduce    as in a round
    delay               round in which segment 0 makes the transfer
    first_chunk         chunk that is segment 0
    """

    src: IntArray
    dst: IntArray
    reduce: IntArray
    delay: IntArray
    first_chunk: IntArray

    @property
    def n_rounds(self) -> int:
        """Number of rounds that one segment takes."""
        return int(self.delay.max(initial=-1)) + 1

    def delayed(self, rounds: int) -> Hops:
        """Return the hops delayed by a number of rounds."""
        return self._replace(delay=self.delay + rounds)

    def time_reversed(self, reduce: IntArray | int) -> Hops:
        """Return the hops reversed in time and direction, with this reduction."""
        kinds = np.zeros_like(self.reduce) + reduce
        return Hops(self.dst, self.src, kinds, self.n_rounds - 1 - self.delay, self.first_chunk)

    def with_chunk_offset(self, first: int) -> Hops:
        """Return the hops with all chunks moved by `first`."""
        return self._replace(first_chunk=self.first_chunk + first)


def concat_hops(*parts: Hops) -> Hops:
    """Return the hops of all parts."""
    return Hops(*(np.concatenate(same) for same in zip(*parts, strict=True)))


def broadcast_hops(children: Tree) -> Hops:
    """Return the hops from the root to the leaves, with children in the tree's order."""
    depth = np.array(depths(children))
    parent = np.array([v for v, served in enumerate(children) for _ in served], dtype=int)
    child = np.array([c for served in children for c in served], dtype=int)
    none = np.zeros_like(parent)
    return Hops(parent, child, none + NO_REDUCTION, depth[parent], none)


def reduction_hops(children: Tree) -> Hops:
    """Return the hops from the leaves to the root; a rank receives in ascending rank order.

    A tree whose subtrees are runs of consecutive ranks therefore keeps the order of the operands.
    """
    down = broadcast_hops(children)
    parent, child, _, depth, none = (part[np.argsort(down.dst)] for part in down)
    return Hops(
        child, parent, rank_ordered_reduction(child, parent), depth.max(initial=0) - depth, none
    )


def pipelined_schedule(
    collective: Collective,
    p: int,
    n_chunks: int,
    hops: Hops,
    n_segments: int,
    root: int = 0,
    period: int = 1,
) -> Schedule:
    """Return a schedule in which segment j makes every hop j * period rounds after segment 0.

    n_chunks    number of chunks of the schedule
    hops        transfers of one segment, for root 0; rank r takes the place of rank r - root

    In a round, hops are in order of delay. There are period (n_segments - 1) + hops.n_rounds
    rounds.
    """
    hops = hops._replace(src=(hops.src + root) % p, dst=(hops.dst + root) % p)
    lanes = []
    for offset in range(period):
        mine = np.flatnonzero(hops.delay % period == offset)
        lane = Hops(*(part[mine] for part in hops))
        lanes.append(lane._replace(delay=lane.delay // period))

    def make() -> Iterator[Round]:
        for side_by_side in zip_longest(*(_pipeline_rounds(lane, n_segments) for lane in lanes)):
            yield from (r for r in side_by_side if r is not None)

    return Schedule(collective, p, n_chunks, make, root=root)


def _pipeline_rounds(hops: Hops, n_segments: int) -> Iterator[Round]:
    """Yield the rounds of a pipeline in which segments are one round apart."""
    hops = Hops(*(part[np.argsort(hops.delay, kind="stable")] for part in hops))
    src, dst, reduce, one = (column(part) for part in (*hops[:3], np.ones_like(hops.src)))
    chunk = hops.first_chunk - hops.delay
    bounds = np.searchsorted(hops.delay, np.arange(hops.n_rounds + 1)).tolist()
    rows, shared = slice(0, len(src)), (src, dst, one, reduce)
    for t in range(n_segments + hops.n_rounds - 1):
        now = slice(bounds[max(0, t - n_segments + 1)], bounds[min(t + 1, hops.n_rounds)])
        if now != rows:
            rows, shared = now, (src[now], dst[now], one[now], reduce[now])
        first = column(chunk[now] + t)
        yield Round(shared[0], shared[1], first, first, shared[2], shared[3])


def broadcast(children: Tree, n_segments: int, root: int = 0) -> Schedule:
    """Return a pipelined broadcast of `n_segments` chunks in n_segments + height - 1 rounds."""
    p = len(children)
    return pipelined_schedule(
        Collective.BCAST, p, n_segments, broadcast_hops(children), n_segments, root
    )


def reduction(children: Tree, n_segments: int, root: int = 0) -> Schedule:
    """Return a pipelined reduction of `n_segments` chunks up the tree."""
    p = len(children)
    return pipelined_schedule(
        Collective.REDUCE, p, n_segments, reduction_hops(children), n_segments, root
    )
