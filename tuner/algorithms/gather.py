"""Gather: rank r's chunk reaches the root. Each algorithm is a scatter turned round."""

from tuner.algorithms import scatter
from tuner.algorithms.registry import algorithm
from tuner.core.collective import Collective
from tuner.core.schedule import Schedule, reverse

GATHER = Collective.GATHER


@algorithm(GATHER, "linear")
def linear(p: int, root: int) -> Schedule:
    """Every rank sends its chunk to the root, all at once.

    Cost: alpha + (p-1)/p m beta, m the whole buffer
    Source: Open MPI coll_base_gather.c, basic_linear
    """
    return reverse(scatter.linear(p, root), GATHER)


@algorithm(GATHER, "binomial")
def binomial(p: int, root: int) -> Schedule:
    """Runs of chunks double in length on their way up a binomial tree.

    Cost: log2 p alpha + (p-1)/p m beta, m the whole buffer
    Source: MPICH gather_intra_binomial.c
    """
    return reverse(scatter.binomial(p, root), GATHER)
