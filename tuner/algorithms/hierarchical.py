"""Two-level algorithms with one leader per group.

Only leaders exchange messages between nodes, so that a node's network port carries each byte once,
however many ranks the node has.
"""

from __future__ import annotations

from tuner.algorithms import allreduce, bcast, reduce, trees
from tuner.algorithms.hierarchy import Hierarchy
from tuner.algorithms.registry import algorithm, count_segments
from tuner.core.collective import Collective
from tuner.core.schedule import Schedule, concat, relabel

BCAST, ALLREDUCE = Collective.BCAST, Collective.ALLREDUCE


@algorithm(BCAST, "hierarchical")
def broadcast(p: int, root: int, nbytes: int, group: int = 4, segment: int = 0) -> Schedule:
    """Broadcast binomially to the leaders of groups of consecutive ranks, then inside each group.

    With segments, they flow down a chain of leaders, and a leader passes one on inside its group
    while the next one arrives.

    Cost: at most (ceil(log2 G) + ceil(log2 g)) (alpha + m beta) unsegmented,
    (G + ceil(log2 g) + S - 2) (alpha + (1 + ceil(log2 g)) m/S beta) segmented,
    with groups of g ranks, G of them
    Source: Open MPI coll_han_bcast.c, and the two levels of MVAPICH2's tuning tables;
    docs/reference/cost-formulas.md
    """
    levels = Hierarchy.of(p, group, root)
    if segment > 0:
        tree = levels.tree(trees.chain(levels.n_groups, 1), trees.binomial)
        both = trees.broadcast(tree, count_segments(nbytes, segment))
    else:
        both = concat(
            BCAST,
            levels.among_leaders(bcast.binomial(levels.n_groups, 0, 0)),
            levels.in_each_group(bcast.binomial(levels.max_group_size, 0, 0)),
        )
    return relabel(both, levels.rank_of_role, root=root)


@algorithm(BCAST, "hierarchical_ring", requires="gpu")
def broadcast_ring(
    p: int, root: int, nbytes: int, group: int = 4, radix: int = 1, segment: int = 0
) -> Schedule:
    """Broadcast along a chain or k-nomial tree of leaders, and along a chain inside each group.

    The NCCL-augmented broadcast: segments cross the network between the leaders; each is passed
    along the GPUs of a node, as in a ring broadcast of NCCL, while the next one arrives there.
    Radix 1 is the chain of leaders.

    Cost: at most (S + H + g - 2) (alpha + (d + 1) m/S beta), with groups of g ranks, G of them, and
    of the tree of leaders H the height, d the most children: G - 1 and 1 for the line,
    ceil(log_k G) and (k-1) ceil(log_k G) with radix k
    Source: A. A. Awan et al., EuroMPI 2016; formula derived in docs/reference/cost-formulas.md
    """
    levels = Hierarchy.of(p, group, root)
    leaders = (
        trees.chain(levels.n_groups, 1) if radix == 1 else trees.knomial(levels.n_groups, radix)
    )
    tree = levels.tree(leaders, lambda size: trees.chain(size, 1))
    return relabel(
        trees.broadcast(tree, count_segments(nbytes, segment)), levels.rank_of_role, root=root
    )


@algorithm(ALLREDUCE, "hierarchical")
def hierarchical_allreduce(p: int, nbytes: int, group: int = 4, segment: int = 0) -> Schedule:
    """Reduce binomially to each group's leader, double recursively over leaders, then broadcast.

    With segments, a segment is reduced inside the groups while the one before it travels between
    the leaders, and so on.

    Cost: (2 log2 g + log2 G) (alpha + m beta) + (log2 g (log2 g + 1)/2 + log2 G) m gamma,
    unsegmented, groups of g ranks, G of them, both powers of two
    Source: Open MPI coll_han_allreduce.c; SALaR (CLUSTER 2018) for the overlap;
    docs/reference/cost-formulas.md
    """
    levels = Hierarchy.of(p, group)
    whole = concat(
        ALLREDUCE,
        levels.in_each_group(reduce.binomial(levels.max_group_size, 0, 0)),
        levels.among_leaders(allreduce.recursive_doubling(levels.n_groups)),
        levels.in_each_group(bcast.binomial(levels.max_group_size, 0, 0)),
    )
    return levels.pipeline_segments(whole, count_segments(nbytes, segment))
