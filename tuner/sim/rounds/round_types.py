"""Rounds of a schedule grouped by type.

Rounds whose columns of ranks are the very same arrays have the same type: connections, and which
rows compete for links, are found once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.base.arrays import Int32Array, IntArray
from tuner.base.compiled import compiled
from tuner.base.errors import LimitExceededError
from tuner.core.schedule import Round
from tuner.sim.traffic_pattern import classify_transfers
from tuner.sim.unique import unique_inverse

Bytes = NDArray[np.int8]

MAX_ROUTED_TRANSFERS = 1 << 26  # in rounds of different types: each takes 100 bytes
IN_HOST, IN_DEVICE, HOST_DEVICE_COPY = range(3)  # where buffers are


@dataclass(frozen=True, eq=False)
class RoundType:
    """The pairs of ranks of a round, with their connections; shapes (rows,).

    connection      number of each row's connection, -1 for local rows
    memory          where its buffers are: IN_HOST, IN_DEVICE, or HOST_DEVICE_COPY for copies
                    between both
    is_permutation  every rank sends at most one message and receives at most one; no local rows;
                    all rows have the same memory
    """

    src: Int32Array
    dst: Int32Array
    connection: Int32Array
    memory: Bytes
    is_permutation: bool


def find_round_types(
    rounds: Sequence[Round],
    node_of: IntArray,
    scratch: int,
    *,
    cuda: bool,
    staged: bool,
    with_patterns: bool,
) -> tuple[list[RoundType], IntArray, IntArray]:
    """Return the round types, the type of each round, and the keys of the connections.

    The key of a connection is (2 pattern + in device) p^2 + src p + dst.

    node_of         node of each rank, shape (p,)
    scratch         number of the first scratch chunk
    cuda            whether the user's buffers are in device memory
    staged          whether scratch chunks are in host memory all the same
    with_patterns   whether rounds after the first are classified by traffic pattern; otherwise all
                    messages are UNIDIRECTIONAL

    Raises LimitExceededError for more than MAX_ROUTED_TRANSFERS transfers in all round types.
    """
    p = len(node_of)
    memories = (
        _memory(r, scratch) if staged and cuda else np.full(1, cuda, np.int8) for r in rounds
    )
    pairs, which = _distinct_rounds(rounds, memories, with_patterns)
    ends = np.cumsum([0, *(len(r) for r, *_ in pairs)])
    _require_few_transfers(ends[-1])
    keys = np.concatenate(
        [np.zeros(0, np.int64), *(_connection_keys(*own, node_of) for own in pairs)]
    )
    moves = keys >= 0
    lane = np.full(len(keys), -1, np.int32)
    found, lane[moves] = unique_inverse(keys[moves])
    seen = np.zeros((2, p), np.int64)
    made = [
        RoundType(
            r.src,
            r.dst,
            lane[ends[at] : ends[at + 1]],
            memory,
            bool((memory == memory[0]).all()) and _is_permutation(r.src, r.dst, seen, at + 1),
        )
        for at, (r, memory, _) in enumerate(pairs)
    ]
    return made, which, found


def _require_few_transfers(count: int) -> None:
    if count > MAX_ROUTED_TRANSFERS:
        raise LimitExceededError(
            f"{count} transfers between different pairs of ranks are to be routed, and at most"
            f" {MAX_ROUTED_TRANSFERS} can be: simulate fewer ranks"
        )


def _distinct_rounds(
    rounds: Sequence[Round], memories: Iterable[Bytes], with_patterns: bool
) -> tuple[list[tuple[Round, Bytes, bool]], IntArray]:
    """Return the distinct rounds with their memory, and for each round which of them it is."""
    known: dict[tuple[int, int, bytes, bool], int] = {}
    distinct: list[tuple[Round, Bytes, bool]] = []
    which = np.empty(len(rounds), dtype=np.int64)
    for number, (r, memory) in enumerate(zip(rounds, memories, strict=True)):
        has_pattern = with_patterns and number > 0
        own = (id(r.src), id(r.dst), memory.tobytes(), has_pattern)
        if own not in known:
            known[own] = len(distinct)
            distinct.append((r, np.broadcast_to(memory, len(r)).copy(), has_pattern))
        which[number] = known[own]
    return distinct, which


def _memory(r: Round, scratch: int) -> Bytes:
    """Return the memory of each row of a staged schedule on device buffers.

    A single value stands for all rows if they have the same.
    """
    memory = np.empty(len(r), np.int8)
    alike = _memory_of_rows(r.src, r.dst, r.src_chunk, r.dst_chunk, scratch, memory)
    return memory[:1] if alike else memory


@compiled()
def _memory_of_rows(
    src: Int32Array,
    dst: Int32Array,
    src_chunk: Int32Array,
    dst_chunk: Int32Array,
    scratch: int,
    memory: Bytes,
) -> bool:
    """Fill in `memory`; return whether all rows have the same."""
    alike = True
    for i in range(len(src)):
        low, high = src_chunk[i] < scratch, dst_chunk[i] < scratch
        memory[i] = IN_DEVICE if low or high else IN_HOST
        if src[i] == dst[i] and low != high:
            memory[i] = HOST_DEVICE_COPY
        alike &= memory[i] == memory[0]
    return alike


def _connection_keys(r: Round, memory: Bytes, with_patterns: bool, node_of: IntArray) -> IntArray:
    """Return the connection keys of a round's rows, -1 for local ones."""
    p = len(node_of)
    pair = r.src.astype(np.int64) * p + r.dst
    if with_patterns:
        pair += 2 * p * p * classify_transfers(r.src, r.dst, node_of)
    return np.where(r.src == r.dst, -1, pair + np.where(memory == IN_HOST, 0, p * p))


@compiled()
def _is_permutation(src: Int32Array, dst: Int32Array, seen: IntArray, stamp: int) -> bool:
    for i in range(len(src)):
        if src[i] == dst[i] or seen[0, src[i]] == stamp or seen[1, dst[i]] == stamp:
            return False
        seen[0, src[i]] = seen[1, dst[i]] = stamp
    return True
