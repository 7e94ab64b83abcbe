"""Reduce: the root gets the combined vector. Trees are reversed broadcast trees."""

import numpy as np

from tuner.algorithms import trees
from tuner.algorithms.butterfly import Butterfly, distance_doubling_partners
from tuner.algorithms.power_of_two import FoldedRanks
from tuner.algorithms.registry import algorithm, count_segments
from tuner.core.collective import Collective
from tuner.core.schedule import (
    ARRIVING_OP_DST,
    DST_OP_ARRIVING,
    Round,
    Schedule,
    concat,
    make_schedule,
    reverse,
    rotate,
)

REDUCE = Collective.REDUCE


@algorithm(REDUCE, "linear")
def linear(p: int, root: int) -> Schedule:
    """Send every rank's vector to the root, which reduces them in rank order.

    Cost: alpha + (p-1) m (beta + gamma)
    Source: Open MPI coll_base_reduce.c, basic_linear
    """
    below, above = np.arange(root)[::-1], np.arange(root + 1, p)
    reduce = np.repeat([ARRIVING_OP_DST, DST_OP_ARRIVING], [len(below), len(above)])
    rows = Round.of(np.concatenate([below, above]), root, 0, reduce=reduce)
    return make_schedule(REDUCE, p, 1, [rows], root=root)


@algorithm(REDUCE, "chain", cuts_whole=True)
def chain(p: int, root: int, nbytes: int, chains: int = 4, segment: int = 0) -> Schedule:
    """Pass segments up several chains of ranks and reduce them at each rank.

    Cost: at most (ceil((p-1)/chains) + S - 1) (alpha + chains m/S (beta + gamma))
    Source: Open MPI coll_base_reduce.c, chain; the chunked chain of S-Caffe (PPoPP'17)
    """
    return trees.reduction(trees.chain(p, chains), count_segments(nbytes, segment), root)


@algorithm(REDUCE, "pipeline", cuts_whole=True)
def pipeline(p: int, root: int, nbytes: int, segment: int = 0) -> Schedule:
    """Pass segments up one chain of ranks and reduce them at each rank.

    Cost: (S + p - 2) (alpha + m/S (beta + gamma))
    Source: Open MPI coll_base_reduce.c, pipeline
    """
    return trees.reduction(trees.chain(p, 1), count_segments(nbytes, segment), root)


@algorithm(REDUCE, "binary", cuts_whole=True)
def binary(p: int, root: int, nbytes: int, segment: int = 0) -> Schedule:
    """Pass segments up a complete binary tree and reduce them at each rank.

    Cost: at most (floor(log2 p) + S - 1) (alpha + 2 m/S (beta + gamma))
    Source: Open MPI coll_base_reduce.c, binary
    """
    return trees.reduction(trees.binary(p), count_segments(nbytes, segment), root)


@algorithm(REDUCE, "binomial", cuts_whole=True)
def binomial(p: int, root: int, nbytes: int, segment: int = 0) -> Schedule:
    """Reduce up a binomial tree whose subtrees are runs of consecutive ranks.

    A rank reduces when all its messages have arrived, so the i-th of L = log2 p levels costs i m
    gamma.

    Cost: L (alpha + m beta) + L (L+1)/2 m gamma, unsegmented, L = log2 p, p a power of two
    Source: Open MPI coll_base_reduce.c, binomial (in-order tree)
    """
    return trees.reduction(trees.knomial(p, 2), count_segments(nbytes, segment), root)


@algorithm(REDUCE, "rabenseifner")
def rabenseifner(p: int, root: int) -> Schedule:
    """Reduce-scatter by recursive halving of the vector, then a binomial gather to the root.

    Cost: 2 log2 p alpha + (p-1)/p m (2 beta + gamma), p a power of two;
    otherwise at most alpha + m (beta + gamma) more
    Source: R. Rabenseifner, ICCS 2004; Open MPI coll_base_reduce.c, redscat_gather
    """
    groups = FoldedRanks.of(p)
    bounds = np.arange(groups.n_groups + 1)
    butterfly = Butterfly(groups.leaders, distance_doubling_partners(groups.n_groups))
    gather = reverse(make_schedule(REDUCE, p, groups.n_groups, butterfly.scatter(bounds)), REDUCE)
    halving = [groups.fold_in(groups.n_groups), *butterfly.halving(bounds)]
    return rotate(concat(REDUCE, make_schedule(REDUCE, p, groups.n_groups, halving), gather), root)
