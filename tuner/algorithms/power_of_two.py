"""Folding of p ranks into a smaller number of groups, such as a power of two.

Of q groups, group i is the pair (2i, 2i + 1) for the first p - q, led by the even rank, and the
single rank i + p - q after them, so that every group and every run of groups is a run of ranks.
Before the exchange among the groups the odd rank of a pair gives its vector to its leader;
afterwards it gets the result back (as in MPICH's allreduce_intra_recursive_doubling.c).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.base.arrays import AnyArray, IntArray
from tuner.core.schedule import ARRIVING_OP_DST, DST_OP_ARRIVING, Round


@dataclass(frozen=True)
class FoldedRanks:
    """A division of p ranks into `n_groups` groups of one or two, p/2 <= n_groups <= p."""

    p: int
    n_groups: int

    @classmethod
    def of(cls, p: int) -> FoldedRanks:
        """Return as many groups as the largest power of two that is at most p."""
        return cls(p, 1 << (p.bit_length() - 1))

    @property
    def bounds(self) -> IntArray:
        """First rank of every group, which is its leader, and p; shape (q + 1,)."""
        group = np.arange(self.n_groups + 1)
        return group + np.minimum(group, self.p - self.n_groups)

    @property
    def leaders(self) -> IntArray:
        """First rank of every group, shape (q,)."""
        return self.bounds[:-1]

    @property
    def pair_leaders(self) -> IntArray:
        """Leaders of the pairs; their partners are the next ranks."""
        return 2 * np.arange(self.p - self.n_groups)

    def fold_in(self, n_chunks: int) -> Round:
        """Return a round in which partners give their vector to their leader, which reduces it."""
        return Round.of(
            self.pair_leaders + 1, self.pair_leaders, 0, count=n_chunks, reduce=DST_OP_ARRIVING
        )

    def fold_out(self, n_chunks: int) -> Round:
        """Return a round in which leaders give the whole result to their partners."""
        return Round.of(self.pair_leaders, self.pair_leaders + 1, 0, count=n_chunks)


def rank_ordered_reduction(src: AnyArray, dst: AnyArray) -> IntArray:
    """Return the reduction of each message that keeps the lower rank's operand on the left."""
    return np.where(src < dst, ARRIVING_OP_DST, DST_OP_ARRIVING)
