"""Find the sizes at which a result changes, with few evaluations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tuner.core.collective import PROBE_ELEMENT_BYTES

T = TypeVar("T")

SIZE_RATIO = 2**0.25  # of sizes sampled first: two changes closer than this may be missed


def find_change_points(decide: Callable[[int], T], max_bytes: int) -> list[tuple[int, T]]:
    """Return the sizes up to `max_bytes` from which on `decide` returns another value.

    Sizes are multiples of 4 bytes. Each is returned with its value; the first is the smallest size.
    """
    found: list[tuple[int, T]] = [(PROBE_ELEMENT_BYTES, decide(PROBE_ELEMENT_BYTES))]
    known = PROBE_ELEMENT_BYTES
    for size in _sampled_sizes(max_bytes):
        while decide(size) != found[-1][1]:
            low, high = known, size
            while high - low > PROBE_ELEMENT_BYTES:
                middle = (low + high) // (2 * PROBE_ELEMENT_BYTES) * PROBE_ELEMENT_BYTES
                low, high = (low, middle) if decide(middle) != found[-1][1] else (middle, high)
            found.append((high, decide(high)))
            known = high
        known = size
    return found


def _sampled_sizes(max_bytes: int) -> list[int]:
    sizes, size = (
        {max_bytes // PROBE_ELEMENT_BYTES * PROBE_ELEMENT_BYTES},
        float(PROBE_ELEMENT_BYTES),
    )
    while size < max_bytes:
        sizes.add(int(size) // PROBE_ELEMENT_BYTES * PROBE_ELEMENT_BYTES)
        size *= SIZE_RATIO
    return sorted(sizes)
