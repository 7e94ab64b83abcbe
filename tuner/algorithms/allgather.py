"""Allgather: every rank's chunk reaches every rank."""

from collections.abc import Iterator

import numpy as np

from tuner.algorithms.groups import Groups
from tuner.algorithms.registry import algorithm
from tuner.collective import Collective
from tuner.schedule import Round, Schedule, schedule

ALLGATHER = Collective.ALLGATHER


def ring_rounds(p: int, share: int) -> Iterator[Round]:
    """p - 1 rounds in which rank r passes on the `share` chunks it got last; they were its own."""
    rank = np.arange(p)
    for t in range(p - 1):
        yield Round.of(rank, (rank + 1) % p, (rank - t) % p * share, count=share)


@algorithm(ALLGATHER, "ring")
def ring(p: int) -> Schedule:
    """Every rank passes on to its neighbour what it got from the other one.

    Cost: (p-1) alpha + (p-1)/p m beta, m the whole buffer
    Source: MPICH allgather_intra_ring.c
    """
    return Schedule(ALLGATHER, p, p, lambda: ring_rounds(p, 1))


@algorithm(ALLGATHER, "recursive_doubling")
def recursive_doubling(p: int) -> Schedule:
    """Partners 1, 2, 4, ... apart exchange all they have; extra ranks join through a neighbour.

    Cost: log2 p alpha + (p-1)/p m beta, p a power of two, m the whole buffer
    Source: MPICH allgather_intra_recursive_doubling.c; the pairs: tuner.algorithms.groups
    """
    groups = Groups(p)
    leader = groups.start(groups.index)
    rounds = [Round.of(groups.paired + 1, groups.paired, groups.paired + 1)]
    for distance, partner in groups.exchanges():
        lowest = groups.index & -distance
        first, end = groups.start(lowest), groups.start(lowest + distance)
        rounds.append(Round.of(leader, leader[partner], first, count=end - first))
    rounds.append(groups.fold_out(p))
    return schedule(ALLGATHER, p, p, rounds)
