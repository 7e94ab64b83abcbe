"""Gather: the root gets every rank's chunk. Each algorithm is a reversed scatter."""

from tuner.algorithms import scatter
from tuner.algorithms.registry import algorithm
from tuner.core.collective import Collective
from tuner.core.schedule import Schedule, reverse

GATHER = Collective.GATHER


@algorithm(GATHER, "linear")
def linear(p: int, root: int) -> Schedule:
    """Send every rank's chunk to the root, all at once.

    Cost: alpha + (p-1)/p m beta, m the whole buffer
    Source: Open MPI coll_base_gather.c, basic_linear
    """
    return reverse(scatter.linear(p, root), GATHER)


@algorithm(GATHER, "binomial")
def binomial(p: int, root: int) -> Schedule:
    """Pass runs of chunks, which double in length, up a binomial tree.

    Cost: log2 p alpha + (p-1)/p m beta, m the whole buffer
    Source: MPICH gather_intra_binomial.c
    """
    return reverse(scatter.binomial(p, root), GATHER)
