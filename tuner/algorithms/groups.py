"""A power-of-two group inside any p: the p - 2^F extra ranks pair up with a neighbour.

Group i is the pair (2i, 2i + 1) for the first p - 2^F groups, led by the even rank, and the single
rank i + p - 2^F after them, so that every group and every run of groups is a run of ranks.
Before the power-of-two exchange the odd rank of a pair hands everything to its leader; afterwards
it gets its result back (MPICH allreduce_intra_recursive_doubling.c does the same).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.schedule import ARRIVING_OP_DST, DST_OP_ARRIVING, Round

Ranks = NDArray[np.int64]


@dataclass(frozen=True)
class Groups:
    """The 2^F groups of a communicator of p ranks."""

    p: int

    @property
    def bits(self) -> int:
        """F = floor(log2 p)."""
        return self.p.bit_length() - 1

    @property
    def index(self) -> Ranks:
        """0, 1, ..., 2^F - 1."""
        return np.arange(1 << self.bits)

    def start(self, group: Ranks) -> Ranks:
        """First rank of a group: its leader. `start(2^F)` is p."""
        return group + np.minimum(group, self.p - (1 << self.bits))

    @property
    def paired(self) -> Ranks:
        """The leaders of the pairs; their partners are the next ranks."""
        return 2 * np.arange(self.p - (1 << self.bits))

    def fold_in(self, n_chunks: int) -> Round:
        """Partners give their whole vector to their leader, who reduces it."""
        return Round.of(self.paired + 1, self.paired, 0, count=n_chunks, reduce=DST_OP_ARRIVING)

    def fold_out(self, n_chunks: int) -> Round:
        """Leaders give the whole result to their partner."""
        return Round.of(self.paired, self.paired + 1, 0, count=n_chunks)

    def exchanges(self) -> Iterator[tuple[int, Ranks]]:
        """(distance, partner group of each group) for distances 1, 2, 4, ..., 2^(F-1)."""
        for bit in range(self.bits):
            yield 1 << bit, self.index ^ (1 << bit)


def in_rank_order(src: Ranks, dst: Ranks) -> NDArray[np.int64]:
    """The reduction that keeps the lower rank's operand on the left."""
    return np.where(src < dst, ARRIVING_OP_DST, DST_OP_ARRIVING)
