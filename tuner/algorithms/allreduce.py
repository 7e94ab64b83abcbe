"""Allreduce: the combined vector ends at every rank."""

from collections.abc import Iterator

import numpy as np

from tuner.algorithms import allgather, bcast, reduce, reduce_scatter
from tuner.algorithms.groups import Groups, in_rank_order
from tuner.algorithms.registry import algorithm, segments
from tuner.collective import Collective
from tuner.schedule import Round, Schedule, concat, schedule

ALLREDUCE = Collective.ALLREDUCE


@algorithm(ALLREDUCE, "linear")
def linear(p: int) -> Schedule:
    """Linear reduce to rank 0, then linear broadcast.

    Cost: 2 alpha + (p-1) m (2 beta + gamma)
    Source: Open MPI coll_base_allreduce.c, basic_linear
    """
    return concat(ALLREDUCE, reduce.linear(p, 0), bcast.linear(p, 0))


@algorithm(ALLREDUCE, "nonoverlapping")
def nonoverlapping(p: int) -> Schedule:
    """Binomial reduce to rank 0, then binomial broadcast.

    Cost: L (2 alpha + 2 m beta) + L (L+1)/2 m gamma, L = log2 p, p a power of two
    Source: Open MPI coll_base_allreduce.c, nonoverlapping (there the tuned reduce and broadcast)
    """
    return concat(ALLREDUCE, reduce.binomial(p, 0, 0), bcast.binomial(p, 0, 0))


@algorithm(ALLREDUCE, "recursive_doubling")
def recursive_doubling(p: int) -> Schedule:
    """Partners 1, 2, 4, ... apart exchange the whole vector; extra ranks fold into a neighbour.

    Cost: log2 p (alpha + m (beta + gamma)), p a power of two
    Source: MPICH allreduce_intra_recursive_doubling.c
    """
    groups = Groups(p)
    leader = groups.start(groups.index)
    rounds = [groups.fold_in(1)]
    for _, partner in groups.exchanges():
        reduction = in_rank_order(leader, leader[partner])
        rounds.append(Round.of(leader, leader[partner], 0, reduce=reduction))
    return schedule(ALLREDUCE, p, 1, [*rounds, groups.fold_out(1)])


@algorithm(ALLREDUCE, "ring")
def ring(p: int) -> Schedule:
    """Reduce-scatter round a ring, then allgather round the same ring.

    Cost: 2 (p-1) alpha + (p-1)/p m (2 beta + gamma)
    Source: baidu-allreduce; Open MPI coll_base_allreduce.c, ring
    """
    return concat(ALLREDUCE, reduce_scatter.ring(p), allgather.ring(p))


@algorithm(ALLREDUCE, "segmented_ring")
def segmented_ring(p: int, nbytes: int, segment: int = 1 << 20) -> Schedule:
    """A ring whose reduce-scatter takes one segment of each rank's share at a time.

    Cost: (S + 1) (p-1) alpha + (p-1)/p m (2 beta + gamma), S segments per share
    Source: Open MPI coll_base_allreduce.c, ring_segmented
    """
    share = segments(-(-nbytes // p), segment)

    def make() -> Iterator[Round]:
        yield from reduce_scatter.ring_rounds(p, share)
        yield from allgather.ring_rounds(p, share)

    return Schedule(ALLREDUCE, p, p * share, make)


@algorithm(ALLREDUCE, "rabenseifner")
def rabenseifner(p: int) -> Schedule:
    """Reduce-scatter by recursive halving of the vector, then allgather by recursive doubling.

    Distances double while the exchanged parts halve, so that operands keep their order.

    Cost: 2 log2 p alpha + (p-1)/p m (2 beta + gamma), p a power of two;
    otherwise 2 alpha + m (2 beta + gamma) more
    Source: R. Rabenseifner, ICCS 2004; MPICH allreduce_intra_reduce_scatter_allgather.c
    """
    groups = Groups(p)
    leader = groups.start(groups.index)
    n_chunks = 1 << groups.bits
    first, size = np.zeros_like(groups.index), n_chunks
    halving, doubling = [], []
    for distance, partner in groups.exchanges():
        size //= 2
        upper = (groups.index & distance > 0) * size
        keeps, gives = first + upper, first + (size - upper)
        reduction = in_rank_order(leader, leader[partner])
        to = leader[partner]
        halving.append(Round.of(leader, to, gives, count=size, reduce=reduction))
        doubling.append(Round.of(leader, to, keeps, count=size))
        first = keeps
    rounds = [groups.fold_in(n_chunks), *halving, *doubling[::-1], groups.fold_out(n_chunks)]
    return schedule(ALLREDUCE, p, n_chunks, rounds)
