"""Algorithms for device buffers that travel through host memory.

Scratch is in host memory: a local row between buffer and scratch is a copy between device and host,
and messages go from scratch to scratch. In the formulas h is the time of one such copy of the whole
message, in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest

import numpy as np

from tuner.algorithms import allreduce, bcast, reduce, rings, trees
from tuner.algorithms.hierarchy import Hierarchy
from tuner.algorithms.registry import algorithm, count_segments
from tuner.algorithms.round_columns import column, merge_rounds
from tuner.core.collective import Collective
from tuner.core.schedule import Round, Schedule, concat, relabel

BCAST, ALLREDUCE = Collective.BCAST, Collective.ALLREDUCE


@algorithm(BCAST, "knomial_staged", requires="gpu")
def knomial(p: int, root: int, nbytes: int, radix: int = 4, segment: int = 0) -> Schedule:
    """Copy to the host, broadcast down a k-nomial tree of host buffers, copy to each device.

    A rank copies to its device while it passes the data on. With segments, the root copies a
    segment, the tree moves the one before it, and ranks copy the one before that, all at once.

    Cost: at most 2 h + ceil(log_k p) (alpha + (k-1) m beta), unsegmented, k the radix
    Source: A. A. Awan et al., MVAPICH2-GDR (arXiv 1707.09414); docs/reference/cost-formulas.md
    """
    tree = trees.knomial(p, radix)
    levels = Hierarchy.of(p, p, root)
    whole = levels.pipeline_segments(_staged_broadcast(tree), count_segments(nbytes, segment))
    return relabel(whole, levels.rank_of_role, root=root)


@algorithm(ALLREDUCE, "recursive_doubling_staged", requires="gpu")
def recursive_doubling(p: int, copies: int = 1) -> Schedule:
    """Copy to the host, run recursive doubling there, copy the result to the device.

    Two copies model libraries that copy both the send and the (still empty) receive buffer.

    Cost: (1 + c) h + log2 p (alpha + m (beta + gamma)), c copies, p a power of two
    Source: Open MPI coll/accelerator, MVAPICH2 allreduce_osu.c; docs/reference/cost-formulas.md
    """
    return stage_through_host(allreduce.recursive_doubling(p), copies)


@algorithm(ALLREDUCE, "rabenseifner_staged", requires="gpu")
def rabenseifner(p: int, copies: int = 1) -> Schedule:
    """Copy to the host, run recursive halving and doubling there, copy the result to the device.

    Two copies model libraries that copy both the send and the (still empty) receive buffer.

    Cost: (1 + c) h + 2 log2 p alpha + (p-1)/p m (2 beta + gamma), c copies, p a power of two
    Source: Open MPI coll/accelerator, MVAPICH2 allreduce_osu.c; docs/reference/cost-formulas.md
    """
    return stage_through_host(allreduce.rabenseifner(p), copies)


@algorithm(ALLREDUCE, "ring_staged", requires="gpu")
def ring(p: int, copies: int = 1) -> Schedule:
    """Copy to the host, run a ring there, copy the result to the device.

    Two copies model libraries that copy both the send and the (still empty) receive buffer.

    Cost: (1 + c) h + 2 (p-1) alpha + (p-1)/p m (2 beta + gamma), c copies
    Source: Open MPI coll/accelerator, MVAPICH2 allreduce_osu.c; docs/reference/cost-formulas.md
    """

    def inside() -> Iterator[Round]:
        yield from rings.reduce_scatter_rounds(p, 1, p)
        yield from rings.allgather_rounds(p, 1, p)

    return _with_host_copies(Schedule(ALLREDUCE, p, p, inside), copies)


@algorithm(ALLREDUCE, "central_staged", requires="gpu")
def linear_reduce_bcast(p: int) -> Schedule:
    """Copy to the host, combine at rank 0, broadcast binomially, copy to the device.

    This is how a training program without collectives on devices sums its gradients; dividing by p,
    for the average, is left to the program.

    Cost: 2 h + alpha + (p-1) m (beta + gamma) + ceil(log2 p) (alpha + m beta)
    Source: SHM-Learn-Dist; formula derived in docs/reference/cost-formulas.md
    """
    combined = concat(ALLREDUCE, reduce.linear(p, 0), bcast.binomial(p, 0, 0))
    return stage_through_host(combined, 1)


def stage_through_host(part: Schedule, copies: int) -> Schedule:
    """Return an allreduce that runs `part`, which uses no scratch, on host copies of all buffers.

    copies      how often a buffer is copied to the host; all but one copy are useless
    """
    n = part.n_chunks
    inside = replace(part, make_rounds=lambda: (_shift_to_scratch(r, n) for r in part.rounds()))
    return _with_host_copies(inside, copies)


def _with_host_copies(part: Schedule, copies: int) -> Schedule:
    """Return `part`, which works in scratch, between copies of all buffers to it and from it."""
    if part.p == 1:
        return part
    rank, n = np.arange(part.p), part.n_chunks

    def make() -> Iterator[Round]:
        for _ in range(copies):
            yield Round.of(rank, rank, 0, n, count=n)
        yield from part.rounds()
        yield Round.of(rank, rank, n, 0, count=n)

    return replace(part, make_rounds=make, staged=True)


def _staged_broadcast(tree: trees.Tree) -> Schedule:
    """Return a broadcast of one chunk from rank 0's buffer to all buffers, through scratch.

    A rank copies what has arrived to its buffer in the round in which it passes it on.
    """
    p, depth = len(tree), np.array(trees.depths(tree))
    arrived = [np.flatnonzero(depth == hops) for hops in range(1, int(depth.max()) + 1)]

    def make() -> Iterator[Round]:
        if p == 1:
            return
        yield Round.of(0, 0, 0, 1)
        first, *others = (_shift_to_scratch(r, 1) for r in trees.broadcast(tree, 1).rounds())
        yield first
        for ranks, r in zip_longest(arrived, others):
            copies = Round.of(ranks, ranks, 1, 0)
            yield merge_rounds([copies, r]) if r else copies

    return Schedule(BCAST, p, 1, make, staged=True)


def _shift_to_scratch(r: Round, n_chunks: int) -> Round:
    first, into = column(r.src_chunk + n_chunks), column(r.dst_chunk + n_chunks)
    return Round(r.src, r.dst, first, into, r.count, r.reduce)
