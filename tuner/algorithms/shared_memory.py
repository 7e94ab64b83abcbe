"""Reductions in a shared address space: every rank of a node reads its peers' buffers directly.

A transfer is one rank's read of another's buffer, or a write to it; mapping the buffers in the
kernel (XPMEM) is done once and is not part of the schedule.
"""

from __future__ import annotations

from tuner.algorithms import allreduce
from tuner.algorithms.hierarchy import Hierarchy, split_chunks
from tuner.algorithms.multi_leader import MultiLeader
from tuner.algorithms.registry import algorithm
from tuner.algorithms.segmented_chains import binomial_reduce
from tuner.core.collective import Collective
from tuner.core.schedule import Schedule, concat, make_schedule, relabel

REDUCE, ALLREDUCE = Collective.REDUCE, Collective.ALLREDUCE


@algorithm(REDUCE, "shared_memory")
def shared_memory_reduce(p: int, root: int, group: int = 4) -> Schedule:
    """Reduce in each rank a share of the buffers of its group, then binomially over the leaders.

    Cost: 2 alpha + (g-1)/g m (2 beta + gamma) + log2 G (alpha + m (beta + gamma)), G groups of g
    ranks, G a power of two
    Source: J. Hashmi et al., IPDPS 2018 (XPMEM); formula derived in docs/reference/cost-formulas.md
    """
    levels = Hierarchy.of(p, group, root)
    shares = MultiLeader(levels, levels.max_group_size)
    inside = make_schedule(
        REDUCE, p, shares.n_chunks, [shares.reduce_to_leaders(), shares.gather_from_leaders()]
    )
    between = levels.among_leaders(split_chunks(binomial_reduce(levels.n_groups), shares.n_chunks))
    return relabel(concat(REDUCE, inside, between), levels.rank_of_role, root=root)


@algorithm(ALLREDUCE, "shared_memory")
def shared_memory_allreduce(p: int, group: int = 4) -> Schedule:
    """Reduce in each rank a share of the buffers of its group, then read the shares of the others.

    With several groups the shares are collected at the leaders, which combine them by halving and
    doubling and distribute them again.

    Cost: 2 alpha + (g-1)/g m (2 beta + gamma) for one group of g ranks; for G groups, G a power of
    two, at least 2 (1 + log2 G) alpha + 2 (g-1)/g m beta + (G-1)/G m (2 beta + gamma) more
    Source: J. Hashmi et al., IPDPS 2018 (XPMEM); formula derived in docs/reference/cost-formulas.md
    """
    levels = Hierarchy.of(p, group)
    between = allreduce.rabenseifner(levels.n_groups)
    shares = MultiLeader(levels, levels.max_group_size, between.n_chunks)
    n_chunks = shares.n_chunks
    if levels.n_groups == 1:
        return make_schedule(
            ALLREDUCE, p, n_chunks, [shares.reduce_to_leaders(), shares.broadcast_from_leaders()]
        )
    return concat(
        ALLREDUCE,
        make_schedule(
            ALLREDUCE, p, n_chunks, [shares.reduce_to_leaders(), shares.gather_from_leaders()]
        ),
        levels.among_leaders(split_chunks(between, shares.n_parts)),
        make_schedule(
            ALLREDUCE, p, n_chunks, [shares.scatter_to_leaders(), shares.broadcast_from_leaders()]
        ),
    )
