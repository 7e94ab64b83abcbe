"""A call prepared for the round engine, and its run from one round to the next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from tuner.base.arrays import BoolArray, FloatArray, Int32Array, IntArray
from tuner.base.giving_up import go_on
from tuner.core.calibration import Calibration
from tuner.core.schedule import Round, Schedule
from tuner.sim.connections import ConnectionFinder, Connections, flatten_routes
from tuner.sim.contention import bottleneck_rates, contended_links
from tuner.sim.event_engine import FinalState
from tuner.sim.rounds import contended_rounds, round_engine, uncontended_rounds
from tuner.sim.rounds.least_times import LeastTimes
from tuner.sim.rounds.round_state import (
    FLOAT_ROW_FIELDS,
    INT_ROW_FIELDS,
    PORT_DTYPE,
    ContentionGroups,
    MachineArrays,
    MessageSizes,
    RoundState,
)
from tuner.sim.rounds.round_types import RoundType, RoundTypes, known_round_types
from tuner.sim.traffic_pattern import has_pattern_costs
from tuner.sim.transfers import pack_copy_costs, reduction_costs
from tuner.topology import CUDA, HOST, Placement

ROUNDS_PER_CHECK = 8  # after so many rounds calls that take too long are given up
MIN_ROUNDS_TO_CACHE = 3  # of a type; costs that are kept take a hundred bytes per row and size


class RoundSimulation:
    """A call of any message size; round types, routes and costs are found once for all sizes.

    The schedule makes its rounds once for their types and once per run; none of them is kept.
    """

    def __init__(
        self,
        schedule: Schedule,
        placement: Placement,
        calibration: Calibration,
        itemsize: int,
        memory: str,
    ) -> None:
        self.schedule, self.placement, self.calibration = schedule, placement, calibration
        self.itemsize, self.memory = itemsize, memory
        self.connection_finder = ConnectionFinder(placement, calibration)

    def is_possible(self, nbytes: int) -> bool:
        """Return whether a call of this size can be tried round by round."""
        begin = min(self.calibration.port_sharing_threshold, self.calibration.early_push_from)
        return nbytes < begin and not self.schedule.in_network and not self._shares_ports

    def has_repeated_end(self) -> bool:
        """Return whether the last round is of the same type as another one."""
        which = self.round_types.type_of_round
        return bool((which == which[-1]).sum() > 1)

    @cached_property
    def _shares_ports(self) -> bool:
        """Return whether ports that serve several messages in a round have time for two at once.

        Where a round has one message per port, sharing it and queueing for it are the same.
        """
        shares: BoolArray = np.any(self._connections.port_share < 1.0, axis=1)
        return bool(shares.any()) and any(
            shares[kind.connection[kind.connection >= 0]].any()
            for kind in self.round_types.types
            if not kind.is_permutation
        )

    @cached_property
    def machine(self) -> MachineArrays:
        """Costs and routes of the connections."""
        return _pack_machine(self._connections, self.calibration)

    @cached_property
    def round_types(self) -> RoundTypes:
        return known_round_types(
            self.schedule,
            self.placement.node_of,
            cuda=self.memory == CUDA,
            with_patterns=has_pattern_costs(self.calibration),
        )

    @cached_property
    def _connections(self) -> Connections:
        return self.connection_finder.find(self.round_types.keys)

    def run(
        self, counts: IntArray, begin: int = 0, before: FinalState | None = None
    ) -> tuple[FloatArray, IntArray]:
        """Simulate from round `begin` on, after the state `before`.

        counts      elements of each message size

        Return finish times, shape (sizes, p), and the round at which each size failed, or -1.
        """
        return self._run(counts, np.full(len(counts), np.inf), begin, before)

    def run_within(self, counts: IntArray, longest: FloatArray) -> tuple[FloatArray, IntArray]:
        """Simulate the whole call as `run` does, unless it takes longer than `longest` seconds.

        Finish times of a size that does may be infinite.
        """
        times, died = np.full((len(counts), self.schedule.p), np.inf), np.full(len(counts), -1)
        rest = np.arange(len(counts))
        if np.isfinite(longest).any():
            rest = np.flatnonzero(self.least_seconds(counts) <= longest)
        if len(rest):
            times[rest], died[rest] = self._run(counts[rest], longest[rest], 0, None)
        return times, died

    def least_seconds(self, counts: IntArray) -> FloatArray:
        """Return what a call takes at least, shape (sizes,)."""
        keeps_ports: BoolArray = np.all(self._connections.port_share >= 1.0, axis=1)
        sizes = self._message_sizes(counts)
        found = LeastTimes(self.machine, sizes, keeps_ports, self.schedule.p)
        repeated: dict[tuple[int, int, int], tuple[Int32Array, Any, int]] = {}
        for r, number in zip(
            self.schedule.rounds(), self.round_types.type_of_round.tolist(), strict=True
        ):
            key = number, id(r.count), id(r.reduce)  # of columns that are held
            times = repeated[key][2] if key in repeated else 0
            repeated[key] = r.count, r.reduce, times + 1
        for (number, *_), (count, reduce, times) in repeated.items():
            go_on()
            found.add(times, self.round_types.types[number], count, reduce)
        return found.seconds()

    def _message_sizes(self, counts: IntArray) -> MessageSizes:
        lengths = [self.schedule.chunk_sizes(count, self.itemsize) for count in counts.tolist()]
        shorter, more, longer = np.array(lengths, np.int64).reshape(-1, 3).T.copy()
        return MessageSizes(shorter, more, longer, self.itemsize, self.schedule.n_chunks)

    def _run(
        self, counts: IntArray, longest: FloatArray, begin: int, before: FinalState | None
    ) -> tuple[FloatArray, IntArray]:
        found, machine, sizes = self.round_types, self.machine, self._message_sizes(counts)
        rows = int(found.row_counts.max(initial=0))
        state = _new_state(sizes, self.schedule.p, len(machine.capacity), rows)
        smallest = np.maximum(sizes.chunk_elements, 1) * self.itemsize
        state.has_eager[:] = smallest < machine.costs.eager_limit.max(initial=0.0)
        if before is not None:
            state.time[:], state.busy_until[:] = before.finish_time, before.busy_until
            for name in ("free", "joined", "free_before", "joined_before"):
                state.port[name][:] = before.port_free if "free" in name else before.last_joined
        rounds = islice(self.schedule.rounds(), begin, None)
        own = _RoundRun(machine, sizes, state, found.types, self.schedule.scratch_buffers)
        died = own.run(rounds, found.type_of_round[begin:], longest)
        return state.time, np.where(died >= 0, died + begin, -1)


class _RoundRun:
    """A run of the round engine; it caches costs and contention groups of round types."""

    def __init__(
        self,
        machine: MachineArrays,
        sizes: MessageSizes,
        state: RoundState,
        round_types: Sequence[RoundType],
        scratch_buffers: int,
    ) -> None:
        self.machine, self.sizes, self.state, self.round_types = machine, sizes, state, round_types
        self.scratch_buffers = scratch_buffers
        self.groups: dict[tuple[int, float, float], ContentionGroups] = {}
        # by type and id of the column of counts, which is held; by id of a column, which is held
        self.round_costs: dict[
            tuple[int, int], tuple[Int32Array, uncontended_rounds.RoundCosts]
        ] = {}
        self.column_ranges: dict[int, tuple[Int32Array, int, int]] = {}
        self.rounds_of_type: IntArray = np.zeros(0, np.int64)
        self.has_contention = len(machine.slot) > 0
        self.min_chunk_bytes = float(
            sizes.chunk_elements.min() * sizes.itemsize
        )  # bytes of a chunk
        self.max_chunk_bytes = float(
            (sizes.chunk_elements + sizes.more_elements * (sizes.longer_chunks > 0)).max()
            * sizes.itemsize
        )
        self.no_groups = contended_rounds.no_contention(machine)
        self.no_sizes = np.zeros(len(state.is_valid), bool)

    def run(self, rounds: Iterable[Round], which: IntArray, longest: FloatArray) -> IntArray:
        """Return the round at which each size failed, or -1.

        A size whose ranks are later than `longest` is given up, and its times are infinite.
        """
        self.rounds_of_type = np.bincount(which, minlength=1)
        valid = self.state.is_valid
        died, late = np.full(len(valid), -1), np.zeros(len(valid), bool)
        limited = bool(np.isfinite(longest).any())
        for at, (r, number) in enumerate(zip(rounds, which.tolist(), strict=True)):
            self._run_round(r, number)
            if not valid.all():
                died[(died < 0) & ~valid & ~late] = at
            if at % ROUNDS_PER_CHECK == 0:
                go_on()
                if limited:
                    late |= valid & (self.state.time.max(axis=1) > longest)
                    valid &= ~late
            if not valid.any():
                break
        self.state.time[late] = np.inf
        return died

    def _run_round(self, r: Round, number: int) -> None:
        pattern, done = self.round_types[number], self.no_sizes
        src_chunk = self._wrapped(r.src_chunk)
        groups = self._contention_groups(number, r.count)
        alone = len(groups.rows) == len(groups.start) - 1
        keeps_costs = self.rounds_of_type[number] >= MIN_ROUNDS_TO_CACHE
        if pattern.is_permutation and (keeps_costs or (alone and len(groups.rows))):
            prices = self._round_costs(number, r)
            done = prices.is_valid
            uncontended_rounds.run_permutation(
                self.state,
                self.machine,
                self.sizes,
                prices,
                groups,
                r.src,
                r.dst,
                pattern.connection,
                src_chunk,
                r.count,
                r.reduce,
                self._range(r.reduce)[1] > 0,
            )
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
                src_chunk,
                r.count,
                r.reduce,
                pattern.is_permutation,
            )

    def _wrapped(self, src_chunk: Int32Array) -> Int32Array:
        """Return first chunks with those of all scratch buffers moved into the user's."""
        if self.scratch_buffers == 1:
            return src_chunk
        wrapped: Int32Array = src_chunk % self.sizes.n_chunks
        wrapped.setflags(write=False)  # as the columns are, for which the rounds are compiled
        return wrapped

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
        if self.rounds_of_type[number] > 1:
            self.groups[own] = found
        return found

    def _round_costs(self, number: int, r: Round) -> uncontended_rounds.RoundCosts:
        own = (number, id(r.count))
        if own in self.round_costs:
            return self.round_costs[own][1]
        pattern = self.round_types[number]
        found = uncontended_rounds.compute_round_costs(
            self.machine, self.sizes, pattern.connection, int(pattern.memory[0]), r.count
        )
        if self.rounds_of_type[number] >= MIN_ROUNDS_TO_CACHE:
            self.round_costs[own] = r.count, found
        return found

    def _range(self, column: Int32Array) -> tuple[int, int]:
        """Return the smallest and the largest value of a column, which rounds may share."""
        if id(column) not in self.column_ranges:
            self.column_ranges[id(column)] = column, int(column.min()), int(column.max())
        return self.column_ranges[id(column)][1:]


def _pack_machine(connections: Connections, calibration: Calibration) -> MachineArrays:
    links, use, start = flatten_routes(connections)
    ways, n = len(connections.routes_by_mode), len(connections.kind)
    out, back = np.tile(connections.send_port, ways), np.tile(connections.recv_port, ways)
    with np.errstate(divide="ignore"):
        fastest = (1.0 / connections.costs.beta).max(axis=1, initial=0.0)
    rate = np.tile(fastest[connections.kind], ways)
    meeting = contended_links(out, back, links, use, rate, connections.capacity, shared=False)
    width = bottleneck_rates(links, use, np.where(meeting, np.inf, connections.capacity))
    meets = np.append(meeting, False)[links]
    slot_start = np.zeros(len(links) + 1, np.int32)
    np.cumsum(meets.sum(axis=1), out=slot_start[1:])
    of_mode = start[: 1 + max(connections.routes_by_mode)]  # an unused mode has those of DIRECT
    return MachineArrays(
        connections.kind,
        connections.send_port,
        connections.recv_port,
        connections.costs,
        np.stack([width[first : first + n] for first in of_mode]),
        np.stack([slot_start[first : first + n + 1] for first in of_mode]),
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
