"""Distinct values of an integer array, found by hashing instead of sorting."""

from __future__ import annotations

import numpy as np

from tuner.base.arrays import IntArray
from tuner.sim.jit import njit_no_alloc

HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: Knuth, TAOCP 3, section 6.4


def unique_inverse(keys: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct keys in order of first occurrence, and each key's index among them."""
    bits = max(4, int(2 * len(keys) + 1).bit_length())
    found, number = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    count = _number_keys(keys, np.uint64(64 - bits), np.full(1 << bits, -1), found, number)
    return found[:count].copy(), number


@njit_no_alloc()
def _number_keys(
    keys: IntArray, shift: np.uint64, table: IntArray, found: IntArray, number: IntArray
) -> int:
    """Fill in the distinct keys and each key's index; return how many distinct keys there are."""
    count, mask = 0, len(table) - 1
    for i in range(len(keys)):
        at = np.int64((np.uint64(keys[i]) * HASH_MULTIPLIER) >> shift)
        while table[at] >= 0 and found[table[at]] != keys[i]:
            at = (at + 1) & mask
        if table[at] < 0:
            table[at] = count
            found[count] = keys[i]
            count += 1
        number[i] = table[at]
    return count
