"""Recursive multiplying: in each round every rank exchanges with radix - 1 others.

The number of groups is a power of the radix times a smaller factor; extra ranks join through a
neighbour.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tuner.algorithms.power_of_two import FoldedRanks, rank_ordered_reduction
from tuner.algorithms.registry import algorithm
from tuner.base.arrays import IntArray
from tuner.core.collective import Collective
from tuner.core.schedule import Round, Schedule, make_schedule

ALLREDUCE, ALLGATHER = Collective.ALLREDUCE, Collective.ALLGATHER


@dataclass(frozen=True)
class RadixFactors:
    """The radices of the rounds, in order, and the groups, whose number is their product."""

    radices: tuple[int, ...]
    groups: FoldedRanks

    @classmethod
    def of(cls, p: int, radix: int) -> RadixFactors:
        """Return the radices and groups for p ranks; the last radix may be smaller than `radix`."""
        radices, q = [], 1
        while q * radix <= p:
            radices.append(radix)
            q *= radix
        rest = p // q
        return cls((*radices, *([rest] if rest > 1 else [])), FoldedRanks(p, q * rest))

    def exchanges(self) -> Iterator[tuple[int, IntArray, IntArray]]:
        """Yield (distance, senders, receivers) per round, partner after partner.

        For each partner every player sends one message and gets one, so that ports are not
        congested.
        """
        player, distance = np.arange(self.groups.n_groups), 1
        for radix in self.radices:
            digit = player // distance % radix
            partners = [
                player + ((digit + turn) % radix - digit) * distance for turn in range(1, radix)
            ]
            yield distance, np.tile(player, radix - 1), np.concatenate(partners)
            distance *= radix


@algorithm(ALLREDUCE, "recursive_multiplying")
def allreduce(p: int, radix: int = 4) -> Schedule:
    """Exchange the whole vector with radix - 1 other ranks at a time.

    Cost: log_k p (alpha + (k-1) m (beta + gamma)), p a power of the radix k
    Source: M. Ruefenacht, M. Bull, S. Booth, Parallel Computing 69, 2017; MPICH recexch
    """
    factors = RadixFactors.of(p, radix)
    groups, ranks, rounds = factors.groups, factors.groups.leaders, []
    for _, sender, receiver in factors.exchanges():
        src, dst = ranks[sender], ranks[receiver]
        rounds.append(Round.of(src, dst, 0, reduce=rank_ordered_reduction(src, dst)))
    return make_schedule(ALLREDUCE, p, 1, [groups.fold_in(1), *rounds, groups.fold_out(1)])


@algorithm(ALLGATHER, "recursive_multiplying")
def allgather(p: int, radix: int = 4) -> Schedule:
    """Exchange everything held so far with radix - 1 other ranks at a time.

    Cost: log_k p alpha + (p-1)/p m beta, p a power of the radix k, m the whole buffer
    Source: MPICH allgather, recexch with doubling distances
    """
    factors = RadixFactors.of(p, radix)
    groups, ranks, bounds = factors.groups, factors.groups.leaders, factors.groups.bounds
    rounds = [Round.of(groups.pair_leaders + 1, groups.pair_leaders, groups.pair_leaders + 1)]
    for length, sender, receiver in factors.exchanges():
        low = sender // length * length
        count = bounds[low + length] - bounds[low]
        rounds.append(Round.of(ranks[sender], ranks[receiver], bounds[low], count=count))
    return make_schedule(ALLGATHER, p, p, [*rounds, groups.fold_out(p)])
