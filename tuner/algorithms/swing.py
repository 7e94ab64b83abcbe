"""Swing: partners by turns on either side of a ring, ever further, but nearer than 2^s."""

import numpy as np

from tuner.algorithms.allreduce import exchanged
from tuner.algorithms.butterfly import Butterfly, swinging
from tuner.algorithms.power_of_two import Groups
from tuner.algorithms.registry import algorithm
from tuner.algorithms.round_columns import together
from tuner.core.collective import Collective
from tuner.core.schedule import Schedule, schedule

ALLREDUCE = Collective.ALLREDUCE


@algorithm(ALLREDUCE, "swing")
def swing(p: int) -> Schedule:
    """Halving and doubling with partners 1, 1, 3, 5, 11, ... apart on a ring, both ways at once.

    One half of the vector swings to the right first, the other to the left. Ranks beyond a power
    of two fold into a neighbour.

    Cost: 2 log2 p alpha + (p-1)/p m (2 beta + gamma), p a power of two
    Source: Swing (arXiv 2401.09356), bandwidth-optimal, on a ring with two ports
    """
    groups = Groups.of(p)
    q = groups.q
    ways = [Butterfly(groups.leaders, swinging(q, direction)) for direction in (1, -1)]
    halves = [np.arange(q + 1), q + np.arange(q + 1)]
    both = list(zip(ways, halves, strict=True))
    halving = zip(*(way.halving(half) for way, half in both), strict=True)
    doubling = zip(*(way.doubling(half) for way, half in both), strict=True)
    inside = [together(rounds) for rounds in (*halving, *doubling)]
    rounds = [groups.fold_in(2 * q), *inside, groups.fold_out(2 * q)]
    return schedule(ALLREDUCE, p, 2 * q, rounds)


@algorithm(ALLREDUCE, "swing_latency")
def swing_latency(p: int) -> Schedule:
    """Partners 1, 1, 3, 5, 11, ... apart on a ring exchange the whole vector.

    Cost: log2 p (alpha + m (beta + gamma)), p a power of two
    Source: Swing (arXiv 2401.09356), latency-optimal
    """
    groups = Groups.of(p)
    return exchanged(groups, Butterfly(groups.leaders, swinging(groups.q)))
