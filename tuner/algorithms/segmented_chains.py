"""Segmented chains of a few ranks, and a tree or another chain of their heads.

A chain moves a large message at the rate of one link, whatever its length, but takes a hop per rank
to fill; short chains fill quickly, and few heads are left for the level above.
"""

from __future__ import annotations

import numpy as np

from tuner.algorithms import trees
from tuner.algorithms.hierarchy import Hierarchy, split_chunks
from tuner.algorithms.registry import algorithm, count_segments
from tuner.core.collective import Collective
from tuner.core.schedule import (
    DST_OP_ARRIVING,
    Round,
    Schedule,
    concat,
    make_schedule,
    relabel,
    reverse,
)

BCAST, REDUCE, ALLREDUCE = Collective.BCAST, Collective.REDUCE, Collective.ALLREDUCE


def binomial_reduce(p: int) -> Schedule:
    """Return the reduce to rank 0: in round s every multiple of 2^(s+1) receives from 2^s above it.

    Each message is reduced before the next one is waited for; operands keep their order.
    """
    rounds = []
    for s in range((p - 1).bit_length()):
        giver = np.arange(1 << s, p, 2 << s)
        rounds.append(Round.of(giver, giver - (1 << s), 0, reduce=DST_OP_ARRIVING))
    return make_schedule(REDUCE, p, 1, rounds)


@algorithm(REDUCE, "chain_binomial")
def chain_binomial(
    p: int, root: int, nbytes: int, length: int = 8, segment: int = 1 << 20
) -> Schedule:
    """Reduce segments along chains of `length` ranks, then whole vectors up a binomial tree.

    Cost: (S + k - 2) (alpha + m/S (beta + gamma)) + ceil(log2(p/k)) (alpha + m (beta + gamma)),
    k the length of the chains, which divides p
    Source: CB-k of S-Caffe (A. A. Awan et al., PPoPP 2017); docs/reference/cost-formulas.md
    """
    levels, number = Hierarchy.of(p, length, root), count_segments(nbytes, segment)
    chain = trees.chain(levels.max_group_size, 1)
    both = concat(
        REDUCE,
        levels.in_each_group(trees.reduction(chain, number)),
        levels.among_leaders(split_chunks(binomial_reduce(levels.n_groups), number)),
    )
    return relabel(both, levels.rank_of_role, root=root)


@algorithm(REDUCE, "chain_of_chains")
def chain_of_chains(
    p: int, root: int, nbytes: int, length: int = 8, segment: int = 1 << 20
) -> Schedule:
    """Reduce segments along chains of `length` ranks and on along the chain of their heads.

    Cost: at most (S + p/k + k - 3) (alpha + 2 m/S (beta + gamma)), k the length of the chains
    Source: CC-k of S-Caffe (A. A. Awan et al., PPoPP 2017), both levels overlapped;
    docs/reference/cost-formulas.md
    """
    levels = Hierarchy.of(p, length, root)
    up = trees.reduction(_chain_of_chains_tree(levels), count_segments(nbytes, segment))
    return relabel(up, levels.rank_of_role, root=root)


@algorithm(ALLREDUCE, "chain_binomial")
def chain_binomial_allreduce(
    p: int, nbytes: int, length: int = 8, segment: int = 1 << 20
) -> Schedule:
    """Reduce along chains and up a binomial tree, then broadcast back the same way.

    Cost: (S + k - 2) (2 alpha + m/S (2 beta + gamma)) + ceil(log2(p/k)) (2 alpha + m (2 beta +
    gamma)), k the length of the chains, which divides p
    Source: CB-k of S-Caffe (A. A. Awan et al., PPoPP 2017); docs/reference/cost-formulas.md
    """
    levels, number = Hierarchy.of(p, length), count_segments(nbytes, segment)
    chain = trees.chain(levels.max_group_size, 1)
    heads = split_chunks(binomial_reduce(levels.n_groups), number)
    return concat(
        ALLREDUCE,
        levels.in_each_group(trees.reduction(chain, number)),
        levels.among_leaders(heads),
        levels.among_leaders(reverse(heads, BCAST)),
        levels.in_each_group(trees.broadcast(chain, number)),
    )


@algorithm(ALLREDUCE, "chain_of_chains")
def chain_of_chains_allreduce(
    p: int, nbytes: int, length: int = 8, segment: int = 1 << 20
) -> Schedule:
    """Reduce along chains of chains, then broadcast back the same way.

    Cost: at most (S + p/k + k - 3) (2 alpha + 2 m/S (2 beta + gamma)), k the length of the chains
    Source: CC-k of S-Caffe (A. A. Awan et al., PPoPP 2017), both levels overlapped;
    docs/reference/cost-formulas.md
    """
    tree, number = _chain_of_chains_tree(Hierarchy.of(p, length)), count_segments(nbytes, segment)
    return concat(ALLREDUCE, trees.reduction(tree, number), trees.broadcast(tree, number))


def _chain_of_chains_tree(levels: Hierarchy) -> trees.Tree:
    return levels.tree(trees.chain(levels.n_groups, 1), lambda size: trees.chain(size, 1))
