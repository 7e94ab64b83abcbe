"""Scatter: rank r gets chunk r of the root's buffer."""

import numpy as np

from tuner.algorithms.registry import algorithm
from tuner.core.collective import Collective
from tuner.core.schedule import Round, Schedule, make_schedule, rotate, rotate_chunks

SCATTER = Collective.SCATTER


def binomial_scatter(p: int) -> Schedule:
    """Return the binomial scatter from rank 0.

    A rank keeps the lower half of its chunks and sends the upper one; every receiver does the same.
    Sends are blocking: a rank serves its next child when the previous one has everything.
    """
    rounds = []
    for s in reversed(range((p - 1).bit_length())):
        holder = np.arange(0, p, 2 << s)
        receiver = holder + (1 << s)
        holder, receiver = holder[receiver < p], receiver[receiver < p]
        rounds.append(Round.of(holder, receiver, receiver, count=np.minimum(1 << s, p - receiver)))
    return make_schedule(SCATTER, p, p, rounds)


@algorithm(SCATTER, "linear")
def linear(p: int, root: int) -> Schedule:
    """Send every rank its chunk from the root, all at once.

    Cost: alpha + (p-1)/p m beta, m the whole buffer
    Source: Open MPI coll_base_scatter.c, basic_linear
    """
    others = np.delete(np.arange(p), root)
    return make_schedule(SCATTER, p, p, [Round.of(root, others, others)], root=root)


@algorithm(SCATTER, "binomial")
def binomial(p: int, root: int) -> Schedule:
    """Pass ever smaller halves of the buffer down a binomial tree.

    Cost: log2 p alpha + (p-1)/p m beta, m the whole buffer
    Source: MPICH scatter_intra_binomial.c
    """
    return rotate_chunks(rotate(binomial_scatter(p), root), root)
