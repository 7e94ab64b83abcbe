"""Rounds of any kind, and what all kinds of rounds have in common: ports, bytes, reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.base.arrays import BoolArray, FloatArray, Int32Array
from tuner.sim.cost_arrays import completion_delay, find_segment, transfer_mode
from tuner.sim.jit import njit_no_alloc
from tuner.sim.rounds.contended_rounds import share_links

Bytes = NDArray[np.int8]


@njit_no_alloc()
def count_longer_chunks(
    state: Any, sizes: Any, z: int, src_chunk: Int32Array, count: Int32Array
) -> None:
    """Set how many chunks of each row are longer ones (`longer_count`, `longer_kind`).

    src_chunk   below twice the number of chunks: divisions would keep the loop from being
                vectorized
    """
    n, longer = sizes.n_chunks, sizes.longer_chunks[z]
    for i in range(len(src_chunk)):
        begin = src_chunk[i] - n if src_chunk[i] >= n else src_chunk[i]
        state.longer_count[i] = max(0, min(count[i], longer - begin))
        state.longer_kind[i] = (state.longer_count[i] > 0) + 2 * (
            0 < state.longer_count[i] < count[i]
        )


@njit_no_alloc()
def row_bytes(state: Any, sizes: Any, z: int, i: int, count: Int32Array) -> float:
    """Return the bytes of a row, after `count_longer_chunks`."""
    longer = state.longer_count[i] * sizes.more_elements[z]
    return float((count[i] * sizes.chunk_elements[z] + longer) * sizes.itemsize)


@njit_no_alloc()
def reduction_seconds(reduction_costs: FloatArray, memory: int, size: float) -> float:
    """Return the seconds to reduce in host (0) or device (1) memory, the cheaper way."""
    least = np.inf
    for i in range(reduction_costs.shape[1]):
        least = min(least, reduction_costs[memory, i, 0] + reduction_costs[memory, i, 1] * size)
    return least


@njit_no_alloc()
def run_round(
    state: Any,
    machine: Any,
    sizes: Any,
    skip: BoolArray,
    groups: Any,
    src: Int32Array,
    dst: Int32Array,
    connection: Int32Array,
    memory: Bytes,
    src_chunk: Int32Array,
    count: Int32Array,
    reduce: Int32Array,
    is_permutation: bool,
) -> None:
    """Simulate any round, for the sizes that are not to be skipped."""
    for z in range(len(sizes.chunk_elements)):
        if state.is_valid[z] and not skip[z]:
            count_longer_chunks(state, sizes, z, src_chunk, count)
            for i in range(len(count)):
                state.nbytes[i] = row_bytes(state, sizes, z, i, count)
            _lookup_costs(state, machine, z, src, dst, connection)
            if len(groups.rows) == 0:
                _queue_rows(state, machine, connection, is_permutation)
                alive = _run_queued(state, machine, z, connection)
            else:
                alive = is_permutation and run_contended(state, machine, z, groups, connection)
            state.is_valid[z] = alive
            if alive:
                _advance_ranks(state, machine, z, src, dst, memory, reduce)


@njit_no_alloc()
def _lookup_costs(
    state: Any, machine: Any, z: int, src: Int32Array, dst: Int32Array, connection: Int32Array
) -> None:
    """Set rate, alpha, completion delay, and when each message is ready.

    Local and empty rows are never ready. The overhead is put into `flows`.
    """
    time = state.time[z]
    for i in range(len(src)):
        size = state.nbytes[i]
        state.bytes_left[i] = size + machine.costs.header_bytes
        state.ready[i] = np.inf
        if size == 0.0 or src[i] == dst[i]:
            continue
        kind = machine.kind[connection[i]]
        at = find_segment(machine.costs.start_bytes, kind, size)
        way = transfer_mode(machine.costs.mode, machine.costs.striping_threshold, kind, at, size)
        state.mode[i] = way
        state.rate[i] = uncontended_rate(machine, kind, at, way, connection[i])
        per_byte = machine.costs.latency_per_byte[kind, at]
        state.alpha[i] = machine.costs.alpha[kind, at] + per_byte * size
        state.flows[i] = machine.costs.overhead[kind]
        eager = size < machine.costs.eager_limit[kind]
        state.ready[i] = time[src[i]] if eager else max(time[src[i]], time[dst[i]])
        state.completion_delay[i] = completion_delay(machine.costs, kind, size)
        state.send_free[machine.send_port[connection[i]]] = 0.0


@njit_no_alloc(inline="always")
def uncontended_rate(machine: Any, kind: int, segment: int, mode: int, connection: int) -> float:
    """Return the bytes per second of a message that has its path to itself."""
    rate = min(1.0 / machine.costs.beta[kind, segment], machine.path_bandwidth[mode, connection])
    if len(machine.slot) > 0:
        for slot in range(
            machine.slot_start[mode, connection], machine.slot_start[mode, connection + 1]
        ):
            rate = min(rate, machine.capacity[machine.slot[slot]] / machine.slot_load[slot])
    return float(rate)


@njit_no_alloc()
def _queue_rows(state: Any, machine: Any, connection: Int32Array, is_permutation: bool) -> None:
    """Set the order in which messages join queues: by when they are ready, then by row."""
    rows = len(connection)
    for i in range(rows):
        state.order[i] = i
    run = rows if is_permutation or _is_row_order(state, machine, connection) else 1
    while run < rows:
        for begin in range(0, rows, 2 * run):
            _merge_runs(state, begin, begin + run, min(begin + 2 * run, rows))
        for i in range(rows):
            state.order[i] = state.merged[i]
        run *= 2


@njit_no_alloc()
def _merge_runs(state: Any, begin: int, middle: int, end: int) -> None:
    """Merge the sorted runs [begin, middle) and [middle, end) of `order` into `merged`."""
    ready, order = state.ready, state.order
    left, right = begin, middle
    for at in range(begin, end):
        if right >= end or (left < middle and ready[order[left]] <= ready[order[right]]):
            state.merged[at] = order[left]
            left += 1
        else:
            state.merged[at] = order[right]
            right += 1


@njit_no_alloc()
def _is_row_order(state: Any, machine: Any, connection: Int32Array) -> bool:
    """Return whether the messages of every port become ready in the order of rows."""
    for i in range(len(connection)):
        if state.ready[i] < np.inf:
            state.latest_ready[0, machine.send_port[connection[i]]] = state.latest_ready[
                1, machine.recv_port[connection[i]]
            ] = 0.0
    for i in range(len(connection)):
        ready = state.ready[i]
        if ready < np.inf:
            out, back = machine.send_port[connection[i]], machine.recv_port[connection[i]]
            if ready < state.latest_ready[0, out] or ready < state.latest_ready[1, back]:
                return False
            state.latest_ready[0, out] = state.latest_ready[1, back] = ready
    return True


@njit_no_alloc()
def _run_queued(state: Any, machine: Any, z: int, connection: Int32Array) -> bool:
    """Pass messages through their ports one after another, in `order`.

    Return False where one joins a queue too early for that.
    """
    for at in range(len(connection)):
        i = state.order[at]
        if state.ready[i] < np.inf:
            out = machine.send_port[connection[i]]
            port = state.port[z, machine.recv_port[connection[i]]]
            start = start_time(port, state.ready[i], state.send_free[out])
            end = (start + state.flows[i]) + state.bytes_left[i] / state.rate[i]
            if not release_port_in_order(port, state.ready[i], start, end):
                return False
            state.send_free[out] = end
            complete_transfer(state, i, end)
    return True


@njit_no_alloc(inline="always")
def start_time(port: Any, ready: float, send_free: float) -> float:
    """Return when a message that is ready begins to pass its ports."""
    return float(max(ready, send_free, port.free if ready >= port.joined else port.free_before))


@njit_no_alloc(inline="always")
def release_port_in_order(port: Any, ready: float, start: float, release: float) -> bool:
    """Record that a message has passed a receiving port; return False if it was out of turn.

    A message that joins the queue before the previous one did must have passed before that begins.
    """
    if ready >= port.joined:
        port.free_before, port.joined_before = port.free, port.joined
        port.free, port.joined, port.last = release, ready, start
        return True
    in_turn = bool(ready >= port.joined_before and release <= port.last)
    port.free_before, port.joined_before = release, ready
    return in_turn


@njit_no_alloc()
def run_contended(state: Any, machine: Any, z: int, groups: Any, connection: Int32Array) -> bool:
    """Simulate a permutation round in which groups of messages share links.

    Return False as `_run_queued` and `share_links` do.
    """
    for i in range(len(connection)):
        if state.ready[i] < np.inf:
            port = state.port[z, machine.recv_port[connection[i]]]
            state.port_start[i] = start_time(port, state.ready[i], 0.0)
            state.flows[i] += state.port_start[i]
            state.since[i] = state.flows[i] + state.bytes_left[i] / state.rate[i]
    if not share_links(state, machine, z, groups, connection):
        return False
    for i in range(len(connection)):
        if state.ready[i] < np.inf:
            port = state.port[z, machine.recv_port[connection[i]]]
            if not release_port_in_order(port, state.ready[i], state.port_start[i], state.since[i]):
                return False
            complete_transfer(state, i, state.since[i])
    return True


@njit_no_alloc(inline="always")
def complete_transfer(state: Any, i: int, end: float) -> None:
    """Set when a message that has passed its ports at `end` arrives and completes its send."""
    state.arrived[i] = end + state.alpha[i]
    state.sent[i] = max(end, state.arrived[i] + state.completion_delay[i])


@njit_no_alloc()
def _advance_ranks(
    state: Any,
    machine: Any,
    z: int,
    src: Int32Array,
    dst: Int32Array,
    memory: Bytes,
    reduce: Int32Array,
) -> None:
    """Let every rank copy, wait for its messages, then reduce."""
    time = state.time[z]
    for i in range(len(src)):
        if src[i] == dst[i] and reduce[i] == 0 and state.nbytes[i] > 0.0:
            kind = memory[i]
            at = find_segment(machine.copy_costs.start_bytes, kind, state.nbytes[i])
            late = (
                machine.copy_costs.alpha[kind, at]
                + machine.copy_costs.latency_per_byte[kind, at] * state.nbytes[i]
            )
            fixed = machine.copy_costs.overhead[kind] + late
            state.local_seconds[dst[i]] += (
                fixed + machine.copy_costs.beta[kind, at] * state.nbytes[i]
            )
    _add_local_work(state, time, dst)
    for i in range(len(src)):
        if state.ready[i] < np.inf:
            time[src[i]] = max(time[src[i]], state.sent[i])
            time[dst[i]] = max(time[dst[i]], state.arrived[i])
        if reduce[i] != 0 and state.nbytes[i] > 0.0:
            state.local_seconds[dst[i]] += reduction_seconds(
                machine.reduction_costs, min(1, memory[i]), state.nbytes[i]
            )
    _add_local_work(state, time, dst)


@njit_no_alloc()
def _add_local_work(state: Any, time: FloatArray, dst: Int32Array) -> None:
    for i in range(len(dst)):
        time[dst[i]] += state.local_seconds[dst[i]]
        state.local_seconds[dst[i]] = 0.0
