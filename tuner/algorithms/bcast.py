"""Broadcast: the root's buffer reaches every rank."""

import numpy as np

from tuner.algorithms import trees
from tuner.algorithms.allgather import recursive_doubling, ring
from tuner.algorithms.registry import algorithm, count_segments
from tuner.algorithms.scatter import binomial_scatter
from tuner.core.collective import Collective
from tuner.core.schedule import Round, Schedule, concat, make_schedule, rotate

BCAST = Collective.BCAST


@algorithm(BCAST, "linear")
def linear(p: int, root: int) -> Schedule:
    """Send the whole message from the root to every other rank, all at once.

    Cost: alpha + (p-1) m beta
    Source: Open MPI coll_base_bcast.c, basic_linear
    """
    return trees.broadcast(trees.linear(p), 1, root)


@algorithm(BCAST, "chain", cuts_whole=True)
def chain(p: int, root: int, nbytes: int, chains: int = 4, segment: int = 0) -> Schedule:
    """Pass segments down several chains of ranks that all start at the root.

    Cost: at most (ceil((p-1)/chains) + S - 1) (alpha + chains m/S beta)
    Source: Open MPI coll_base_bcast.c, chain
    """
    return trees.broadcast(trees.chain(p, chains), count_segments(nbytes, segment), root)


@algorithm(BCAST, "pipeline", cuts_whole=True)
def pipeline(p: int, root: int, nbytes: int, segment: int = 0) -> Schedule:
    """Pass segments down one chain of ranks.

    Cost: (S + p - 2) (alpha + m/S beta)
    Source: standard; the pipelined chain of MVAPICH2-GDR (arXiv 1707.09414)
    """
    return trees.broadcast(trees.chain(p, 1), count_segments(nbytes, segment), root)


@algorithm(BCAST, "binary", cuts_whole=True)
def binary(p: int, root: int, nbytes: int, segment: int = 0) -> Schedule:
    """Pass segments down a complete binary tree.

    Cost: at most (floor(log2 p) + S - 1) (alpha + 2 m/S beta)
    Source: Open MPI coll_base_bcast.c, bintree
    """
    return trees.broadcast(trees.binary(p), count_segments(nbytes, segment), root)


@algorithm(BCAST, "split_binary")
def split_binary(p: int, root: int, nbytes: int, segment: int = 0) -> Schedule:
    """Send one half of the message down each subtree of a binary tree, then swap the halves.

    Cost: at most (floor(log2 p) + S/2 - 1) (alpha + 2 m/S beta) + alpha + m/2 beta
    Source: Open MPI coll_base_bcast.c, split_bintree
    """
    half = count_segments(-(-nbytes // 2), segment)
    down = trees.broadcast(trees.binary(p), half)
    left_half_ranks = np.arange(p) % 2 == 1  # the odd ranks are the root's left subtree

    def halved(r: Round) -> Round:
        """Return the round with the segments of the half that each receiver's subtree gets."""
        return Round.of(r.src, r.dst, r.src_chunk + np.where(left_half_ranks[r.dst], 0, half))

    rounds = [halved(r) for r in down.rounds()]
    odd = np.arange(1, p, 2)
    paired = odd[odd + 1 < p]
    alone = odd[odd + 1 >= p]
    first = np.repeat([0, half, half], [len(paired), len(paired), len(alone)])
    swap = Round.of(
        np.concatenate([paired, paired + 1, np.zeros_like(alone)]),
        np.concatenate([paired + 1, paired, alone]),
        first,
        count=half,
    )
    return rotate(make_schedule(BCAST, p, 2 * half, [*rounds, swap]), root)


@algorithm(BCAST, "binomial", cuts_whole=True)
def binomial(p: int, root: int, nbytes: int, segment: int = 0) -> Schedule:
    """Send, in round s, from every rank that has the message to the rank 2^s away.

    A rank serves one child after the other. With segments, they are pipelined down the same tree
    and a rank sends to all its children at once.

    Cost: ceil(log2 p) (alpha + m beta) unsegmented
    Source: Open MPI coll_base_bcast.c, binomial (MPICH's is `binomial_distance_halving`)
    """
    if segment > 0:
        return trees.broadcast(trees.binomial(p), count_segments(nbytes, segment), root)
    holders = [np.arange(min(1 << s, p - (1 << s))) for s in range((p - 1).bit_length())]
    rounds = [Round.of(v, v + (1 << s), 0) for s, v in enumerate(holders)]
    return rotate(make_schedule(BCAST, p, 1, rounds), root)


@algorithm(BCAST, "binomial_distance_halving")
def binomial_distance_halving(p: int, root: int) -> Schedule:
    """Send from every rank that has the message to the middle of the range of ranks it serves.

    The farthest ranks are served first: one message crosses the middle of the ranks, where
    `binomial` sends p/2 across, which share tapered uplinks.

    Cost: ceil(log2 p) (alpha + m beta)
    Source: MPICH bcast_intra_binomial.c
    """
    rounds = []
    for distance in (1 << s for s in reversed(range((p - 1).bit_length()))):
        holder = np.arange(0, p - distance, 2 * distance)
        rounds.append(Round.of(holder, holder + distance, 0))
    return rotate(make_schedule(BCAST, p, 1, rounds), root)


@algorithm(BCAST, "knomial", cuts_whole=True)
def knomial(p: int, root: int, nbytes: int, radix: int = 4, segment: int = 0) -> Schedule:
    """Send from every rank that has the message to radix - 1 new ranks per hop.

    Cost: at most ceil(log_k p) (alpha + (k-1) m beta), unsegmented, k the radix
    Source: Open MPI coll_base_bcast.c, knomial
    """
    return trees.broadcast(trees.knomial(p, radix), count_segments(nbytes, segment), root)


@algorithm(BCAST, "scatter_allgather")
def scatter_allgather(p: int, root: int) -> Schedule:
    """Scatter p pieces over a binomial tree, then allgather by recursive doubling (van de Geijn).

    Cost: 2 log2 p alpha + 2 (p-1)/p m beta, p a power of two
    Source: MPICH bcast_intra_scatter_recursive_doubling_allgather.c
    """
    return rotate(concat(BCAST, binomial_scatter(p), recursive_doubling(p)), root)


@algorithm(BCAST, "scatter_allgather_ring")
def scatter_allgather_ring(p: int, root: int) -> Schedule:
    """Scatter p pieces over a binomial tree, then allgather over a ring.

    Cost: (log2 p + p - 1) alpha + 2 (p-1)/p m beta
    Source: MPICH bcast_intra_scatter_ring_allgather.c
    """
    return rotate(concat(BCAST, binomial_scatter(p), ring(p)), root)
