"""The working engine: the semantics of `events`, orders of magnitude faster.

A call is played round by round, all message sizes in one pass (`rounds`). Where the order of events
matters beyond a round, a size is played event by event (`agenda`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from tuner.base.arrays import BoolArray, FloatArray, Int32Array, IntArray
from tuner.base.errors import TooLargeError
from tuner.core.calibration import Calibration
from tuner.core.schedule import Round, Schedule
from tuner.sim import contended_rounds, event_engine, round_engine, uncontended_rounds
from tuner.sim.blocked_signals import undisturbed
from tuner.sim.connections import Lanes, charged, lanes, table
from tuner.sim.contention import meeting_links, narrowest
from tuner.sim.round_state import (
    FLOATS_OF_ROWS,
    INTS_OF_ROWS,
    PASSED,
    Groups,
    Machine,
    Sizes,
    State,
)
from tuner.sim.round_types import Pattern, patterns
from tuner.sim.traffic_pattern import told_apart
from tuner.sim.transfers import Calls, copy_tariff, reduction_lines, require_call
from tuner.topology import CUDA, HOST, Placement

MOST_EVENTS = 1 << 23  # transfers that are played event by event: four gigabytes
FEW = 1 << 15  # transfers that are played event by event without looking for a regular part
MARGIN = 32  # rounds beyond the one that showed that ranks are out of step


def finish_times(
    schedule: Schedule,
    placement: Placement,
    calibration: Calibration,
    sizes: Sequence[int],
    itemsize: int = 1,
    memory: str = HOST,
) -> FloatArray:
    """When each rank is done, in seconds, shape (sizes, p); all ranks start at 0.

    Raises InputError as `traffic` does, TooLargeError for more transfers than can be played event
    by event.
    """
    return Call(schedule, placement, calibration, itemsize, memory).finish_times(sizes)


class Call:
    """One call on one machine, of any size; what does not depend on the size is found once."""

    def __init__(
        self,
        schedule: Schedule,
        placement: Placement,
        calibration: Calibration,
        itemsize: int,
        memory: str,
    ) -> None:
        self.schedule, self.placement = schedule, placement
        self.calibration = charged(schedule, calibration)
        self.itemsize, self.memory = itemsize, memory
        self.rounds = list(schedule.rounds())

    def finish_times(self, sizes: Sequence[int]) -> FloatArray:
        """As the function of this name."""
        for nbytes in sizes:
            require_call(self.schedule, self.placement, nbytes, self.itemsize)
        fitting = [z for z, nbytes in enumerate(sizes) if self.fits(nbytes)]
        times, died = np.zeros((len(sizes), self.schedule.p)), np.zeros(len(sizes), dtype=np.int64)
        if fitting:
            counts = np.array([sizes[z] // self.itemsize for z in fitting], dtype=np.int64)
            times[fitting], died[fitting] = self.by_rounds(counts)
        for z in np.flatnonzero(died >= 0).tolist():
            times[z] = self.by_events(sizes[z], int(died[z]))
        return times

    def seconds(self, sizes: Sequence[int]) -> list[float]:
        """Until the last rank is done, of each size."""
        with undisturbed():
            times = self.finish_times(sizes)
        query = self.calibration.pointer_query if self.memory == CUDA else 0.0
        whole: list[float] = (times.max(axis=1) + query).tolist()
        return whole

    def fits(self, nbytes: int) -> bool:
        """Whether the call can be tried round by round."""
        begin = min(self.calibration.shared_from, self.calibration.ahead_from)
        return nbytes < begin and not self.schedule.in_network

    @cached_property
    def _prepared(self) -> tuple[list[Pattern], IntArray, Machine]:
        p = self.schedule.p
        found, which, keys = patterns(
            self.rounds,
            self.placement.node_of,
            self.schedule.n_chunks,
            cuda=self.memory == CUDA,
            staged=self.schedule.staged,
            meeting=told_apart(self.calibration),
        )
        own, pair = np.divmod(keys, p * p)
        manner, cuda = np.divmod(own, 2)
        there = lanes(
            self.placement, self.calibration, *np.divmod(pair, p), cuda.astype(bool), manner
        )
        return found, which, _machine(there, self.calibration)

    def by_rounds(
        self, counts: IntArray, begin: int = 0, before: event_engine.Outcome | None = None
    ) -> tuple[FloatArray, IntArray]:
        """Finish times, shape (sizes, p), and the round at which each size was given up, or -1.

        From round `begin` on, with what was `before` it.
        """
        found, which, machine = self._prepared
        sizes = Sizes(
            *np.divmod(counts, self.schedule.n_chunks), self.itemsize, self.schedule.n_chunks
        )
        rows = max((len(r) for r in self.rounds), default=0)
        state = _state(sizes, self.schedule.p, len(machine.capacity), rows)
        smallest = np.maximum(sizes.share, 1) * self.itemsize
        state.eager[:] = smallest < machine.tariff.eager_limit.max(initial=0.0)
        if before is not None:
            state.time[:], state.busy[:] = before.time, before.busy
            for name in ("free", "joined", "free_before", "joined_before"):
                state.port[name][:] = before.port_free if "free" in name else before.joined
        died = _Play(machine, sizes, state, found).all(self.rounds[begin:], which[begin:])
        return state.time, np.where(died >= 0, died + begin, -1)

    def by_events(self, nbytes: int, died: int) -> FloatArray:
        """Finish times of one size that cannot be played round by round from the beginning.

        Often ranks fall into step after an irregular beginning: that part alone is played event by
        event, if it turns out that nothing of it reaches into the rest.
        """
        transfers = np.cumsum([len(r) for r in self.rounds])
        end = 2 * died + MARGIN
        regular = self.fits(nbytes) and transfers[-1] > FEW and self._ends_regularly()
        while regular and end < len(transfers) and 2 * transfers[end] < transfers[-1]:
            before = event_engine.outcome(self._first_rounds(end).of(nbytes))
            times, again = self.by_rounds(np.array([nbytes // self.itemsize]), end, before)
            if again[0] < 0:
                last: FloatArray = times[0]
                return last
            end = 2 * int(again[0]) + MARGIN
        return event_engine.finish_times(self._whole.of(nbytes))

    def _ends_regularly(self) -> bool:
        """Whether the last round has the same pairs as others."""
        which = self._prepared[1]
        return bool((which == which[-1]).sum() > 1)

    @cached_property
    def _whole(self) -> Calls:
        return self._first_rounds(len(self.rounds))

    def _first_rounds(self, end: int) -> Calls:
        rows = sum(len(r) for r in self.rounds[:end])
        if rows > MOST_EVENTS:
            raise TooLargeError(
                f"{self.schedule}: the order of {rows} transfers depends on one another, and at"
                f" most {MOST_EVENTS} can be played event by event: simulate fewer ranks, or"
                " longer segments"
            )
        part = replace(self.schedule, make=lambda: self.rounds[:end])
        return Calls(part, self.placement, self.calibration, self.itemsize, self.memory)


class _Play:
    """What is known about patterns and columns as the rounds go by."""

    def __init__(
        self, machine: Machine, sizes: Sizes, state: State, found: Sequence[Pattern]
    ) -> None:
        self.machine, self.sizes, self.state, self.found = machine, sizes, state, found
        self.groups: dict[tuple[int, float, float], Groups] = {}
        self.lines: dict[tuple[int, int], uncontended_rounds.Lines] = {}
        self.columns: dict[int, tuple[int, int]] = {}
        self.often: BoolArray = np.zeros(0, bool)
        self.competing = len(machine.slot) > 0
        self.least = float(sizes.share.min() * sizes.itemsize)  # bytes of a chunk
        self.most = float((sizes.share + (sizes.longer > 0)).max() * sizes.itemsize)
        self.nobody = contended_rounds.groups_of(machine, np.zeros(0, np.int64), 0.0, 0.0)
        self.none = np.zeros(len(state.alive), bool)

    def all(self, played: Sequence[Round], which: IntArray) -> IntArray:
        """The round at which each size was given up, or -1."""
        self.often = np.bincount(which, minlength=1) > 1
        died = np.full(len(self.state.alive), -1)
        for at, (r, number) in enumerate(zip(played, which.tolist(), strict=True)):
            self._round(r, number)
            if not self.state.alive.all():
                died[(died < 0) & ~self.state.alive] = at
                if not self.state.alive.any():
                    break
        return died

    def _round(self, r: Round, number: int) -> None:
        pattern, done = self.found[number], self.none
        groups = self._groups(number, r.count)
        alone = len(groups.rows) == len(groups.start) - 1
        if pattern.plain and (self.often[number] or (alone and len(groups.rows))):
            prices = self._lines(number, r)
            done = prices.valid
            least, most = self._range(r.reduce)
            own = self._range(r.count) == (1, 1) and (least > 0) == (most > 0)
            if alone and pattern.ring and own:
                uncontended_rounds.play_ring(
                    self.state,
                    self.machine,
                    self.sizes,
                    prices,
                    groups.rows,
                    pattern.lane,
                    r.first,
                    most > 0,
                )
            else:
                uncontended_rounds.play_plain(
                    self.state,
                    self.machine,
                    self.sizes,
                    prices,
                    groups,
                    r.src,
                    r.dst,
                    pattern.lane,
                    r.first,
                    r.count,
                    r.reduce,
                    most > 0,
                )
        if not done.all():
            round_engine.play_any(
                self.state,
                self.machine,
                self.sizes,
                done,
                groups,
                r.src,
                r.dst,
                pattern.lane,
                pattern.memory,
                r.first,
                r.count,
                r.reduce,
                pattern.plain,
            )

    def _groups(self, number: int, count: Int32Array) -> Groups:
        if not self.competing:
            return self.nobody
        least, most = self._range(count)
        own = (number, least * self.least, most * self.most)
        if own in self.groups:
            return self.groups[own]
        found = contended_rounds.groups_of(self.machine, self.found[number].lane, *own[1:])
        if self.often[number]:
            self.groups[own] = found
        return found

    def _lines(self, number: int, r: Round) -> uncontended_rounds.Lines:
        own = (number, id(r.count))
        if own in self.lines:
            return self.lines[own]
        pattern = self.found[number]
        found = uncontended_rounds.lines(
            self.machine, self.sizes, pattern.lane, int(pattern.memory[0]), r.count
        )
        if self.often[number]:
            self.lines[own] = found
        return found

    def _range(self, column: Int32Array) -> tuple[int, int]:
        """The smallest and the largest value of a column that many rounds may share."""
        if id(column) not in self.columns:
            self.columns[id(column)] = int(column.min()), int(column.max())
        return self.columns[id(column)]


def _machine(there: Lanes, calibration: Calibration) -> Machine:
    links, use, start = table(there)
    ways, n = len(there.ways), len(there.source)
    out, back = np.tile(there.out, ways), np.tile(there.back, ways)
    with np.errstate(divide="ignore"):
        fastest = (1.0 / there.tariff.beta).max(axis=1, initial=0.0)
    rate = np.tile(fastest[there.kind], ways)
    meeting = meeting_links(out, back, links, use, rate, there.capacity, shared=False)
    width = narrowest(links, use, np.where(meeting, np.inf, there.capacity))
    meets = np.append(meeting, False)[links]
    slot_start = np.concatenate([[0], np.cumsum(meets.sum(axis=1))])
    row = start[:, None] + np.arange(n + 1)  # of a way that nobody goes: that of the straight one
    return Machine(
        there.kind,
        there.out,
        there.back,
        there.tariff,
        width[row[:, :-1]],
        slot_start[row],
        links[meets],
        use[meets],
        there.capacity,
        _folding(calibration),
        copy_tariff(calibration),
    )


def _folding(calibration: Calibration) -> FloatArray:
    """`Machine.folding`; a memory with fewer ways to reduce has one of them twice."""
    ways = [reduction_lines(calibration, memory) for memory in (HOST, CUDA)]
    most = max(map(len, ways))
    return np.array(
        [
            [(line.launch.value, line.gamma.value) for line in (lines * most)[:most]]
            for lines in ways
        ]
    )


def _state(sizes: Sizes, p: int, resources: int, rows: int) -> State:
    z = len(sizes.share)
    room: dict[str, Any] = {name: np.zeros(rows) for name in FLOATS_OF_ROWS}
    room |= {name: np.zeros(rows, np.int64) for name in INTS_OF_ROWS}
    return State(
        time=np.zeros((z, p)),
        port=np.zeros((z, 2 * p), PASSED),
        busy=np.zeros((z, resources)),
        alive=np.ones(z, bool),
        eager=np.zeros(z, bool),
        send_free=np.zeros(2 * p),
        latest=np.zeros((2, 2 * p)),
        work=np.zeros(p),
        free=np.zeros(resources),
        demand=np.zeros(resources),
        **room,
    )
