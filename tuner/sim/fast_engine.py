"""The working engine: the semantics of `reference_engine`, orders of magnitude faster.

A call is simulated round by round, all message sizes in one pass (`round_engine`). Sizes for which
the order of events matters beyond a round are simulated event by event (`event_engine`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from tuner.base.arrays import BoolArray, FloatArray, Int32Array, IntArray
from tuner.base.errors import LimitExceededError
from tuner.core.calibration import Calibration
from tuner.core.schedule import Round, Schedule
from tuner.sim import contended_rounds, event_engine, round_engine, uncontended_rounds
from tuner.sim.blocked_signals import block_signals
from tuner.sim.connections import Connections, build_connections, flatten_routes, with_eager_sends
from tuner.sim.contention import bottleneck_rates, contended_links
from tuner.sim.round_state import (
    FLOAT_ROW_FIELDS,
    INT_ROW_FIELDS,
    PORT_DTYPE,
    ContentionGroups,
    MachineArrays,
    MessageSizes,
    RoundState,
)
from tuner.sim.round_types import RoundType, find_round_types
from tuner.sim.traffic_pattern import has_pattern_costs
from tuner.sim.transfers import (
    TransferTableBuilder,
    check_call_arguments,
    pack_copy_costs,
    reduction_costs,
)
from tuner.sim.uncontended_rounds import RoundCosts
from tuner.topology import CUDA, HOST, Placement

MAX_EVENT_TRANSFERS = 1 << 23  # most transfers simulated event by event: four gigabytes
MAX_EVENT_ONLY_TRANSFERS = (
    1 << 15
)  # transfers simulated event by event without looking for a regular part
RETRY_MARGIN_ROUNDS = 32  # rounds simulated event by event beyond the one that failed


def finish_times(
    schedule: Schedule,
    placement: Placement,
    calibration: Calibration,
    sizes: Sequence[int],
    itemsize: int = 1,
    memory: str = HOST,
) -> FloatArray:
    """Return when each rank is done, in seconds, shape (sizes, p); all ranks start at 0.

    Raises InputError as `build_transfers` does, LimitExceededError for more transfers than can be
    simulated event by event.
    """
    return PreparedSimulation(schedule, placement, calibration, itemsize, memory).finish_times(
        sizes
    )


class PreparedSimulation:
    """One call on one machine, of any size; what does not depend on the size is computed once."""

    def __init__(
        self,
        schedule: Schedule,
        placement: Placement,
        calibration: Calibration,
        itemsize: int,
        memory: str,
    ) -> None:
        self.schedule, self.placement = schedule, placement
        self.calibration = with_eager_sends(schedule, calibration)
        self.itemsize, self.memory = itemsize, memory
        self.rounds = list(schedule.rounds())

    def finish_times(self, sizes: Sequence[int]) -> FloatArray:
        """Return when each rank is done; see the function `finish_times`."""
        for nbytes in sizes:
            check_call_arguments(self.schedule, self.placement, nbytes, self.itemsize)
        fitting = [z for z, nbytes in enumerate(sizes) if self.is_round_compatible(nbytes)]
        times, died = np.zeros((len(sizes), self.schedule.p)), np.zeros(len(sizes), dtype=np.int64)
        if fitting:
            counts = np.array([sizes[z] // self.itemsize for z in fitting], dtype=np.int64)
            times[fitting], died[fitting] = self.run_rounds(counts)
        for z in np.flatnonzero(died >= 0).tolist():
            times[z] = self.run_events(sizes[z], int(died[z]))
        return times

    def seconds(self, sizes: Sequence[int]) -> list[float]:
        """Return the seconds until the last rank is done, for each of `sizes` (bytes)."""
        with block_signals():
            times = self.finish_times(sizes)
        query = self.calibration.pointer_query_seconds if self.memory == CUDA else 0.0
        whole: list[float] = (times.max(axis=1) + query).tolist()
        return whole

    def is_round_compatible(self, nbytes: int) -> bool:
        """Return whether the call can be tried round by round."""
        begin = min(self.calibration.port_sharing_threshold, self.calibration.early_push_from)
        return nbytes < begin and not self.schedule.in_network

    @cached_property
    def _routed(self) -> tuple[list[RoundType], IntArray, MachineArrays]:
        p = self.schedule.p
        found, which, keys = find_round_types(
            self.rounds,
            self.placement.node_of,
            self.schedule.n_chunks,
            cuda=self.memory == CUDA,
            staged=self.schedule.staged,
            with_patterns=has_pattern_costs(self.calibration),
        )
        own, pair = np.divmod(keys, p * p)
        manner, cuda = np.divmod(own, 2)
        there = build_connections(
            self.placement, self.calibration, *np.divmod(pair, p), cuda.astype(bool), manner
        )
        return found, which, _pack_machine(there, self.calibration)

    def run_rounds(
        self, counts: IntArray, begin: int = 0, before: event_engine.FinalState | None = None
    ) -> tuple[FloatArray, IntArray]:
        """Simulate from round `begin` on, after the state `before`.

        counts      elements of each message size

        Return finish times, shape (sizes, p), and the round at which each size failed, or -1.
        """
        found, which, machine = self._routed
        sizes = MessageSizes(
            *np.divmod(counts, self.schedule.n_chunks), self.itemsize, self.schedule.n_chunks
        )
        rows = max((len(r) for r in self.rounds), default=0)
        state = _new_state(sizes, self.schedule.p, len(machine.capacity), rows)
        smallest = np.maximum(sizes.chunk_elements, 1) * self.itemsize
        state.has_eager[:] = smallest < machine.costs.eager_limit.max(initial=0.0)
        if before is not None:
            state.time[:], state.busy_until[:] = before.finish_time, before.busy_until
            for name in ("free", "joined", "free_before", "joined_before"):
                state.port[name][:] = before.port_free if "free" in name else before.last_joined
        died = _RoundRun(machine, sizes, state, found).run(self.rounds[begin:], which[begin:])
        return state.time, np.where(died >= 0, died + begin, -1)

    def run_events(self, nbytes: int, failed_round: int) -> FloatArray:
        """Return the finish times of one size that failed round by round.

        Often the rounds after an irregular beginning are regular: then only the beginning is
        simulated event by event, if none of it reaches into the rest.
        """
        transfers = np.cumsum([len(r) for r in self.rounds])
        end = 2 * failed_round + RETRY_MARGIN_ROUNDS
        regular = (
            self.is_round_compatible(nbytes)
            and transfers[-1] > MAX_EVENT_ONLY_TRANSFERS
            and self._has_repeated_end()
        )
        while regular and end < len(transfers) and 2 * transfers[end] < transfers[-1]:
            before = event_engine.final_state(self._first_rounds(end).build(nbytes))
            times, again = self.run_rounds(np.array([nbytes // self.itemsize]), end, before)
            if again[0] < 0:
                last: FloatArray = times[0]
                return last
            end = 2 * int(again[0]) + RETRY_MARGIN_ROUNDS
        return event_engine.finish_times(self._all_rounds.build(nbytes))

    def _has_repeated_end(self) -> bool:
        """Return whether the last round is of the same type as another one."""
        which = self._routed[1]
        return bool((which == which[-1]).sum() > 1)

    @cached_property
    def _all_rounds(self) -> TransferTableBuilder:
        return self._first_rounds(len(self.rounds))

    def _first_rounds(self, end: int) -> TransferTableBuilder:
        rows = sum(len(r) for r in self.rounds[:end])
        if rows > MAX_EVENT_TRANSFERS:
            raise LimitExceededError(
                f"{self.schedule}: the order of {rows} transfers depends on one another, and at"
                f" most {MAX_EVENT_TRANSFERS} can be played event by event: simulate fewer ranks,"
                " or longer segments"
            )
        part = replace(self.schedule, make_rounds=lambda: self.rounds[:end])
        return TransferTableBuilder(
            part, self.placement, self.calibration, self.itemsize, self.memory
        )


class _RoundRun:
    """A run of the round engine; it caches costs and contention groups of round types."""

    def __init__(
        self,
        machine: MachineArrays,
        sizes: MessageSizes,
        state: RoundState,
        round_types: Sequence[RoundType],
    ) -> None:
        self.machine, self.sizes, self.state, self.round_types = machine, sizes, state, round_types
        self.groups: dict[tuple[int, float, float], ContentionGroups] = {}
        self.round_costs: dict[tuple[int, int], uncontended_rounds.RoundCosts] = {}
        self.column_ranges: dict[int, tuple[int, int]] = {}
        self.is_repeated: BoolArray = np.zeros(0, bool)
        self.has_contention = len(machine.slot) > 0
        self.min_chunk_bytes = float(
            sizes.chunk_elements.min() * sizes.itemsize
        )  # bytes of a chunk
        self.max_chunk_bytes = float(
            (sizes.chunk_elements + (sizes.longer_chunks > 0)).max() * sizes.itemsize
        )
        self.no_groups = contended_rounds.find_contention_groups(
            machine, np.zeros(0, np.int64), 0.0, 0.0
        )
        self.no_sizes = np.zeros(len(state.is_valid), bool)

    def run(self, rounds: Sequence[Round], which: IntArray) -> IntArray:
        """Return the round at which each size failed, or -1."""
        self.is_repeated = np.bincount(which, minlength=1) > 1
        died = np.full(len(self.state.is_valid), -1)
        for at, (r, number) in enumerate(zip(rounds, which.tolist(), strict=True)):
            self._run_round(r, number)
            if not self.state.is_valid.all():
                died[(died < 0) & ~self.state.is_valid] = at
                if not self.state.is_valid.any():
                    break
        return died

    def _run_round(self, r: Round, number: int) -> None:
        pattern, done = self.round_types[number], self.no_sizes
        groups = self._contention_groups(number, r.count)
        alone = len(groups.rows) == len(groups.start) - 1
        if pattern.is_permutation and (self.is_repeated[number] or (alone and len(groups.rows))):
            prices = self._round_costs(number, r)
            done = prices.is_valid
            self._run_permutation(r, pattern, groups, prices, alone)
        if not done.all():
            round_engine.run_round(
                self.state,
                self.machine,
                self.sizes,
                done,
                groups,
                r.src,
                r.dst,
                pattern.connection,
                pattern.memory,
                r.src_chunk,
                r.count,
                r.reduce,
                pattern.is_permutation,
            )

    def _run_permutation(
        self,
        r: Round,
        pattern: RoundType,
        groups: ContentionGroups,
        prices: RoundCosts,
        alone: bool,
    ) -> None:
        """Run a round in which every rank sends and receives at most one message."""
        least, most = self._range(r.reduce)
        own = self._range(r.count) == (1, 1) and (least > 0) == (most > 0)
        if alone and pattern.is_ring and own:
            uncontended_rounds.run_ring(
                self.state,
                self.machine,
                self.sizes,
                prices,
                groups.rows,
                pattern.connection,
                r.src_chunk,
                most > 0,
            )
        else:
            uncontended_rounds.run_permutation(
                self.state,
                self.machine,
                self.sizes,
                prices,
                groups,
                r.src,
                r.dst,
                pattern.connection,
                r.src_chunk,
                r.count,
                r.reduce,
                most > 0,
            )

    def _contention_groups(self, number: int, count: Int32Array) -> ContentionGroups:
        if not self.has_contention:
            return self.no_groups
        least, most = self._range(count)
        own = (number, least * self.min_chunk_bytes, most * self.max_chunk_bytes)
        if own in self.groups:
            return self.groups[own]
        found = contended_rounds.find_contention_groups(
            self.machine, self.round_types[number].connection, *own[1:]
        )
        if self.is_repeated[number]:
            self.groups[own] = found
        return found

    def _round_costs(self, number: int, r: Round) -> uncontended_rounds.RoundCosts:
        own = (number, id(r.count))
        if own in self.round_costs:
            return self.round_costs[own]
        pattern = self.round_types[number]
        found = uncontended_rounds.compute_round_costs(
            self.machine, self.sizes, pattern.connection, int(pattern.memory[0]), r.count
        )
        if self.is_repeated[number]:
            self.round_costs[own] = found
        return found

    def _range(self, column: Int32Array) -> tuple[int, int]:
        """Return the smallest and the largest value of a column, which rounds may share."""
        if id(column) not in self.column_ranges:
            self.column_ranges[id(column)] = int(column.min()), int(column.max())
        return self.column_ranges[id(column)]


def _pack_machine(connections: Connections, calibration: Calibration) -> MachineArrays:
    links, use, start = flatten_routes(connections)
    ways, n = len(connections.paths_by_mode), len(connections.src)
    out, back = np.tile(connections.send_port, ways), np.tile(connections.recv_port, ways)
    with np.errstate(divide="ignore"):
        fastest = (1.0 / connections.costs.beta).max(axis=1, initial=0.0)
    rate = np.tile(fastest[connections.kind], ways)
    meeting = contended_links(out, back, links, use, rate, connections.capacity, shared=False)
    width = bottleneck_rates(links, use, np.where(meeting, np.inf, connections.capacity))
    meets = np.append(meeting, False)[links]
    slot_start = np.concatenate([[0], np.cumsum(meets.sum(axis=1))])
    row = start[:, None] + np.arange(n + 1)  # an unused mode has the rows of DIRECT
    return MachineArrays(
        connections.kind,
        connections.send_port,
        connections.recv_port,
        connections.costs,
        width[row[:, :-1]],
        slot_start[row],
        links[meets],
        use[meets],
        connections.capacity,
        _pack_reduction_costs(calibration),
        pack_copy_costs(calibration),
    )


def _pack_reduction_costs(calibration: Calibration) -> FloatArray:
    """Return `MachineArrays.reduction_costs`; a memory with fewer lines has some of them twice."""
    ways = [reduction_costs(calibration, memory) for memory in (HOST, CUDA)]
    most = max(map(len, ways))
    return np.array(
        [
            [(line.launch.value, line.gamma.value) for line in (lines * most)[:most]]
            for lines in ways
        ]
    )


def _new_state(sizes: MessageSizes, p: int, resources: int, rows: int) -> RoundState:
    z = len(sizes.chunk_elements)
    room: dict[str, Any] = {name: np.zeros(rows) for name in FLOAT_ROW_FIELDS}
    room |= {name: np.zeros(rows, np.int64) for name in INT_ROW_FIELDS}
    return RoundState(
        time=np.zeros((z, p)),
        port=np.zeros((z, 2 * p), PORT_DTYPE),
        busy_until=np.zeros((z, resources)),
        is_valid=np.ones(z, bool),
        has_eager=np.zeros(z, bool),
        send_free=np.zeros(2 * p),
        latest_ready=np.zeros((2, 2 * p)),
        local_seconds=np.zeros(p),
        free_capacity=np.zeros(resources),
        demand=np.zeros(resources),
        **room,
    )
