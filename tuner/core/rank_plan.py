"""The part of each rank in a schedule, as a list of instructions.

A schedule says which transfers belong to a round. A rank that runs it needs to know more: when a
send must be complete because its source is written, and where arrivals wait that are reduced later.
Both depend only on the chunks, so they are settled here, once for all sizes of buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from tuner.core.schedule import NO_REDUCTION, Schedule

MAX_ROUNDS_AHEAD = 8  # rounds that a send may last before its rank waits for it
NONE = -1


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
    """

    kind: InstructionKind
    request: int = NONE
    source: int = NONE
    target: int = NONE
    chunks: int = 0
    peer: int = NONE


class _Row(NamedTuple):
    """A row of a round."""

    src: int
    dst: int
    src_chunk: int
    dst_chunk: int
    chunks: int
    reduce: int

    def is_deferred_at(self, rank: int) -> bool:
        """Return whether a rank writes its target with the reductions, not on arrival."""
        return self.dst == rank and (self.src == self.dst or self.reduce != NO_REDUCTION)

    def reads_from(self, written: Iterable[_Row]) -> bool:
        """Return whether its source overlaps the target of any of these rows."""
        end = self.src_chunk + self.chunks
        return any(
            self.src_chunk < row.dst_chunk + row.chunks and row.dst_chunk < end for row in written
        )


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
            if row.src == rank != row.dst and row.reads_from(written):
                self._wait(request)
        self._reduce(rows, requests, slots)
        for row, request in zip(rows, requests, strict=True):
            if row.dst == rank and request != NONE and not row.is_deferred_at(rank):
                self._wait(request)
            if row.src == rank != row.dst and not row.reads_from(written):
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
            if number - send.round_number > MAX_ROUNDS_AHEAD or send.row.reads_from(written)
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
            elif row.reads_from(written):
                slots[place] = len(slots)
                self.instructions.append(
                    Instruction(
                        InstructionKind.SET_ASIDE, NONE, row.src_chunk, slots[place], row.chunks
                    )
                )
        return slots

    def _start(self, rows: Sequence[_Row], slots: dict[int, int]) -> list[int]:
        """Start all messages, receives first; return their requests, NONE for local rows."""
        requests = [NONE if row.src == row.dst else self._new_request() for row in rows]
        for place, (row, request) in enumerate(zip(rows, requests, strict=True)):
            if request != NONE and row.dst == self.rank:
                aside = place in slots
                kind = InstructionKind.RECEIVE_ASIDE if aside else InstructionKind.RECEIVE
                into = slots[place] if aside else NONE
                self.instructions.append(
                    Instruction(kind, request, into, row.dst_chunk, row.chunks, row.src)
                )
        for row, request in zip(rows, requests, strict=True):
            if request != NONE and row.src == self.rank:
                self.instructions.append(
                    Instruction(
                        InstructionKind.SEND, request, row.src_chunk, NONE, row.chunks, row.dst
                    )
                )
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
            self.instructions.append(
                Instruction(kind, NONE, source, row.dst_chunk, row.chunks, row.reduce)
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

    ranks           instructions of each rank
    n_requests      most messages that one rank has in progress at once
    n_slots         most parts that one rank has set aside at once
    slot_chunks     chunks that are set aside at once at most
    uses_scratch    whether some transfer reads or writes scratch
    shifts          whether some rank moves a chunk to a slot of another index: counts must then be
                    multiples of the number of chunks
    """

    ranks: tuple[tuple[Instruction, ...], ...]
    n_requests: int
    n_slots: int
    slot_chunks: int
    uses_scratch: bool
    shifts: bool


def plan_schedule(schedule: Schedule) -> SchedulePlan:
    """Return the instructions of every rank of a schedule."""
    plans = [_RankPlan(rank) for rank in range(schedule.p)]
    n_chunks, scratch, shifts = schedule.n_chunks, False, False
    for r in schedule.rounds():
        rows = dict[int, list[_Row]]()
        for row in map(_Row._make, zip(*(column.tolist() for column in r.columns), strict=True)):
            for rank in {row.src, row.dst}:
                rows.setdefault(rank, []).append(row)
        scratch |= bool((r.src_chunk >= n_chunks).any() or (r.dst_chunk >= n_chunks).any())
        shifts |= bool(((r.src_chunk - r.dst_chunk) % n_chunks).any())
        for rank, own in rows.items():
            plans[rank].add_round(own)
    for plan in plans:
        plan.finish()
    return SchedulePlan(
        tuple(tuple(plan.instructions) for plan in plans),
        max(plan.n_requests for plan in plans),
        max(plan.n_slots for plan in plans),
        max(plan.slot_chunks for plan in plans),
        scratch,
        shifts,
    )
