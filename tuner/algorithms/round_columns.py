"""Columns of rounds that many rounds share: made once, read-only and never copied.

An engine that gets the same array object again knows that its contents have not changed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from tuner.base.arrays import Int32Array
from tuner.core.schedule import Round


def column(values: ArrayLike, length: int = -1) -> Int32Array:
    """Return a column of a round.

    values  the rows, or a single value if `length` is given
    length  number of rows that a single value is repeated for
    """
    made = np.array(values, dtype=np.int32) if length < 0 else np.full(length, values, np.int32)
    made.setflags(write=False)
    return made


class RotatedColumn:
    """A column and its rotations: `at(t)[i]` is `values[(i + t) mod n]`, as a view."""

    def __init__(self, values: ArrayLike) -> None:
        once = column(values)
        self._length = len(once)
        self._twice = column(np.concatenate([once, once]))

    def at(self, turn: int) -> Int32Array:
        """Return the column rotated by `turn` rows, shape (n,)."""
        start = turn % self._length
        return self._twice[start : start + self._length]


def merge_rounds(parts: Sequence[Round]) -> Round:
    """Return one round with the rows of all parts."""
    return Round.of(*(np.concatenate(c) for c in zip(*(r.columns for r in parts), strict=True)))
