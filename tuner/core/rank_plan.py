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

from tuner.base.arrays import IntArray
from tuner.base.errors import ScheduleError
from tuner.core.schedule import NO_REDUCTION, Round, Runs, Schedule

MAX_ROUNDS_AHEAD = 8  # rounds that a send may last before its rank waits for it
NONE = -1
SOURCE_SHIFTED = 1  # bits of `Instruction.shifted`
TARGET_SHIFTED = 2
SOURCE = 0  # sides of a row
TARGET = 1


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
    shifted         where ranks turn, which of source and target are `rank * chunk_step` chunks
                    further on: SOURCE_SHIFTED and TARGET_SHIFTED
    runs            number in `SchedulePlan.runs` of a copy whose chunks are not consecutive
    """

    kind: InstructionKind
    request: int = NONE
    source: int = NONE
    target: int = NONE
    chunks: int = 0
    peer: int = NONE
    shifted: int = 0
    runs: int = NONE


BothRuns = tuple[Runs | None, Runs | None]  # of source and target


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a round, whose buffers have `n_chunks` chunks; `shifted` as of an `Instruction`."""

    src: int
    dst: int
    src_chunk: int
    dst_chunk: int
    chunks: int
    reduce: int
    shifted: int
    runs: BothRuns
    n_chunks: int

    def is_deferred_at(self, rank: int) -> bool:
        """Return whether a rank writes its target with the reductions, not on arrival."""
        return self.dst == rank and (self.src == self.dst or self.reduce != NO_REDUCTION)

    def end_at(self, rank: int) -> int:
        """Return the chunk after the last one that a rank reads or writes, at most."""
        ends = [self._range(self.src_chunk, self.runs[0], True)[1]] * (self.src == rank)
        ends += [self._range(self.dst_chunk, self.runs[1], True)[1]] * (self.dst == rank)
        return max(ends)

    def reads_from(self, written: Iterable[_Row]) -> bool:
        """Return whether its source may overlap the target of any of these rows, on any rank."""
        return any(self._reads_from(row) for row in written)

    def _reads_from(self, row: _Row) -> bool:
        is_rigid = bool(self.shifted & SOURCE_SHIFTED) == bool(row.shifted & TARGET_SHIFTED)
        first, end = self._range(self.src_chunk, self.runs[0], is_rigid)
        start, stop = row._range(row.dst_chunk, row.runs[1], is_rigid)
        return first < stop and start < end

    def _range(self, first: int, runs: Runs | None, is_rigid: bool) -> tuple[int, int]:
        """Return the first chunk and the one after the last, at most."""
        end = first + self.chunks
        if runs is not None:
            begin = first // runs.modulus * runs.modulus
            return begin, begin + runs.modulus
        if is_rigid:
            return first, end
        return first // self.n_chunks * self.n_chunks, -(-end // self.n_chunks) * self.n_chunks


class _Send(NamedTuple):
    """A send that may still be in progress, and the round in which it started."""

    request: int
    row: _Row
    round_number: int


@dataclass
class _RankPlan:
    """The instructions of one rank as they are collected.

    runs        the runs of all ranks, by number
    free        numbers of requests that are complete
    """

    rank: int
    runs: dict[BothRuns, int]
    instructions: list[Instruction] = field(default_factory=list)
    pending: list[_Send] = field(default_factory=list)
    free: list[int] = field(default_factory=list)
    n_requests: int = 0
    n_slots: int = 0
    slot_chunks: int = 0
    rounds: int = 0
    chunks: int = 0  # up to the last one that is used

    def add_round(self, rows: Sequence[_Row]) -> None:
        """Add the instructions of a round: start its transfers, reduce in order, wait."""
        rank, number = self.rank, self.rounds
        self.rounds += 1
        self.chunks = max(self.chunks, *(row.end_at(rank) for row in rows))
        self._wait_for_due_sends([row for row in rows if row.dst == rank], number)
        # what is only moved goes to chunks that the round does not read
        written = [row for row in rows if row.dst == rank and row.reduce != NO_REDUCTION]
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
        runs = NONE if row.runs == (None, None) else self.runs.setdefault(row.runs, len(self.runs))
        self.instructions.append(
            Instruction(kind, request, source, target, row.chunks, peer, row.shifted, runs)
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

    Ranks turn where all carry out the instructions of rank 0, with peers that lie as many ranks
    above as they do themselves, and with some of the chunks shifted by `chunk_step` for each rank,
    modulo the number of chunks.

    ranks           instructions of each rank; those of rank 0 alone where ranks turn
    chunk_step      None where ranks do not turn
    runs            of source and target of copies whose chunks do not follow one another
    n_requests      most messages that one rank has in progress at once
    n_slots         most parts that one rank has set aside at once
    slot_chunks     chunks that are set aside at once at most
    scratch_buffers scratch of each of `ranks`, in multiples of the user's buffer
    message_chunks  chunks of the longest message
    shifts          whether some rank moves a chunk to a slot of another index: counts must then be
                    multiples of the number of chunks
    """

    ranks: tuple[tuple[Instruction, ...], ...]
    chunk_step: int | None
    runs: tuple[BothRuns, ...]
    n_requests: int
    n_slots: int
    slot_chunks: int
    scratch_buffers: tuple[int, ...]
    message_chunks: int
    shifts: bool


def plan_schedule(schedule: Schedule, max_transfers: float = math.inf) -> SchedulePlan:
    """Return the instructions of every rank of a schedule.

    Raises ScheduleError for more transfers than `max_transfers`, where ranks do not turn.
    """
    step = _chunk_step(schedule)
    if step is None and sum(map(len, schedule.rounds())) > max_transfers:
        raise ScheduleError(f"{schedule} has more than {max_transfers} transfers, too many to list")
    runs, shifts, longest = dict[BothRuns, int](), False, 0
    plans = [_RankPlan(rank, runs) for rank in range(schedule.p if step is None else 1)]
    for r in schedule.rounds():
        rows = dict[int, list[_Row]]()
        for row in _planned_rows(r, schedule, step):
            for rank in {row.src, row.dst}:
                rows.setdefault(rank, []).append(row)
        shifts |= r.has_runs or bool(((r.src_chunk - r.dst_chunk) % schedule.n_chunks).any())
        longest = max(longest, int(r.count[r.src != r.dst].max(initial=0)))
        for plan in plans:
            if plan.rank in rows:
                plan.add_round(rows[plan.rank])
    for plan in plans:
        plan.finish()
    return SchedulePlan(
        tuple(tuple(plan.instructions) for plan in plans),
        step,
        tuple(runs),
        max(plan.n_requests for plan in plans),
        max(plan.n_slots for plan in plans),
        max(plan.slot_chunks for plan in plans),
        tuple(max(0, -(-plan.chunks // schedule.n_chunks) - 1) for plan in plans),
        longest,
        shifts,
    )


def _planned_rows(r: Round, schedule: Schedule, step: int | None) -> Iterator[_Row]:
    """Yield the rows of a round, those of rank 0 alone where ranks turn."""
    shifted = np.zeros(len(r), np.int64)
    if step is not None:
        for side, flag in ((SOURCE, SOURCE_SHIFTED), (TARGET, TARGET_SHIFTED)):
            shifted += np.where(np.asarray(_chunk_steps(r, side, schedule)) != 0, flag, 0)
    planned = np.flatnonzero((r.src == 0) | (r.dst == 0) | (step is None))
    columns: list[list[int]] = [column[planned].tolist() for column in r.columns]
    columns.append(shifted[planned].tolist())
    runs = r.src_runs, r.dst_runs
    for src, dst, first, into, count, reduce, own in zip(*columns, strict=True):
        yield _Row(src, dst, first, into, count, reduce, own, runs, schedule.n_chunks)


def _chunk_step(schedule: Schedule) -> int | None:
    """Return `SchedulePlan.chunk_step`: in every round chunks are shifted by this or by nothing."""
    if schedule.p == 1 or schedule.collective.is_rooted:
        return None
    step = 0
    for r in schedule.rounds():
        for side in (SOURCE, TARGET):
            found = _chunk_steps(r, side, schedule)
            steps = set() if found is None else set(found.tolist()) - {0, step}
            if found is None or len(steps) > 1 or (steps and step):
                return None
            step = steps.pop() if steps else step
    return step


def _chunk_steps(r: Round, side: int, schedule: Schedule) -> IntArray | None:
    """Return by how much the chunks of each row lie above those of the rank below, shape (rows,).

    None unless the transfers of each rank on this side, in their order, are those of rank 0 with
    ranks and chunks that much higher, within the same buffer.
    """
    p, n_chunks = schedule.p, schedule.n_chunks
    rank, peer, chunk, runs = (
        (r.src, r.dst, r.src_chunk, r.src_runs),
        (r.dst, r.src, r.dst_chunk, r.dst_runs),
    )[side]
    ranks, order = np.arange(p)[:, None], np.argsort(rank, kind="stable")
    if len(r) % p or (rank[order].reshape(p, -1) != ranks).any():
        return None
    peers, chunks, counts, codes = (
        column[order].reshape(p, -1) for column in (peer, chunk, r.count, r.reduce)
    )
    fits = chunks % n_chunks + counts <= n_chunks if runs is None else runs.modulus == n_chunks
    steps = (chunks[1] - chunks[0]) % n_chunks
    own = (chunks - steps * ranks) % n_chunks
    turned = ((peers - ranks) % p, own, chunks // n_chunks, counts, codes)
    if not np.all(fits) or any((column != column[0]).any() for column in turned):
        return None
    found = np.empty(len(r), np.int64)
    found[order] = np.broadcast_to(steps, chunks.shape).reshape(-1)
    return found
