"""Allreduce: every rank gets the combined vector."""

from collections.abc import Iterator

import numpy as np

from tuner.algorithms import allgather, bcast, reduce, reduce_scatter, rings
from tuner.algorithms.binary_blocks import BinaryBlocks
from tuner.algorithms.butterfly import Butterfly, distance_doubling_partners
from tuner.algorithms.power_of_two import FoldedRanks
from tuner.algorithms.registry import algorithm, count_segments
from tuner.core.collective import Collective
from tuner.core.schedule import Round, Schedule, concat, make_schedule

ALLREDUCE = Collective.ALLREDUCE


@algorithm(ALLREDUCE, "linear")
def linear(p: int) -> Schedule:
    """Reduce linearly to rank 0, then broadcast linearly.

    Cost: 2 alpha + (p-1) m (2 beta + gamma)
    Source: Open MPI coll_base_allreduce.c, basic_linear
    """
    return concat(ALLREDUCE, reduce.linear(p, 0), bcast.linear(p, 0))


@algorithm(ALLREDUCE, "nonoverlapping")
def nonoverlapping(p: int) -> Schedule:
    """Reduce to rank 0 over a binomial tree, then broadcast over the same tree.

    Cost: L (2 alpha + 2 m beta) + L (L+1)/2 m gamma, L = log2 p, p a power of two
    Source: Open MPI coll_base_allreduce.c, nonoverlapping (there the tuned reduce and broadcast)
    """
    return concat(ALLREDUCE, reduce.binomial(p, 0, 0), bcast.binomial(p, 0, 0))


@algorithm(ALLREDUCE, "recursive_doubling")
def recursive_doubling(p: int) -> Schedule:
    """Exchange the whole vector with partners 1, 2, 4, ... apart; extra ranks join a neighbour.

    Cost: log2 p (alpha + m (beta + gamma)), p a power of two
    Source: MPICH allreduce_intra_recursive_doubling.c
    """
    groups = FoldedRanks.of(p)
    return butterfly_allreduce(
        groups, Butterfly(groups.leaders, distance_doubling_partners(groups.n_groups))
    )


def butterfly_allreduce(groups: FoldedRanks, butterfly: Butterfly) -> Schedule:
    """Return an allreduce in which leaders exchange whole vectors over a butterfly."""
    rounds = [groups.fold_in(1), *butterfly.exchange(1), groups.fold_out(1)]
    return make_schedule(ALLREDUCE, groups.p, 1, rounds)


@algorithm(ALLREDUCE, "ring")
def ring(p: int) -> Schedule:
    """Reduce-scatter over a ring, then allgather over the same ring.

    Cost: 2 (p-1) alpha + (p-1)/p m (2 beta + gamma)
    Source: baidu-allreduce; Open MPI coll_base_allreduce.c, ring
    """
    return concat(ALLREDUCE, reduce_scatter.ring(p), allgather.ring(p))


@algorithm(ALLREDUCE, "segmented_ring")
def segmented_ring(p: int, nbytes: int, segment: int = 1 << 20) -> Schedule:
    """Run the ring with a reduce-scatter of one segment of each rank's share at a time.

    Cost: (S + 1) (p-1) alpha + (p-1)/p m (2 beta + gamma), S segments per share
    Source: Open MPI coll_base_allreduce.c, ring_segmented
    """
    share = count_segments(-(-nbytes // p), segment)

    def make() -> Iterator[Round]:
        yield from rings.reduce_scatter_rounds(p, share)
        yield from rings.allgather_rounds(p, share)

    return Schedule(ALLREDUCE, p, p * share, make)


@algorithm(ALLREDUCE, "rabenseifner")
def rabenseifner(p: int) -> Schedule:
    """Reduce-scatter by recursive halving of the vector, then allgather by recursive doubling.

    Distances double while the exchanged parts halve, so that operands keep their order.

    Cost: 2 log2 p alpha + (p-1)/p m (2 beta + gamma), p a power of two;
    otherwise 2 alpha + m (2 beta + gamma) more
    Source: R. Rabenseifner, ICCS 2004; MPICH allreduce_intra_reduce_scatter_allgather.c
    """
    groups = FoldedRanks.of(p)
    return halving_doubling_allreduce(
        groups, Butterfly(groups.leaders, distance_doubling_partners(groups.n_groups))
    )


def halving_doubling_allreduce(groups: FoldedRanks, butterfly: Butterfly) -> Schedule:
    """Return an allreduce in which leaders halve the vector, then double what is left."""
    q = groups.n_groups
    bounds = np.arange(q + 1)
    inside = [*butterfly.halving(bounds), *butterfly.doubling(bounds)]
    return make_schedule(ALLREDUCE, groups.p, q, [groups.fold_in(q), *inside, groups.fold_out(q)])


@algorithm(ALLREDUCE, "binary_blocks")
def binary_blocks(p: int) -> Schedule:
    """Run Rabenseifner's algorithm in blocks of 2^i ranks, each added to the next larger one.

    No rank beyond a power of two idles; small blocks send long messages.

    Cost: at most 2 log2 Q alpha + m (2 beta + gamma), and for any two successive runs of b < B
    ranks 2 alpha + m (2 beta/b + gamma/B), Q ranks in the largest
    Source: R. Rabenseifner, ICCS 2004, binary blocks; docs/reference/cost-formulas.md
    """
    runs = BinaryBlocks.of(p)
    bounds = np.arange(runs.max_block_size + 1)
    rounds = [*runs.halving(bounds), *runs.doubling(bounds)]
    return make_schedule(ALLREDUCE, p, runs.max_block_size, rounds)
