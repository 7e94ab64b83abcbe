"""Reduce-scatter: rank r gets chunk r of the combined vector (equal counts)."""

from collections.abc import Iterator

import numpy as np

from tuner.algorithms import rings
from tuner.algorithms.binary_blocks import BinaryBlocks
from tuner.algorithms.butterfly import Butterfly, distance_doubling_partners
from tuner.algorithms.power_of_two import FoldedRanks
from tuner.algorithms.registry import algorithm
from tuner.algorithms.round_columns import RotatedColumn, column
from tuner.core.collective import Collective
from tuner.core.schedule import Round, Schedule, make_schedule

REDUCE_SCATTER = Collective.REDUCE_SCATTER


@algorithm(REDUCE_SCATTER, "ring")
def ring(p: int) -> Schedule:
    """Pass every chunk once round a ring and reduce it at each rank.

    Cost: (p-1) alpha + (p-1)/p m (beta + gamma), m the whole vector
    Source: Open MPI coll_base_reduce_scatter.c, ring
    """
    return Schedule(REDUCE_SCATTER, p, p, lambda: rings.reduce_scatter_rounds(p, 1))


@algorithm(REDUCE_SCATTER, "recursive_halving")
def recursive_halving(p: int) -> Schedule:
    """Exchange half of what is left with partners ..., 4, 2, 1 apart; extra ranks use a neighbour.

    Cost: log2 p alpha + (p-1)/p m (beta + gamma), p a power of two, m the whole vector
    Source: Open MPI coll_base_reduce_scatter.c, recursivehalving; tuner.algorithms.power_of_two
    """
    groups = FoldedRanks.of(p)
    return butterfly_reduce_scatter(
        groups, Butterfly(groups.leaders, distance_doubling_partners(groups.n_groups)[::-1])
    )


def butterfly_reduce_scatter(groups: FoldedRanks, butterfly: Butterfly) -> Schedule:
    """Return a reduce-scatter over a butterfly of the leaders.

    Leaders reduce their partners' vectors, halve, and send every chunk to its owner.
    """
    holder, chunk = butterfly.misplaced_chunks(groups.bounds)
    rounds = [groups.fold_in(groups.p), *butterfly.halving(groups.bounds)]
    home = Round.of(holder, chunk, chunk)
    return make_schedule(REDUCE_SCATTER, groups.p, groups.p, [*rounds, home])


@algorithm(REDUCE_SCATTER, "pairwise")
def pairwise(p: int) -> Schedule:
    """Send, in round t, to the rank t above its chunk of the vector.

    Cost: (p-1) alpha + (p-1)/p m (beta + gamma), m the whole vector
    Source: MPICH reduce_scatter_intra_pairwise.c
    """
    return Schedule(REDUCE_SCATTER, p, p, lambda: _pairwise_rounds(p))


def _pairwise_rounds(p: int) -> Iterator[Round]:
    src, _, _, fold = rings.ring(p)
    other, one = RotatedColumn(src), column(1, p)
    for t in range(1, p):
        dst = other.at(t)
        yield Round(src, dst, dst, dst, one, fold)


@algorithm(REDUCE_SCATTER, "binary_blocks")
def binary_blocks(p: int) -> Schedule:
    """Halve in blocks of 2^i ranks; then each block adds its result to the next larger one.

    The largest block sends every chunk to its owner.

    Cost: at most (log2 Q + 1) alpha + m (beta + gamma) + 2/Q m beta, and for any two successive
    runs of b < B ranks alpha + m (beta/b + gamma/B), Q ranks in the largest
    Source: R. Rabenseifner, ICCS 2004, binary blocks; docs/reference/cost-formulas.md
    """
    runs = BinaryBlocks.of(p)
    q = runs.max_block_size
    bounds = np.arange(q + 1) * p // q
    holder, chunk = runs.blocks[0].misplaced_chunks(bounds)
    home = Round.of(holder, chunk, chunk)
    return make_schedule(REDUCE_SCATTER, p, p, [*runs.halving(bounds), home])
