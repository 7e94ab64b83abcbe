"""Fast simulation of rounds in which every rank sends and receives at most one message.

Most rounds of most schedules are permutations. Their costs are computed once for all rounds of the
same type.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tuner.base.arrays import BoolArray, FloatArray, Int32Array, IntArray
from tuner.sim.cost_arrays import completion_delay, find_segment, transfer_mode
from tuner.sim.jit import njit_no_alloc
from tuner.sim.rounds.round_engine import (
    count_longer_chunks,
    reduction_seconds,
    release_port_in_order,
    row_bytes,
    run_contended,
    start_time,
    uncontended_rate,
)
from tuner.sim.rounds.round_state import SOME_CHUNKS_LONGER


class RoundCosts(NamedTuple):
    """Costs of the messages of a permutation round, if no row crosses a border between segments.

    flow_seconds,       seconds of flowing, of alpha with the latency of the bytes, of reducing, if
    latency,            none (0) or all (1) of a row's chunks are longer ones; shape
    reduction_seconds   (sizes, 2, rows)
    rate, alpha,        shape (sizes, rows)
    latency_per_byte,
    overhead, eager,
    completion_delay,
    mode
    recv_port           the receiver's port of each row
    memory              where reductions take place: 0 host, 1 device
    is_valid            whether no row crosses a border and none is empty, shape (sizes,)
    """

    flow_seconds: FloatArray
    latency: FloatArray
    reduction_seconds: FloatArray
    rate: FloatArray
    alpha: FloatArray
    latency_per_byte: FloatArray
    overhead: FloatArray
    eager: BoolArray
    completion_delay: FloatArray
    mode: IntArray
    recv_port: IntArray
    memory: int
    is_valid: BoolArray


def compute_round_costs(
    machine: Any, sizes: Any, connection: Int32Array, memory: int, count: Int32Array
) -> RoundCosts:
    """Return the costs of a permutation round whose rows have `count` chunks."""
    shape = (len(sizes.chunk_elements), len(connection))
    rate, alpha, lag, overhead, acknowledgement = np.empty((5, *shape))
    flow, late, fold = np.empty((3, shape[0], 2, shape[1]))
    eager, ways = np.empty(shape, bool), np.zeros(shape, np.int64)
    port, valid = machine.recv_port[connection], np.ones(shape[0], bool)
    found = RoundCosts(flow, late, fold, rate, alpha, lag, overhead, eager, acknowledgement, ways,
                       port, memory, valid)  # fmt: skip
    _fill_round_costs(machine, sizes, connection, count, found)
    return found


@njit_no_alloc()
def _fill_round_costs(
    machine: Any, sizes: Any, connection: Int32Array, count: Int32Array, found: Any
) -> None:
    """Set `is_valid`, and all costs of the sizes for which it is true."""
    costs = machine.costs
    for z in range(len(sizes.chunk_elements)):
        more = sizes.itemsize * sizes.more_elements[z] if sizes.longer_chunks[z] > 0 else 0
        for i in range(len(connection)):
            kind = machine.kind[connection[i]]
            low = float(count[i] * sizes.chunk_elements[z] * sizes.itemsize)
            high = low + count[i] * more
            at = find_segment(costs.start_bytes, kind, low)
            way = transfer_mode(costs.mode, costs.striping_threshold, kind, at, low)
            found.eager[z, i] = low < costs.eager_limit[kind]
            found.completion_delay[z, i] = completion_delay(costs, kind, low)
            same = at == find_segment(costs.start_bytes, kind, high)
            same &= way == transfer_mode(costs.mode, costs.striping_threshold, kind, at, high)
            same &= found.eager[z, i] == (high < costs.eager_limit[kind])
            same &= found.completion_delay[z, i] == completion_delay(costs, kind, high)
            if low == 0.0 or not same:
                found.is_valid[z] = False
                break
            found.mode[z, i] = way
            found.rate[z, i] = uncontended_rate(machine, kind, at, way, connection[i])
            alpha, lag = costs.alpha[kind, at], costs.latency_per_byte[kind, at]
            found.alpha[z, i], found.latency_per_byte[z, i] = alpha, lag
            found.overhead[z, i] = costs.overhead[kind]
            found.latency[z, 0, i] = alpha + lag * low
            found.latency[z, 1, i] = alpha + lag * high
            found.flow_seconds[z, 0, i] = (low + costs.header_bytes) / found.rate[z, i]
            found.flow_seconds[z, 1, i] = (high + costs.header_bytes) / found.rate[z, i]
            for longer, size in enumerate((low, high)):
                found.reduction_seconds[z, longer, i] = reduction_seconds(
                    machine.reduction_costs, found.memory, size
                )


@njit_no_alloc()
def run_permutation(
    state: Any,
    machine: Any,
    sizes: Any,
    costs: Any,
    groups: Any,
    src: Int32Array,
    dst: Int32Array,
    connection: Int32Array,
    src_chunk: Int32Array,
    count: Int32Array,
    reduce: Int32Array,
    has_reduction: bool,
) -> None:
    """Simulate one round, for all sizes whose costs are valid."""
    alone = len(groups.rows) == len(groups.start) - 1
    for z in range(len(sizes.chunk_elements)):
        if not state.is_valid[z] or not costs.is_valid[z]:
            continue
        time = state.time[z]
        count_longer_chunks(state, sizes, z, src_chunk, count)
        for i in range(len(src)):
            state.flows[i] = costs.flow_seconds[z, state.longer_kind[i] & 1, i]
            state.alpha[i] = costs.latency[z, state.longer_kind[i] & 1, i]
            if state.longer_kind[i] == SOME_CHUNKS_LONGER:
                size = row_bytes(state, sizes, z, i, count)
                state.flows[i] = (size + machine.costs.header_bytes) / costs.rate[z, i]
                state.alpha[i] = costs.alpha[z, i] + costs.latency_per_byte[z, i] * size
            eager = costs.eager[z, i]
            state.ready[i] = time[src[i]] if eager else max(time[src[i]], time[dst[i]])
        if alone:
            _pass_ports(state, costs, z, len(src))
            _occupy_links(state, machine, costs, z, groups.rows, connection)
        else:
            _load_costs(state, machine, sizes, costs, z, count)
            state.is_valid[z] = run_contended(state, machine, z, groups, connection)
        for i in range(len(src)):
            time[src[i]] = max(time[src[i]], state.sent[i])
            time[dst[i]] = max(time[dst[i]], state.arrived[i])
        if has_reduction:
            _add_reductions(state, machine, sizes, costs, z, dst, count, reduce)


@njit_no_alloc()
def _load_costs(
    state: Any, machine: Any, sizes: Any, costs: Any, z: int, count: Int32Array
) -> None:
    """Set the costs that `run_contended` reads besides `alpha`; the overhead goes into `flows`."""
    for i in range(len(count)):
        state.bytes_left[i] = row_bytes(state, sizes, z, i, count) + machine.costs.header_bytes
        state.rate[i], state.mode[i] = costs.rate[z, i], costs.mode[z, i]
        state.flows[i] = costs.overhead[z, i]
        state.completion_delay[i] = costs.completion_delay[z, i]


@njit_no_alloc()
def _pass_ports(state: Any, costs: Any, z: int, rows: int) -> None:
    """Compute `sent` and `arrived` from `ready`, `flows` and `alpha`.

    A size becomes invalid where a message joins a port out of turn.
    """
    alpha, overhead, acknowledgement = state.alpha, costs.overhead[z], costs.completion_delay[z]
    if not state.has_eager[z]:
        for i in range(rows):
            state.port_start[i] = state.ready[i] + overhead[i]
            state.since[i] = state.port_start[i] + state.flows[i]
            state.arrived[i] = state.since[i] + alpha[i]
            state.sent[i] = state.arrived[i] + acknowledgement[i]
        return
    in_turn = True
    for i in range(rows):
        port = state.port[z, costs.recv_port[i]]
        start = start_time(port, state.ready[i], 0.0)
        state.port_start[i] = start + overhead[i]
        release = state.since[i] = state.port_start[i] + state.flows[i]
        in_turn &= release_port_in_order(port, state.ready[i], start, release)
        state.arrived[i] = release + alpha[i]
        state.sent[i] = max(release, state.arrived[i] + acknowledgement[i])
    state.is_valid[z] = in_turn


@njit_no_alloc()
def _occupy_links(
    state: Any, machine: Any, costs: Any, z: int, contended_rows: IntArray, connection: Int32Array
) -> None:
    """Mark the links of these rows as busy from `port_start` to `since`.

    The size becomes invalid where a link still carries bytes of another round.
    """
    busy = state.busy_until[z]
    for i in contended_rows:
        way = costs.mode[z, i]
        for slot in range(
            machine.slot_start[way, connection[i]], machine.slot_start[way, connection[i] + 1]
        ):
            if state.port_start[i] < busy[machine.slot[slot]]:
                state.is_valid[z] = False
            busy[machine.slot[slot]] = max(busy[machine.slot[slot]], state.since[i])


@njit_no_alloc()
def _add_reductions(
    state: Any,
    machine: Any,
    sizes: Any,
    costs: Any,
    z: int,
    dst: Int32Array,
    count: Int32Array,
    reduce: Int32Array,
) -> None:
    for i in range(len(dst)):
        if reduce[i] != 0:
            seconds = costs.reduction_seconds[z, state.longer_kind[i] & 1, i]
            if state.longer_kind[i] == SOME_CHUNKS_LONGER:
                seconds = reduction_seconds(
                    machine.reduction_costs, costs.memory, row_bytes(state, sizes, z, i, count)
                )
            state.time[z, dst[i]] += seconds
