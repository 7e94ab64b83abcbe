"""Binary blocks: a block of 2^i ranks for every set bit of p, the largest first; no rank idles."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, zip_longest

import numpy as np

from tuner.algorithms.butterfly import Butterfly, distance_doubling_partners
from tuner.algorithms.round_columns import merge_rounds
from tuner.base.arrays import IntArray
from tuner.core.schedule import DST_OP_ARRIVING, NO_REDUCTION, Round


@dataclass(frozen=True)
class BinaryBlocks:
    """A butterfly for each block, the largest block first."""

    blocks: tuple[Butterfly, ...]

    @classmethod
    def of(cls, p: int) -> BinaryBlocks:
        sizes = [1 << bit for bit in reversed(range(p.bit_length())) if p >> bit & 1]
        starts = np.cumsum([0, *sizes[:-1]])
        return cls(
            tuple(
                Butterfly(start + np.arange(size), distance_doubling_partners(size))
                for start, size in zip(starts.tolist(), sizes, strict=True)
            )
        )

    @property
    def max_block_size(self) -> int:
        """Number of ranks in the largest block, and of places in the vector."""
        return len(self.blocks[0].ranks)

    def halving(self, bounds: IntArray) -> list[Round]:
        """Return rounds that reduce-scatter the vector to the largest block.

        Each block halves; then the smallest adds its result to the next larger one, and so on.
        Place i of the result is chunks bounds[i] .. bounds[i + 1] - 1.
        """
        inside = [part.halving(self._block_bounds(part, bounds)) for part in self.blocks]
        upward = [
            self._exchange_blocks(small, large, bounds, folds=True)
            for large, small in reversed(list(pairwise(self.blocks)))
        ]
        return [*_merge_independent(inside), *upward]

    def doubling(self, bounds: IntArray) -> list[Round]:
        """Return the rounds of `halving` reversed: every rank gets what the largest block has."""
        inside = [part.doubling(self._block_bounds(part, bounds))[::-1] for part in self.blocks]
        downward = [
            self._exchange_blocks(small, large, bounds, folds=False)
            for large, small in pairwise(self.blocks)
        ]
        return [*downward, *_merge_independent(inside)[::-1]]

    def _block_bounds(self, part: Butterfly, bounds: IntArray) -> IntArray:
        return bounds[:: self.max_block_size // len(part.ranks)]

    def _exchange_blocks(
        self, small: Butterfly, large: Butterfly, bounds: IntArray, folds: bool
    ) -> Round:
        """Return a round between each rank of the larger block and the one that has its places.

        folds   whether the smaller block sends and the larger one reduces; else the larger sends
        """
        bounds = self._block_bounds(large, bounds)
        place = np.arange(len(large.ranks))
        upper = large.ranks[np.argsort(large.block_index)]
        lower = small.ranks[np.argsort(small.block_index)][
            place * len(small.ranks) // len(large.ranks)
        ]
        src, dst = (lower, upper) if folds else (upper, lower)
        reduce = DST_OP_ARRIVING if folds else NO_REDUCTION
        return Round.of(src, dst, bounds[:-1], count=np.diff(bounds), reduce=reduce)


def _merge_independent(parts: list[list[Round]]) -> list[Round]:
    """Return rounds that merge those of blocks that do not exchange anything."""
    return [merge_rounds([r for r in rounds if r is not None]) for rounds in zip_longest(*parts)]
