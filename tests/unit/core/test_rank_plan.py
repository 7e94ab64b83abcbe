"""Ranks that carry out their instructions, at any speed, do what the schedule means."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Generator

import numpy as np
import pytest

from tests.support.calls import ALL, every_schedule, inputs, matrix_product
from tuner.algorithms import build
from tuner.base.arrays import AnyArray
from tuner.core.collective import Collective
from tuner.core.interpret import interpret
from tuner.core.rank_plan import (
    MAX_ROUNDS_AHEAD,
    SOURCE_SHIFTED,
    TARGET_SHIFTED,
    BothRuns,
    Instruction,
    InstructionKind,
    SchedulePlan,
    plan_schedule,
)
from tuner.core.schedule import DST_OP_ARRIVING, Round, Schedule, make_schedule


class Message:
    """A send or a receive that has been started."""

    def __init__(self, part: AnyArray) -> None:
        self.part, self.is_complete = part, False


class Network:
    """Messages that overtake no other of the same two ranks, and move when their time comes."""

    def __init__(self) -> None:
        self.sends: dict[tuple[int, int], deque[Message]] = defaultdict(deque)
        self.receives: dict[tuple[int, int], deque[Message]] = defaultdict(deque)

    def deliver(self, generator: random.Random) -> bool:
        """Deliver one message that is expected, of any two ranks; return whether there is one."""
        ready = [ends for ends, queue in self.sends.items() if queue and self.receives[ends]]
        if not ready:
            return False
        ends = generator.choice(ready)
        send, receive = self.sends[ends].popleft(), self.receives[ends].popleft()
        receive.part[...] = send.part  # what stands there now: its rank must not have changed it
        send.is_complete = receive.is_complete = True
        return True


class Player:
    """A rank that carries out its instructions on its memory."""

    def __init__(
        self,
        schedule: Schedule,
        rank: int,
        buffer: AnyArray,
        network: Network,
        runs: tuple[BothRuns, ...],
    ) -> None:
        self.runs = runs
        self.rank, self.network, self.n = rank, network, schedule.n_chunks
        self.offsets = schedule.offsets(len(buffer))
        self.memory = np.zeros(
            ((1 + schedule.scratch_buffers) * len(buffer), *buffer.shape[1:]), np.int64
        )
        self.count = len(buffer)
        given = len(buffer) * schedule.collective.gives_in_scratch
        self.memory[given : given + len(buffer)] = buffer
        self.slots: dict[int, AnyArray] = {}
        self.requests: dict[int, Message] = {}
        self.is_blocked = False

    def window(self, first: int, chunks: int) -> AnyArray:
        """The chunks in memory: in the buffer, or in scratch."""
        begin, last = (
            chunk // self.n * self.count + self.offsets[chunk % self.n + after]
            for chunk, after in ((first, 0), (first + chunks - 1, 1))
        )
        part: AnyArray = self.memory[begin:last]
        return part

    def play(self, instructions: tuple[Instruction, ...]) -> Generator[None]:
        """Carry out all instructions; yields where another rank may run, or must."""
        for step in instructions:
            yield from self.carry_out(step)
            yield

    def carry_out(self, step: Instruction) -> Generator[None]:
        kind, request, source, target, chunks, peer, *_ = step
        if kind is InstructionKind.SEND:
            self.start(self.network.sends[self.rank, peer], request, self.window(source, chunks))
        elif kind is InstructionKind.RECEIVE_ASIDE:
            self.slots[source] = np.zeros_like(self.window(target, chunks))
            self.start(self.network.receives[peer, self.rank], request, self.slots[source])
        elif kind is InstructionKind.RECEIVE:
            self.start(self.network.receives[peer, self.rank], request, self.window(target, chunks))
        elif kind is InstructionKind.WAIT:
            message = self.requests.pop(request)
            while not message.is_complete:
                self.is_blocked = True
                yield
            self.is_blocked = False
        elif kind is InstructionKind.SET_ASIDE:
            self.slots[target] = self.window(source, chunks).copy()
        elif kind is InstructionKind.END_ROUND:
            self.slots.clear()
        elif step.runs >= 0:
            self.copy_runs(step)
        else:
            aside = kind in (InstructionKind.COPY_BACK, InstructionKind.REDUCE_BACK)
            self.combine(kind, self.slots[source] if aside else self.window(source, chunks), step)

    def copy_runs(self, step: Instruction) -> None:
        within = np.arange(step.chunks)
        first, into = (
            chunk + within if runs is None else runs.places(np.full_like(within, chunk), within)
            for chunk, runs in zip((step.source, step.target), self.runs[step.runs], strict=True)
        )
        for a, b in zip(first.tolist(), into.tolist(), strict=True):
            self.window(b, 1)[...] = self.window(a, 1)

    def combine(self, kind: InstructionKind, given: AnyArray, step: Instruction) -> None:
        into = self.window(step.target, step.chunks)
        if kind in (InstructionKind.COPY, InstructionKind.COPY_BACK):
            into[...] = given
        elif step.peer == DST_OP_ARRIVING:
            into[...] = matrix_product(into, given)
        else:
            into[...] = matrix_product(given, into)

    def start(self, queue: deque[Message], request: int, part: AnyArray) -> None:
        assert request not in self.requests
        self.requests[request] = Message(part)
        queue.append(self.requests[request])


MESSAGES = (InstructionKind.SEND, InstructionKind.RECEIVE, InstructionKind.RECEIVE_ASIDE)
SLOT_SOURCES = (
    InstructionKind.RECEIVE_ASIDE,
    InstructionKind.COPY_BACK,
    InstructionKind.REDUCE_BACK,
)


def turned(step: Instruction, rank: int, schedule: Schedule, chunk_step: int) -> Instruction:
    """The instruction of a rank for one of rank 0."""
    p, n = schedule.p, schedule.n_chunks

    def chunk(planned: int) -> int:
        return planned if planned < 0 else planned // n * n + (planned + rank * chunk_step) % n

    shifts_source = step.shifted & SOURCE_SHIFTED and step.kind not in SLOT_SOURCES
    shifts_target = step.shifted & TARGET_SHIFTED and step.kind is not InstructionKind.SET_ASIDE
    return step._replace(
        source=chunk(step.source) if shifts_source else step.source,
        target=chunk(step.target) if shifts_target else step.target,
        peer=(step.peer + rank) % p if step.kind in MESSAGES else step.peer,
    )


def program(schedule: Schedule, plan: SchedulePlan, rank: int) -> tuple[Instruction, ...]:
    if plan.chunk_step is None:
        return plan.ranks[rank]
    (first,) = plan.ranks
    return tuple(turned(step, rank, schedule, plan.chunk_step) for step in first)


def run(
    schedule: Schedule, plan: SchedulePlan, buffers: list[AnyArray], seed: int
) -> list[AnyArray]:
    """Let all ranks carry out their instructions, each at random speed."""
    network, generator = Network(), random.Random(seed)
    players = [Player(schedule, r, buffer, network, plan.runs) for r, buffer in enumerate(buffers)]
    running = {r: player.play(program(schedule, plan, r)) for r, player in enumerate(players)}
    while running:
        for rank in generator.sample([*running], len(running)):
            if next(running[rank], running) is running:
                del running[rank]
        blocked = running and all(players[rank].is_blocked for rank in running)
        assert network.deliver(generator) or not blocked
    assert not any(network.sends.values())
    assert not any(player.requests for player in players)
    return [player.memory[: len(buffers[0])] for player in players]


@pytest.mark.parametrize(("collective", "name"), ALL, ids=str)
@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
def test_ranks_do_what_the_schedule_means(collective: Collective, name: str, p: int) -> None:
    for schedule in every_schedule(collective, name, p, few=True):
        if schedule.in_network:
            continue
        plan = plan_schedule(schedule)
        buffers = inputs(p, 2 * schedule.n_chunks)
        expected = interpret(schedule, buffers, matrix_product)
        for seed in range(2):
            found = run(schedule, plan, buffers, seed)
            for mine, wanted in zip(found, expected, strict=True):
                np.testing.assert_array_equal(mine, wanted)


@pytest.mark.parametrize(
    ("collective", "name", "chunk_step"),
    [
        (Collective.ALLREDUCE, "ring", 1),
        (Collective.ALLREDUCE, "segmented_ring", 2),
        (Collective.ALLGATHER, "ring", 1),
        (Collective.BARRIER, "dissemination", 0),
        (Collective.ALLTOALL, "pairwise", 1),
        (Collective.ALLTOALL, "bruck", 1),
        (Collective.ALLTOALL, "node_aware", None),
        (Collective.ALLREDUCE, "recursive_doubling", None),
        (Collective.ALLGATHER, "bruck", None),
        (Collective.BCAST, "binomial", None),
    ],
)
def test_ranks_that_turn_share_the_instructions_of_rank_0(
    collective: Collective, name: str, chunk_step: int | None
) -> None:
    segment = {"segment": 1024} if name == "segmented_ring" else {}
    plan = plan_schedule(build(collective, name, 6, nbytes=2 * 6 * 1024, params=segment))
    assert plan.chunk_step == chunk_step
    assert len(plan.ranks) == (6 if chunk_step is None else 1)


def test_ranks_whose_transfers_differ_in_one_place_do_not_turn() -> None:
    ring = Round.of([0, 1, 2], [1, 2, 0], [0, 1, 2])
    assert plan_schedule(make_schedule(Collective.ALLGATHER, 3, 3, [ring])).chunk_step == 1
    for other in (
        Round.of([0, 1, 2], [1, 2, 0], [0, 1, 1]),
        Round.of([0, 1, 2], [1, 2, 0], [0, 1, 5]),
        Round.of([0, 1, 2], [1, 0, 2], [0, 1, 2]),
        Round.of([0, 1, 2], [1, 2, 0], [0, 1, 2], count=[2, 2, 1]),
        Round.of([0, 1, 2], [1, 2, 0], [0, 1, 2], reduce=[1, 1, 2]),
        Round.of([0, 1], [1, 2], [0, 1]),
    ):
        schedule = make_schedule(Collective.ALLGATHER, 3, 3, [ring, other])
        assert plan_schedule(schedule).chunk_step is None


def test_a_send_may_last_while_its_source_is_unchanged() -> None:
    rounds = [Round.of([0], [1], [0])] + [Round.of([0], [1], [1]) for _ in range(12)]
    plan = plan_schedule(make_schedule(Collective.BCAST, 2, 2, rounds))
    sender = plan.ranks[0]
    waits = [place for place, step in enumerate(sender) if step.kind is InstructionKind.WAIT]
    sends_before = [sum(s.kind is InstructionKind.SEND for s in sender[:place]) for place in waits]
    assert sends_before[0] == MAX_ROUNDS_AHEAD + 1
    assert plan.n_requests == MAX_ROUNDS_AHEAD + 1


def test_a_send_is_complete_before_its_source_is_written() -> None:
    rounds = [Round.of([0], [1], [0]), Round.of([1], [0], [0])]
    sender = plan_schedule(make_schedule(Collective.ALLREDUCE, 2, 1, rounds)).ranks[0]
    assert [step.kind for step in sender] == [
        InstructionKind.SEND,
        InstructionKind.WAIT,
        InstructionKind.RECEIVE,
        InstructionKind.WAIT,
    ]


def test_what_a_plan_needs() -> None:
    """Two arrivals of a round are reduced, each of two chunks, and scratch is used."""
    rounds = [Round.of([1, 2], [0, 0], [0, 0], [0, 2], count=2, reduce=DST_OP_ARRIVING)]
    plan = plan_schedule(make_schedule(Collective.ALLREDUCE, 3, 2, rounds))
    assert (plan.n_slots, plan.slot_chunks, plan.n_requests) == (2, 4, 2)
    assert plan.scratch_buffers == (1, 0, 0)
    assert not plan.shifts
    moved = make_schedule(Collective.BCAST, 2, 2, [Round.of([0], [1], [0], [1])])
    assert plan_schedule(moved).shifts
    assert plan_schedule(moved).scratch_buffers == (0, 0)
