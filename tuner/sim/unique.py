"""Distinct values of an integer array, found by hashing instead of sorting."""

from __future__ import annotations

import numpy as np

from tuner.base.arrays import Int32Array, IntArray
from tuner.sim.jit import njit_no_alloc

HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: Knuth, TAOCP 3, section 6.4
MIN_TABLE_BITS = 10  # of the first table
MORE_BITS = 4  # of the next table, when one is half full


def unique_inverse(keys: IntArray) -> tuple[IntArray, Int32Array]:
    """Return the distinct keys in order of first occurrence, and each key's index among them.

    The memory is that of the indices and of the distinct keys, however many keys are alike.
    """
    number, found = np.empty(len(keys), np.int32), np.empty(0, np.int64)
    most = max(MIN_TABLE_BITS, int(2 * len(keys) + 1).bit_length())
    bits, done, count = MIN_TABLE_BITS, 0, 0
    while True:
        kept, found = found[:count], np.empty(1 << (bits - 1), np.int64)
        found[:count] = kept
        table = np.full(1 << bits, -1, np.int32)
        done, count = _number_keys(keys, done, count, np.uint64(64 - bits), table, found, number)
        if done == len(keys):
            return found[:count].copy(), number
        bits = min(bits + MORE_BITS, most)


@njit_no_alloc()
def _number_keys(
    keys: IntArray,
    begin: int,
    count: int,
    shift: np.uint64,
    table: Int32Array,
    found: IntArray,
    number: Int32Array,
) -> tuple[int, int]:
    """Return the first key that has no number yet, and how many distinct keys there are.

    Keys are numbered from `begin` on until the table is half full.

    found       the distinct keys, of which there are `count` before the call
    """
    for i in range(count):
        table[_find_place(found[i], shift, table, found)] = i
    for i in range(begin, len(keys)):
        at = _find_place(keys[i], shift, table, found)
        if table[at] < 0:
            if count == len(found):
                return i, count
            table[at] = count
            found[count] = keys[i]
            count += 1
        number[i] = table[at]
    return len(keys), count


@njit_no_alloc(inline="always")
def _find_place(key: int, shift: np.uint64, table: Int32Array, found: IntArray) -> int:
    """Return the place of a key in the table: its own, or the free one where it belongs."""
    mask = len(table) - 1
    at = np.int64((np.uint64(key) * HASH_MULTIPLIER) >> shift)
    while table[at] >= 0 and found[table[at]] != key:
        at = (at + 1) & mask
    return int(at)
