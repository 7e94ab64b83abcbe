"""Columns of rounds, above all those that many rounds share: made once, read-only, never copied.

An engine that meets the very same array again knows that nothing in it has changed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from tuner.base.arrays import Int32Array
from tuner.core.schedule import Round


def column(values: ArrayLike, length: int = -1) -> Int32Array:
    """A column of a round; a single value is repeated `encoded_length` times."""
    made = np.array(values, dtype=np.int32) if length < 0 else np.full(length, values, np.int32)
    made.setflags(write=False)
    return made


class RotatedColumn:
    """Columns that turn: `at(t)[i]` is `values[(i + t) mod n]`, a view."""

    def __init__(self, values: ArrayLike) -> None:
        once = column(values)
        self._length = len(once)
        self._twice = column(np.concatenate([once, once]))

    def at(self, turn: int) -> Int32Array:
        """Shape (n,)."""
        start = turn % self._length
        return self._twice[start : start + self._length]


def merge_rounds(parts: Sequence[Round]) -> Round:
    """One round with the rows of all parts."""
    return Round.of(*(np.concatenate(c) for c in zip(*(r.columns for r in parts), strict=True)))
