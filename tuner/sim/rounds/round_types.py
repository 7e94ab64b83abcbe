"""Rounds of a schedule grouped by type.

Rounds whose columns of ranks are the very same arrays have the same type: connections, and which
rows compete for links, are found once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from tuner.base.arrays import Int32Array, IntArray
from tuner.base.compiled import compiled
from tuner.base.errors import LimitExceededError
from tuner.core.schedule import Round, Schedule
from tuner.sim.traffic_pattern import classify_transfers
from tuner.sim.unique import unique_inverse

Bytes = NDArray[np.int8]

MAX_ROUTED_TRANSFERS = 1 << 26  # in rounds of different types: each takes 120 bytes
MAX_CALL_TRANSFERS = 1 << 31  # of one call: a ring of 27,648 ranks takes some ten seconds
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


class RoundTypes(NamedTuple):
    """The types of the rounds of a schedule.

    types           the distinct types
    type_of_round   number of each round's type, shape (rounds,)
    row_counts      number of each round's rows, shape (rounds,)
    keys            keys of the connections: (2 pattern + in device) p^2 + src p + dst
    """

    types: list[RoundType]
    type_of_round: IntArray
    row_counts: IntArray
    keys: IntArray


_last_found = WeakKeyDictionary[Schedule, tuple[object, RoundTypes]]()


def known_round_types(
    schedule: Schedule, node_of: IntArray, *, cuda: bool, with_patterns: bool
) -> RoundTypes:
    """Return `find_round_types` of a schedule; the last ones are kept as long as the schedule is.

    So a schedule that is simulated on machine after machine has its types found once.
    """
    asked = node_of.tobytes(), cuda, with_patterns
    known = _last_found.get(schedule)
    if known is not None and known[0] == asked:
        return known[1]
    found = find_round_types(
        schedule.rounds(),
        node_of,
        schedule.n_chunks,
        cuda=cuda,
        staged=schedule.staged,
        with_patterns=with_patterns,
    )
    _last_found[schedule] = asked, found
    return found


def find_round_types(
    rounds: Iterable[Round],
    node_of: IntArray,
    scratch: int,
    *,
    cuda: bool,
    staged: bool,
    with_patterns: bool,
) -> RoundTypes:
    """Return the types of the rounds, of which only one of each type is kept.

    node_of         node of each rank, shape (p,)
    scratch         number of the first scratch chunk
    cuda            whether the user's buffers are in device memory
    staged          whether scratch chunks are in host memory all the same
    with_patterns   whether rounds after the first are classified by traffic pattern; otherwise all
                    messages are UNIDIRECTIONAL

    Raises LimitExceededError for more than MAX_CALL_TRANSFERS transfers, and for more than
    MAX_ROUTED_TRANSFERS in all round types.
    """
    p = len(node_of)
    everywhere = np.full(1, cuda, np.int8)
    pairs, which, row_counts = _distinct_rounds(
        rounds, lambda r: _memory(r, scratch) if staged and cuda else everywhere, with_patterns
    )
    ends = np.cumsum([0, *(len(r) for r, *_ in pairs)])
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
    return RoundTypes(made, which, row_counts, found)


def _require_few_transfers(count: int) -> None:
    if count > MAX_ROUTED_TRANSFERS:
        raise LimitExceededError(
            f"at least {count} transfers between different pairs of ranks are to be routed, and at"
            f" most {MAX_ROUTED_TRANSFERS} can be: simulate fewer ranks"
        )


def _require_few_rows(count: int) -> None:
    if count > MAX_CALL_TRANSFERS:
        raise LimitExceededError(
            f"a call of more than {MAX_CALL_TRANSFERS} transfers takes too long to simulate: take"
            " fewer ranks, longer segments, or an algorithm of fewer rounds"
        )


def _distinct_rounds(
    rounds: Iterable[Round], memory_of: Callable[[Round], Bytes], with_patterns: bool
) -> tuple[list[tuple[Round, Bytes, bool]], IntArray, IntArray]:
    """Return the distinct rounds with their memory, and for each round which it is and its rows."""
    known: dict[tuple[int, int, bytes, bool], int] = {}
    distinct: list[tuple[Round, Bytes, bool]] = []
    which, row_counts, rows, routed = list[int](), list[int](), 0, 0
    for number, r in enumerate(rounds):
        rows += len(r)
        _require_few_rows(rows)
        has_pattern, memory = with_patterns and number > 0, memory_of(r)
        own = (id(r.src), id(r.dst), memory.tobytes(), has_pattern)
        if own not in known:
            routed += len(r)
            _require_few_transfers(routed)
            known[own] = len(distinct)
            distinct.append((r, np.broadcast_to(memory, len(r)).copy(), has_pattern))
        which.append(known[own])
        row_counts.append(len(r))
    return distinct, np.array(which, np.int64), np.array(row_counts, np.int64)


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
