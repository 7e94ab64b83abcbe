"""Finding where something that depends on a size changes, with few questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

ITEM = 4  # bytes; sizes are multiples of it
APART = 2**0.25  # of sizes looked at first: two nearer switches may be missed


def ladder(decide: Callable[[int], T], most: int) -> list[tuple[int, T]]:
    """The sizes up to `most`, multiples of 4, from which on `decide` says something else."""
    found: list[tuple[int, T]] = [(ITEM, decide(ITEM))]
    known = ITEM
    for size in _looked_at(most):
        while decide(size) != found[-1][1]:
            low, high = known, size
            while high - low > ITEM:
                middle = (low + high) // (2 * ITEM) * ITEM
                low, high = (low, middle) if decide(middle) != found[-1][1] else (middle, high)
            found.append((high, decide(high)))
            known = high
        known = size
    return found


def _looked_at(most: int) -> list[int]:
    sizes, size = {most // ITEM * ITEM}, float(ITEM)
    while size < most:
        sizes.add(int(size) // ITEM * ITEM)
        size *= APART
    return sorted(sizes)
