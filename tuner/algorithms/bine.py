"""Bine trees: binomial trees and butterflies in negabinary numbers, with nearer partners.

Distances are those of Swing, (1 - (-2)^s) / 3 instead of 2^s: up to a third less traffic between
distant parts of a network. Ranks beyond a power of two join through a neighbour.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tuner.algorithms.allgather import butterfly_allgather
from tuner.algorithms.allreduce import halving_doubling_allreduce
from tuner.algorithms.butterfly import Butterfly, swing_partners
from tuner.algorithms.power_of_two import FoldedRanks
from tuner.algorithms.reduce_scatter import butterfly_reduce_scatter
from tuner.algorithms.registry import algorithm
from tuner.base.arrays import IntArray
from tuner.core.collective import Collective
from tuner.core.schedule import (
    DST_OP_ARRIVING,
    Round,
    Schedule,
    make_schedule,
    reverse,
    rotate,
    rotate_chunks,
)

BCAST, SCATTER = Collective.BCAST, Collective.SCATTER


def bine_tree_edges(q: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield (senders, receivers) of each round, the farthest first (distance halving).

    q   number of ranks, a power of two
    """
    holders = np.zeros(1, dtype=np.int64)
    for partner in reversed(swing_partners(q)):
        yield holders, partner[holders]
        holders = np.concatenate([holders, partner[holders]])


def bine_butterfly(groups: FoldedRanks) -> Butterfly:
    """Return the butterfly with the nearest partners first."""
    return Butterfly(groups.leaders, swing_partners(groups.n_groups))


def _broadcast(p: int) -> Schedule:
    groups = FoldedRanks.of(p)
    ranks = groups.leaders
    rounds = [
        Round.of(ranks[holder], ranks[new], 0) for holder, new in bine_tree_edges(groups.n_groups)
    ]
    return make_schedule(BCAST, p, 1, [*rounds, groups.fold_out(1)])


@algorithm(BCAST, "bine")
def broadcast(p: int, root: int) -> Schedule:
    """Broadcast down a Bine tree with ever shorter edges; every holder sends once per round.

    Cost: ceil(log2 p) (alpha + m beta)
    Source: Bine trees (arXiv 2508.17311), distance-halving tree
    """
    return rotate(_broadcast(p), root)


@algorithm(BCAST, "bine_scatter_allgather")
def scatter_allgather(p: int, root: int) -> Schedule:
    """Scatter down a Bine tree, then allgather over the Bine butterfly.

    Cost: 2 log2 p alpha + 2 (p-1)/p m beta, p a power of two; otherwise alpha + m beta more
    Source: Bine trees (arXiv 2508.17311), broadcast of large vectors
    """
    groups = FoldedRanks.of(p)
    bounds = np.arange(groups.n_groups + 1)
    own = bine_butterfly(groups)
    rounds = [*own.scatter(bounds), *own.doubling(bounds), groups.fold_out(groups.n_groups)]
    return rotate(make_schedule(BCAST, p, groups.n_groups, rounds), root)


@algorithm(Collective.REDUCE, "bine")
def reduce(p: int, root: int) -> Schedule:
    """Reduce up a Bine tree with ever longer edges.

    Cost: ceil(log2 p) (alpha + m (beta + gamma))
    Source: Bine trees (arXiv 2508.17311), distance-halving tree
    """
    return rotate(reverse(_broadcast(p), Collective.REDUCE, DST_OP_ARRIVING), root)


def _scatter(p: int) -> Schedule:
    """Return the scatter from rank 0.

    The subtree below every other rank is a run of consecutive groups.
    """
    groups = FoldedRanks.of(p)
    bounds, ranks = groups.bounds, groups.leaders
    lowest, edges = np.arange(groups.n_groups), list(bine_tree_edges(groups.n_groups))
    rounds = [Round.of(groups.pair_leaders, groups.pair_leaders + 1, groups.pair_leaders + 1)]
    for s, (holder, new) in enumerate(reversed(edges)):
        first, end = bounds[lowest[new]], bounds[lowest[new] + (1 << s)]
        rounds.append(Round.of(ranks[holder], ranks[new], first, count=end - first))
        lowest[holder] = np.minimum(lowest[holder], lowest[new])
    return make_schedule(SCATTER, p, p, rounds[::-1])


@algorithm(SCATTER, "bine")
def scatter(p: int, root: int) -> Schedule:
    """Pass ever smaller halves of the buffer down a Bine tree.

    Cost: log2 p alpha + (p-1)/p m beta, p a power of two, m the whole buffer
    Source: Bine trees (arXiv 2508.17311), scatter
    """
    return rotate_chunks(rotate(_scatter(p), root), root)


@algorithm(Collective.GATHER, "bine")
def gather(p: int, root: int) -> Schedule:
    """Pass runs of chunks, which double in length, up a Bine tree.

    Cost: log2 p alpha + (p-1)/p m beta, p a power of two, m the whole buffer
    Source: Bine trees (arXiv 2508.17311), gather
    """
    return reverse(scatter(p, root), Collective.GATHER)


@algorithm(Collective.ALLGATHER, "bine")
def allgather(p: int) -> Schedule:
    """Send chunks to where the Bine butterfly needs them, then exchange everything with partners.

    Cost: (log2 p + 1) alpha + m beta, p a power of two, m the whole buffer
    Source: Bine trees (arXiv 2508.17311), allgather, chunks sent to their place; as in Swing
    """
    groups = FoldedRanks.of(p)
    return butterfly_allgather(groups, bine_butterfly(groups))


@algorithm(Collective.REDUCE_SCATTER, "bine")
def reduce_scatter(p: int) -> Schedule:
    """Exchange halves of what is left over the Bine butterfly, then send chunks to their owners.

    Cost: (log2 p + 1) alpha + m beta + (p-1)/p m gamma, p a power of two, m the whole vector
    Source: Bine trees (arXiv 2508.17311), reduce-scatter, chunks sent to their place; as in Swing
    """
    groups = FoldedRanks.of(p)
    return butterfly_reduce_scatter(groups, bine_butterfly(groups))


@algorithm(Collective.ALLREDUCE, "bine")
def allreduce(p: int) -> Schedule:
    """Reduce-scatter over the Bine butterfly, the nearest partners first, then allgather back.

    Cost: 2 log2 p alpha + (p-1)/p m (2 beta + gamma), p a power of two
    Source: Bine trees (arXiv 2508.17311), allreduce of large vectors
    """
    groups = FoldedRanks.of(p)
    return halving_doubling_allreduce(groups, bine_butterfly(groups))
