"""Butterflies: pairwise exchange in log2 q rounds among q = 2^k players (halving and doubling).

Algorithms differ in which players are partners in each round. This determines which run of the
vector each player keeps, so that every message is one run of consecutive chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tuner.algorithms.power_of_two import rank_ordered_reduction
from tuner.algorithms.round_columns import column
from tuner.base.arrays import Int32Array, IntArray
from tuner.core.schedule import NO_REDUCTION, Round


@dataclass(frozen=True, eq=False)
class Butterfly:
    """A pairwise exchange: player i is rank `ranks[i]`, its partner in round s is `partners[s][i]`.

    The players that two partners exchange with, directly or indirectly, in later rounds must be
    disjoint, so that no player receives anything twice. Rounds share the columns that they have in
    common, among them those of the ranks in halving and doubling.
    """

    ranks: IntArray
    partners: Sequence[IntArray]

    @cached_property
    def block_index(self) -> IntArray:
        """The place in the vector, 0..q-1, that each player keeps after halving, shape (q,).

        Of two partners, the one that will exchange with the lowest player keeps the lower half. A
        player and all that it will still exchange with keep one run of places.
        """
        lowest = np.arange(len(self.ranks))
        place = np.zeros_like(lowest)
        for distance, partner in enumerate(reversed(self.partners)):
            place += (lowest > lowest[partner]) * (1 << distance)
            lowest = np.minimum(lowest, lowest[partner])
        return place

    @cached_property
    def _senders(self) -> Int32Array:
        return column(self.ranks)

    @cached_property
    def _receivers(self) -> list[Int32Array]:
        return [column(self.ranks[partner]) for partner in self.partners]

    @cached_property
    def _no_reduction(self) -> Int32Array:
        return column(NO_REDUCTION, len(self.ranks))

    def _reduction(self, s: int) -> Int32Array:
        """Return how the receivers of round s reduce."""
        return column(rank_ordered_reduction(self._senders, self._receivers[s]))

    def halving(self, bounds: IntArray) -> list[Round]:
        """Return rounds in which partners reduce the half of what is left that they keep.

        bounds  place i is chunks bounds[i] .. bounds[i + 1] - 1
        """
        return [
            self._round(s, bounds, self.block_index[partner], reduces=True)
            for s, partner in enumerate(self.partners)
        ]

    def doubling(self, bounds: IntArray) -> list[Round]:
        """Return rounds, in opposite order, in which partners exchange all they have.

        At first that is their own place. `bounds` are as in `halving`.
        """
        return [
            self._round(s, bounds, self.block_index, reduces=False)
            for s in range(len(self.partners))
        ][::-1]

    def _round(self, s: int, bounds: IntArray, place: IntArray, reduces: bool) -> Round:
        """Return round s, in which every player sends the run of places that contains `place`.

        The run has as many places as a player keeps after round s of halving.
        """
        length = len(self.ranks) >> (s + 1)
        low = place // length * length
        first, count = column(bounds[low]), column(bounds[low + length] - bounds[low])
        fold = self._reduction(s) if reduces else self._no_reduction
        return Round(self._senders, self._receivers[s], first, first, count, fold)

    def exchange(self, n_chunks: int) -> list[Round]:
        """Return rounds in which partners combine their whole vectors."""
        first, count = (column(value, len(self.ranks)) for value in (0, n_chunks))
        return [
            Round(self._senders, to, first, first, count, self._reduction(s))
            for s, to in enumerate(self._receivers)
        ]

    def scatter(self, bounds: IntArray) -> list[Round]:
        """Return rounds that scatter from player 0.

        Every player that has data sends its partner the run that the partner keeps.
        """
        rounds, holders = [], np.zeros(1, dtype=np.int64)
        for s, partner in enumerate(self.partners):
            whole = self._round(s, bounds, self.block_index[partner], reduces=False)
            rounds.append(whole.select(holders))
            holders = np.concatenate([holders, partner[holders]])
        return rounds

    def misplaced_chunks(self, bounds: IntArray) -> tuple[IntArray, IntArray]:
        """Return (rank, chunk) for each chunk that another rank than its owner has after halving.

        Chunk c belongs to rank c.
        """
        chunk = np.arange(bounds[-1])
        holder = self.ranks[np.argsort(self.block_index)]
        holder = np.repeat(holder, np.diff(bounds))
        away = holder != chunk
        return holder[away], chunk[away]


def distance_doubling_partners(q: int) -> list[IntArray]:
    """Return partners 1, 2, 4, ..., q/2 apart."""
    return [np.arange(q) ^ (1 << bit) for bit in range(q.bit_length() - 1)]


def swing_partners(q: int, direction: int = 1) -> list[IntArray]:
    """Return partners +-1, -+1, +-3, -+5, ... apart on a ring.

    Even players go in one direction, odd players in the other: rho(s) = (1 - (-2)^(s+1)) / 3
    (Swing, arXiv 2401.09356; the butterfly of Bine trees, arXiv 2508.17311). Direction -1 is the
    mirror image.
    """
    player = np.arange(q)
    sign = direction * np.where(player % 2 == 0, 1, -1)
    return [(player + sign * ((1 - (-2) ** (s + 1)) // 3)) % q for s in range(q.bit_length() - 1)]
