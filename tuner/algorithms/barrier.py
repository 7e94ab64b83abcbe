"""Barrier: every rank learns that all ranks have arrived.

A schedule has one chunk: the set of ranks that its holder knows to have arrived. Sets are united as
operands of a reduction are combined, but a rank may be in both.
"""

from dataclasses import replace

import numpy as np

from tuner.algorithms import allreduce, bcast, reduce
from tuner.algorithms.hierarchy import Hierarchy
from tuner.algorithms.registry import algorithm
from tuner.core.collective import Collective
from tuner.core.schedule import DST_OP_ARRIVING, Round, Schedule, concat, make_schedule

BARRIER = Collective.BARRIER


@algorithm(BARRIER, "linear")
def linear(p: int) -> Schedule:
    """Report to rank 0, which then releases all others.

    Cost: 2 alpha + (p-1) m (2 beta + gamma)
    Source: Open MPI coll_base_barrier.c, basic_linear
    """
    return concat(BARRIER, reduce.linear(p, 0), bcast.linear(p, 0))


@algorithm(BARRIER, "binomial")
def binomial(p: int) -> Schedule:
    """Report to rank 0 over a binomial tree, and be released over the same tree.

    Cost: L (2 alpha + 2 m beta) + L (L+1)/2 m gamma, L = log2 p, p a power of two
    Source: Open MPI coll_base_barrier.c, tree
    """
    return concat(BARRIER, reduce.binomial(p, 0, 0), bcast.binomial(p, 0, 0))


@algorithm(BARRIER, "recursive_doubling")
def recursive_doubling(p: int) -> Schedule:
    """Exchange knowledge with partners 1, 2, 4, ... apart; extra ranks join a neighbour.

    Cost: log2 p (alpha + m (beta + gamma)), p a power of two
    Source: Open MPI coll_base_barrier.c, recursivedoubling; MPICH barrier, recexch
    """
    return replace(allreduce.recursive_doubling(p), collective=BARRIER)


@algorithm(BARRIER, "dissemination")
def dissemination(p: int) -> Schedule:
    """Send what is known to the ranks 1, 2, 4, ... above, for any number of ranks.

    Cost: ceil(log2 p) (alpha + m (beta + gamma))
    Source: D. Hensgen, R. Finkel, U. Manber, IJPP 17(1), 1988; Open MPI coll_base_barrier.c, bruck
    """
    rank = np.arange(p)
    distances = [1 << bit for bit in range((p - 1).bit_length())]
    return make_schedule(
        BARRIER,
        p,
        1,
        [Round.of(rank, (rank + one) % p, 0, reduce=DST_OP_ARRIVING) for one in distances],
    )


@algorithm(BARRIER, "double_ring")
def double_ring(p: int) -> Schedule:
    """Pass on twice around a ring what is known.

    Cost: 2 p (alpha + m (beta + gamma))
    Source: Open MPI coll_base_barrier.c, doublering
    """
    hops = list(range(p)) * 2 if p > 1 else []
    return make_schedule(
        BARRIER,
        p,
        1,
        [Round.of([rank], [(rank + 1) % p], 0, reduce=DST_OP_ARRIVING) for rank in hops],
    )


@algorithm(BARRIER, "two_level")
def two_level(p: int, group: int = 4) -> Schedule:
    """Report to a leader in each group, let leaders disseminate, and release each group.

    Cost: 2 L (alpha + m beta) + L (L+1)/2 m gamma + ceil(log2 G) (alpha + m (beta + gamma)), L =
    log2 g, G groups of g ranks, g a power of two
    Source: MPICH barrier_intra_smp.c; dissemination between leaders
    """
    levels = Hierarchy.of(p, group)
    most = levels.max_group_size
    return concat(
        BARRIER,
        levels.in_each_group(reduce.binomial(most, 0, 0)),
        levels.among_leaders(dissemination(levels.n_groups)),
        levels.in_each_group(bcast.binomial(most, 0, 0)),
    )
