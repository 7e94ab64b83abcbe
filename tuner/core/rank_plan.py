"""The part of each rank in a schedule, as a list of instructions.

A schedule says which transfers belong to a round. A rank that runs it needs to know more: when a
send must be complete because its source is written, and where arrivals wait that are reduced later.
Both depend only on the chunks, so they are settled here, once for all sizes of buffers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from tuner.base.arrays import Int32Array, IntArray
from tuner.base.errors import ScheduleError
from tuner.core.schedule import NO_REDUCTION, Round, Schedule

MAX_ROUNDS_AHEAD = 8  # rounds that a send may last before its rank waits for it
NONE = -1
SOURCE_TURNS = 1  # bits of `Instruction.turns`
TARGET_TURNS = 2


class InstructionKind(IntEnum):
    """The kind of an instruction."""

    SEND = 0  # chunks from `source` on to `peer`
    RECEIVE = 1  # chunks from `peer` into `target`
    RECEIVE_ASIDE = 2  # chunks for `target` from `peer`, into slot `source`
    WAIT = 3  # until `request` is complete
    SET_ASIDE = 4  # a copy of chunks from `source` on, into slot `target`
    COPY = 5  # chunks from `source` on to `target`
    REDUCE = 6  # chunks from `source` on into `target`, by the code in `peer`
    COPY_BACK = 7  # slot `source` to `target`
    REDUCE_BACK = 8  # slot `source` into `target`, by the code in `peer`
    END_ROUND = 9  # the slots are free again


class Instruction(NamedTuple):
    """One step of a rank.

    request         number of the message's request; NONE for instructions without
    source, target  first chunk, or a slot for chunks that are set aside
    chunks          consecutive chunks
    peer            the other rank of a message, or the code of a reduction
    turns           where ranks turn, SOURCE_TURNS and TARGET_TURNS for the chunks that do
    """

    kind: InstructionKind
    request: int = NONE
    source: int = NONE
    target: int = NONE
    chunks: int = 0
    peer: int = NONE
    turns: int = 0


class _Row(NamedTuple):
    """A row of a round; `turns` as of an `Instruction`."""

    src: int
    dst: int
    src_chunk: int
    dst_chunk: int
    chunks: int
    reduce: int
    turns: int

    def is_deferred_at(self, rank: int) -> bool:
        """Return whether a rank writes its target with the reductions, not on arrival."""
        return self.dst == rank and (self.src == self.dst or self.reduce != NO_REDUCTION)

    def reads_from(self, written: Iterable[_Row], n_chunks: int) -> bool:
        """Return whether its source may overlap the target of any of these rows, on any rank."""
        return any(self._reads_from(row, n_chunks) for row in written)

    def _reads_from(self, row: _Row, n_chunks: int) -> bool:
        if bool(self.turns & SOURCE_TURNS) != bool(row.turns & TARGET_TURNS):
            return self.src_chunk // n_chunks == row.dst_chunk // n_chunks
        end = self.src_chunk + self.chunks
        return self.src_chunk < row.dst_chunk + row.chunks and row.dst_chunk < end


class _Send(NamedTuple):
    """A send that may still be in progress, and the round in which it started."""

    request: int
    row: _Row
    round_number: int


@dataclass
class _RankPlan:
    """The instructions of one rank as they are collected.

    free        numbers of requests that are complete
    """

    rank: int
    n_chunks: int
    instructions: list[Instruction] = field(default_factory=list)
    pending: list[_Send] = field(default_factory=list)
    free: list[int] = field(default_factory=list)
    n_requests: int = 0
    n_slots: int = 0
    slot_chunks: int = 0
    rounds: int = 0

    def add_round(self, rows: Sequence[_Row]) -> None:
        """Add the instructions of a round: start its transfers, reduce in order, wait."""
        rank, number = self.rank, self.rounds
        self.rounds += 1
        self._wait_for_due_sends([row for row in rows if row.dst == rank], number)
        written = [row for row in rows if row.is_deferred_at(rank)]
        slots = self._set_aside(rows, written)
        requests = self._start(rows, slots)
        for row, request in zip(rows, requests, strict=True):
            if row.src == rank != row.dst and row.reads_from(written, self.n_chunks):
                self._wait(request)
        self._reduce(rows, requests, slots)
        for row, request in zip(rows, requests, strict=True):
            if row.dst == rank and request != NONE and not row.is_deferred_at(rank):
                self._wait(request)
            if row.src == rank != row.dst and not row.reads_from(written, self.n_chunks):
                self.pending.append(_Send(request, row, number))
        if slots:
            self.instructions.append(Instruction(InstructionKind.END_ROUND))
            self.n_slots = max(self.n_slots, len(slots))
            aside = sum(rows[place].chunks for place in slots)
            self.slot_chunks = max(self.slot_chunks, aside)

    def finish(self) -> None:
        """Add the waits for all sends."""
        for send in self.pending:
            self._wait(send.request)

    def _wait_for_due_sends(self, written: list[_Row], number: int) -> None:
        due = [
            send
            for send in self.pending
            if number - send.round_number > MAX_ROUNDS_AHEAD
            or send.row.reads_from(written, self.n_chunks)
        ]
        self.pending = [send for send in self.pending if send not in due]
        for send in due:
            self._wait(send.request)

    def _set_aside(self, rows: Sequence[_Row], written: list[_Row]) -> dict[int, int]:
        """Copy local sources that the round overwrites; return the slots of rows that have one."""
        slots = dict[int, int]()
        for place, row in enumerate(rows):
            if not row.is_deferred_at(self.rank):
                continue
            if row.src != row.dst:
                slots[place] = len(slots)
            elif row.reads_from(written, self.n_chunks):
                slots[place] = len(slots)
                self._add(InstructionKind.SET_ASIDE, NONE, row.src_chunk, slots[place], row)
        return slots

    def _start(self, rows: Sequence[_Row], slots: dict[int, int]) -> list[int]:
        """Start all messages, receives first; return their requests, NONE for local rows."""
        requests = [NONE if row.src == row.dst else self._new_request() for row in rows]
        for place, (row, request) in enumerate(zip(rows, requests, strict=True)):
            if request != NONE and row.dst == self.rank:
                aside = place in slots
                kind = InstructionKind.RECEIVE_ASIDE if aside else InstructionKind.RECEIVE
                into = slots[place] if aside else NONE
                self._add(kind, request, into, row.dst_chunk, row, row.src)
        for row, request in zip(rows, requests, strict=True):
            if request != NONE and row.src == self.rank:
                self._add(InstructionKind.SEND, request, row.src_chunk, NONE, row, row.dst)
        return requests

    def _reduce(self, rows: Sequence[_Row], requests: list[int], slots: dict[int, int]) -> None:
        for place, (row, request) in enumerate(zip(rows, requests, strict=True)):
            if not row.is_deferred_at(self.rank):
                continue
            if request != NONE:
                self._wait(request)
            if row.reduce == NO_REDUCTION:
                kind = InstructionKind.COPY_BACK if place in slots else InstructionKind.COPY
            else:
                kind = InstructionKind.REDUCE_BACK if place in slots else InstructionKind.REDUCE
            source = slots.get(place, row.src_chunk)
            self._add(kind, NONE, source, row.dst_chunk, row, row.reduce)

    def _add(
        self,
        kind: InstructionKind,
        request: int,
        source: int,
        target: int,
        row: _Row,
        peer: int = NONE,
    ) -> None:
        self.instructions.append(
            Instruction(kind, request, source, target, row.chunks, peer, row.turns)
        )

    def _new_request(self) -> int:
        if self.free:
            return self.free.pop()
        self.n_requests += 1
        return self.n_requests - 1

    def _wait(self, request: int) -> None:
        self.instructions.append(Instruction(InstructionKind.WAIT, request))
        self.free.append(request)


@dataclass(frozen=True)
class SchedulePlan:
    """The instructions of all ranks of a schedule.

    ranks           instructions of each rank; those of rank 0 alone where the others turn
    chunk_step      where ranks turn: how many chunks the instructions of a rank lie above those of
                    the rank below it, where they turn, modulo the number of chunks; None where
                    ranks do not turn. Peers lie one rank above.
    n_requests      most messages that one rank has in progress at once
    n_slots         most parts that one rank has set aside at once
    slot_chunks     chunks that are set aside at once at most
    scratch_buffers scratch that transfers use, in multiples of the user's buffer
    message_chunks  chunks of the longest message
    shifts          whether some rank moves a chunk to a slot of another index: counts must then be
                    multiples of the number of chunks
    """

    ranks: tuple[tuple[Instruction, ...], ...]
    chunk_step: int | None
    n_requests: int
    n_slots: int
    slot_chunks: int
    scratch_buffers: int
    message_chunks: int
    shifts: bool


def plan_schedule(schedule: Schedule, max_transfers: float = math.inf) -> SchedulePlan:
    """Return the instructions of every rank of a schedule.

    Raises ScheduleError for more transfers than `max_transfers`, where ranks do not turn.
    """
    step = _chunk_step(schedule)
    if step is None and sum(map(len, schedule.rounds())) > max_transfers:
        raise ScheduleError(f"{schedule} has more than {max_transfers} transfers, too many to list")
    n_chunks, chunks, shifts = schedule.n_chunks, 0, False
    plans = [_RankPlan(rank, n_chunks) for rank in range(schedule.p if step is None else 1)]
    for r in schedule.rounds():
        rows = dict[int, list[_Row]]()
        for row in _planned_rows(r, schedule, step):
            for rank in {row.src, row.dst}:
                rows.setdefault(rank, []).append(row)
            chunks = max(chunks, row.src_chunk + row.chunks, row.dst_chunk + row.chunks)
            shifts |= (row.src_chunk - row.dst_chunk) % n_chunks != 0
        for plan in plans:
            if plan.rank in rows:
                plan.add_round(rows[plan.rank])
    for plan in plans:
        plan.finish()
    return SchedulePlan(
        tuple(tuple(plan.instructions) for plan in plans),
        step,
        max(plan.n_requests for plan in plans),
        max(plan.n_slots for plan in plans),
        max(plan.slot_chunks for plan in plans),
        max(0, -(-chunks // n_chunks) - 1),
        max(
            (step.chunks for plan in plans for step in plan.instructions if step.request != NONE),
            default=0,
        ),
        shifts,
    )


def _planned_rows(r: Round, schedule: Schedule, step: int | None) -> Iterator[_Row]:
    """Yield the rows of a round, those of rank 0 alone where ranks turn."""
    turns = np.zeros(len(r), np.int64) if step is None else _turns(r, schedule, step)
    planned = np.flatnonzero((r.src == 0) | (r.dst == 0) | (step is None))
    pieces, row = r.select(planned).pieces()
    columns = [column.tolist() for column in pieces.columns]
    columns.append(turns[planned][row].tolist())
    return map(_Row._make, zip(*columns, strict=True))


def _chunk_step(schedule: Schedule) -> int | None:
    """Return `SchedulePlan.chunk_step`.

    Ranks turn where in each round the transfers from a rank, in their order, are those from rank 0
    with all ranks that much higher and chunks so many steps or none, and those to a rank likewise.
    """
    step = 0
    if schedule.p == 1 or schedule.collective.is_rooted:
        return None
    for r in schedule.rounds():
        runs = (one for one in (r.src_runs, r.dst_runs) if one)
        if any(one.modulus != schedule.n_chunks for one in runs):
            return None
        for side in (r.src, r.src_chunk, r.dst), (r.dst, r.dst_chunk, r.src):
            found = _side_steps(r, *side, schedule)
            if found is None:
                return None
            steps = set(found.tolist()) - {0, step}
            if len(steps) > 1 or (steps and step):
                return None
            step = steps.pop() if steps else step
    return step


def _side_steps(
    r: Round, rank: Int32Array, chunk: Int32Array, peer: Int32Array, schedule: Schedule
) -> IntArray | None:
    """Return by how much the chunks of each row lie above those of the rank below it.

    None where ranks do not turn.
    """
    p, n_chunks = schedule.p, schedule.n_chunks
    ranks, order = np.arange(p)[:, None], np.argsort(rank, kind="stable")
    if len(r) % p or (rank[order].reshape(p, -1) != ranks).any():
        return None
    peers, chunks, counts, codes = (
        column[order].reshape(p, -1) for column in (peer, chunk, r.count, r.reduce)
    )
    steps = (chunks[1] - chunks[0]) % n_chunks
    own = (chunks - steps * ranks) % n_chunks
    turned = ((peers - ranks) % p, own, chunks // n_chunks, counts, codes)
    if any((column != column[0]).any() for column in turned):
        return None
    found = np.empty(len(r), np.int64)
    found[order] = np.broadcast_to(steps, chunks.shape).reshape(-1)
    return found


def _turns(r: Round, schedule: Schedule, step: int) -> IntArray:
    """Return `Instruction.turns` of each row of a round in which ranks turn."""
    sides = (r.src, r.src_chunk, r.dst), (r.dst, r.dst_chunk, r.src)
    source, target = (np.asarray(_side_steps(r, *side, schedule)) == step for side in sides)
    turns: IntArray = source * SOURCE_TURNS + target * TARGET_TURNS
    return turns
