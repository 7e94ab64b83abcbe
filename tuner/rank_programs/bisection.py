"""Find the sizes at which a result changes, with few evaluations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tuner.core.collective import PROBE_ELEMENT_BYTES

T = TypeVar("T")

SIZE_RATIO = 2**0.25  # of sizes sampled first: two changes closer than this may be missed


def find_change_points(
    decide: Callable[[int], T], largest: int, step: int = PROBE_ELEMENT_BYTES
) -> list[tuple[int, T]]:
    """Return the sizes up to `largest` from which on `decide` returns another value.

    Sizes are multiples of `step`. Each is returned with its value; the first is the smallest size.
    """
    found: list[tuple[int, T]] = [(step, decide(step))]
    known = step
    for size in _sampled_sizes(largest, step):
        while decide(size) != found[-1][1]:
            low, high = known, size
            while high - low > step:
                middle = (low + high) // (2 * step) * step
                low, high = (low, middle) if decide(middle) != found[-1][1] else (middle, high)
            found.append((high, decide(high)))
            known = high
        known = size
    return found


def _sampled_sizes(largest: int, step: int) -> list[int]:
    sizes, size = {largest // step * step}, float(step)
    while size < largest:
        sizes.add(int(size) // step * step)
        size *= SIZE_RATIO
    return sorted(sizes)
