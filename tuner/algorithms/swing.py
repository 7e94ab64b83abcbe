"""Swing: partners alternate between both sides of a ring, at distances that grow less than 2^s."""

import numpy as np

from tuner.algorithms.allreduce import butterfly_allreduce
from tuner.algorithms.butterfly import Butterfly, swing_partners
from tuner.algorithms.power_of_two import FoldedRanks
from tuner.algorithms.registry import algorithm
from tuner.algorithms.round_columns import merge_rounds
from tuner.core.collective import Collective
from tuner.core.schedule import Schedule, make_schedule

ALLREDUCE = Collective.ALLREDUCE


@algorithm(ALLREDUCE, "swing")
def swing(p: int) -> Schedule:
    """Halve and double with partners 1, 1, 3, 5, 11, ... apart on a ring, in both directions.

    One half of the vector goes to the right first, the other to the left. Ranks beyond a power of
    two fold into a neighbour.

    Cost: 2 log2 p alpha + (p-1)/p m (2 beta + gamma), p a power of two
    Source: Swing (arXiv 2401.09356), bandwidth-optimal, on a ring with two ports
    """
    groups = FoldedRanks.of(p)
    q = groups.n_groups
    ways = [Butterfly(groups.leaders, swing_partners(q, direction)) for direction in (1, -1)]
    halves = [np.arange(q + 1), q + np.arange(q + 1)]
    both = list(zip(ways, halves, strict=True))
    halving = zip(*(way.halving(half) for way, half in both), strict=True)
    doubling = zip(*(way.doubling(half) for way, half in both), strict=True)
    inside = [merge_rounds(rounds) for rounds in (*halving, *doubling)]
    rounds = [groups.fold_in(2 * q), *inside, groups.fold_out(2 * q)]
    return make_schedule(ALLREDUCE, p, 2 * q, rounds)


@algorithm(ALLREDUCE, "swing_latency")
def swing_latency(p: int) -> Schedule:
    """Exchange the whole vector with partners 1, 1, 3, 5, 11, ... apart on a ring.

    Cost: log2 p (alpha + m (beta + gamma)), p a power of two
    Source: Swing (arXiv 2401.09356), latency-optimal
    """
    groups = FoldedRanks.of(p)
    return butterfly_allreduce(groups, Butterfly(groups.leaders, swing_partners(groups.n_groups)))
