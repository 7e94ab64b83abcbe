"""The rounds of a schedule, sorted out for playing them one after another.

Rounds whose pairs are the very same arrays have the same pattern: lanes, and who competes with whom
for links, are found once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tuner.base.arrays import Int32Array, IntArray
from tuner.base.errors import TooLargeError
from tuner.core.schedule import Round
from tuner.sim.traffic_pattern import manners
from tuner.sim.unique import distinct

Bytes = NDArray[np.int8]

MOST_ROWS = 1 << 25  # of rounds with different pairs: numbering them takes 50 bytes each
IN_HOST, IN_DEVICE, BETWEEN = range(3)  # where buffers are


@dataclass(frozen=True, eq=False)
class Pattern:
    """Who sends to whom in a round; shapes (rows,).

    lane        number of the lane of each row, -1 for local rows
    memory      of its buffers: IN_HOST, IN_DEVICE, or BETWEEN for copies from one to the other
    plain       every rank sends at most one message and receives at most one; no local rows
    ring        rank r sends to rank r + 1 mod p, in row r
    """

    src: Int32Array
    dst: Int32Array
    lane: IntArray
    memory: Bytes
    plain: bool
    ring: bool


def patterns(
    rounds: Sequence[Round],
    node: IntArray,
    scratch: int,
    *,
    cuda: bool,
    staged: bool,
    meeting: bool,
) -> tuple[list[Pattern], IntArray, IntArray]:
    """The patterns, the pattern of each round, the lanes.

    A lane is (2 manner + in device) p^2 + source p + target.

    node        that each rank is on, shape (p,)
    cuda        the user's buffers are in device memory
    staged      chunks from `scratch` on are in host memory all the same
    meeting     rounds after the first have patterns of `tuner.sim.traffic_pattern`, not all ALONE

    Raises TooLargeError where rounds hardly ever share their pairs, and those are too many.
    """
    p = len(node)
    known: dict[tuple[int, int, bytes, bool], int] = {}
    pairs: list[tuple[Round, Bytes, bool]] = []
    which = np.empty(len(rounds), dtype=np.int64)
    for number, r in enumerate(rounds):
        memory = _memory(r, scratch) if staged and cuda else np.full(1, cuda, np.int8)
        meets = meeting and number > 0
        own = (id(r.src), id(r.dst), memory.tobytes(), meets)
        if own not in known:
            known[own] = len(pairs)
            pairs.append((r, np.broadcast_to(memory, len(r)).copy(), meets))
        which[number] = known[own]
    ends = np.cumsum([0, *(len(r) for r, *_ in pairs)])
    if ends[-1] > MOST_ROWS:
        raise TooLargeError(
            f"{ends[-1]} transfers between different pairs of ranks are to be routed, and at most"
            f" {MOST_ROWS} can be: simulate fewer ranks"
        )
    keys = np.concatenate([np.zeros(0, np.int64), *(_keys(*own, node) for own in pairs)])
    moves = keys >= 0
    lane = np.full(len(keys), -1)
    found, lane[moves] = distinct(keys[moves])
    seen = np.zeros((2, p), np.int64)
    made = [
        Pattern(
            r.src,
            r.dst,
            lane[ends[at] : ends[at + 1]],
            memory,
            bool((memory == memory[0]).all()) and _plain(r.src, r.dst, seen, at + 1),
            p > 1 and _ring(r.src, r.dst, p),
        )
        for at, (r, memory, _) in enumerate(pairs)
    ]
    return made, which, found


def _memory(r: Round, scratch: int) -> Bytes:
    """Of each row of a staged schedule on device buffers; one value for all if it is the same."""
    memory = np.empty(len(r), np.int8)
    alike = _memory_of_rows(r.src, r.dst, r.first, r.into, scratch, memory)
    return memory[:1] if alike else memory


@njit(cache=True)
def _memory_of_rows(
    src: Int32Array,
    dst: Int32Array,
    first: Int32Array,
    into: Int32Array,
    scratch: int,
    memory: Bytes,
) -> bool:
    """Fill `memory`; whether all rows have the same."""
    alike = True
    for i in range(len(src)):
        low, high = first[i] < scratch, into[i] < scratch
        memory[i] = IN_DEVICE if low or high else IN_HOST
        if src[i] == dst[i] and low != high:
            memory[i] = BETWEEN
        alike &= memory[i] == memory[0]
    return alike


def _keys(r: Round, memory: Bytes, meets: bool, node: IntArray) -> IntArray:
    """Lanes of a round's rows, -1 for local ones."""
    p = len(node)
    pair = r.src.astype(np.int64) * p + r.dst
    if meets:
        pair += 2 * p * p * manners(r.src, r.dst, node)
    return np.where(r.src == r.dst, -1, pair + np.where(memory == IN_HOST, 0, p * p))


@njit(cache=True)
def _plain(src: Int32Array, dst: Int32Array, seen: IntArray, stamp: int) -> bool:
    for i in range(len(src)):
        if src[i] == dst[i] or seen[0, src[i]] == stamp or seen[1, dst[i]] == stamp:
            return False
        seen[0, src[i]] = seen[1, dst[i]] = stamp
    return True


@njit(cache=True)
def _ring(src: Int32Array, dst: Int32Array, p: int) -> bool:
    found = len(src) == p
    for i in range(p if found else 0):
        found &= src[i] == i and dst[i] == (i + 1) % p
    return found
