"""Reduce-scatter: chunk r of the combined vector ends at rank r (equal counts)."""

from collections.abc import Iterator

import numpy as np

from tuner.algorithms.groups import Groups, in_rank_order
from tuner.algorithms.registry import algorithm
from tuner.collective import Collective
from tuner.schedule import ARRIVING_OP_DST, Round, Schedule, schedule

REDUCE_SCATTER = Collective.REDUCE_SCATTER


def ring_rounds(p: int, share: int) -> Iterator[Round]:
    """(p - 1) share rounds; the j-th of a rank's `share` chunks makes the j-th journey.

    A chunk starts at its owner's successor and collects contributions until it is home.
    """
    rank = np.arange(p)
    for j in range(share):
        for t in range(p - 1):
            chunk = (rank - 1 - t) % p * share + j
            yield Round.of(rank, (rank + 1) % p, chunk, reduce=ARRIVING_OP_DST)


@algorithm(REDUCE_SCATTER, "ring")
def ring(p: int) -> Schedule:
    """Every chunk travels once round the ring and is reduced at each stop.

    Cost: (p-1) alpha + (p-1)/p m (beta + gamma), m the whole vector
    Source: Open MPI coll_base_reduce_scatter.c, ring
    """
    return Schedule(REDUCE_SCATTER, p, p, lambda: ring_rounds(p, 1))


@algorithm(REDUCE_SCATTER, "recursive_halving")
def recursive_halving(p: int) -> Schedule:
    """Partners ..., 4, 2, 1 apart exchange half of what is left; extra ranks join via a neighbour.

    Cost: log2 p alpha + (p-1)/p m (beta + gamma), p a power of two, m the whole vector
    Source: Open MPI coll_base_reduce_scatter.c, recursivehalving; tuner.algorithms.groups
    """
    groups = Groups(p)
    leader = groups.start(groups.index)
    rounds = [groups.fold_in(p)]
    for distance, partner in reversed(list(groups.exchanges())):
        lowest = partner & -distance  # the half that the partner keeps
        first, end = groups.start(lowest), groups.start(lowest + distance)
        reduce = in_rank_order(leader, leader[partner])
        rounds.append(Round.of(leader, leader[partner], first, count=end - first, reduce=reduce))
    rounds.append(Round.of(groups.paired, groups.paired + 1, groups.paired + 1))
    return schedule(REDUCE_SCATTER, p, p, rounds)
