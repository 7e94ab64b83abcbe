"""Groups of ranks that communicate side by side, and the simulated times of their calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from tuner.base.arrays import IntArray
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.schedule import Round, Schedule
from tuner.core.table import SCHEDULE, AlgorithmChoice
from tuner.prediction.block_counts import Routing, expert_counts
from tuner.prediction.call_predictor import CallPredictor
from tuner.topology import Placement
from tuner.training.recorded import SEND
from tuner.training.token_dispatch import TokenDispatch

MAX_TOKEN_CHUNKS = 1 << 22  # into which the tokens of a rank are divided
DISPATCH = "token dispatch"  # operation of a call that has a `TokenDispatch`
MESSAGE = AlgorithmChoice("message", runner=SCHEDULE)
UNNAMED = Collective.BCAST  # of schedules that are no collective; they are timed as its calls are


class Group(NamedTuple):
    """A kind of group: `size` ranks at distance `stride`; every rank of the job is in one of them.

    Ranks 0, stride, 2 stride, ... form the first group.

    ends_of     if not 0, the groups are the first and the last ranks of groups of so many ranks at
                this distance, and the ranks between them are in none
    """

    size: int
    stride: int = 1
    ends_of: int = 0

    def members(self, p: int) -> IntArray:
        """Return the ranks of all groups among p, shape (groups, size).

        Raises InputError unless the groups fill the job.
        """
        if self.ends_of:
            return Group(self.ends_of, self.stride).members(p)[:, [0, -1]]
        if p % (self.size * self.stride):
            raise InputError(
                f"{p} ranks cannot be divided into groups of {self.size} ranks at distance"
                f" {self.stride}: the product of the parallel degrees must divide the ranks"
            )
        blocks = np.arange(p).reshape(-1, self.size, self.stride)
        return blocks.transpose(0, 2, 1).reshape(-1, self.size)


def even_group(ranks: Sequence[int], placement: Placement) -> Group:
    """Return the groups of as many ranks, at equal distances, that resemble one of other ranks.

    These are on about as many nodes, and as far as possible with as many ranks on each. Raises
    InputError where groups of as many ranks do not fill the job.
    """
    size, p = len(ranks), placement.p
    nodes, ppn = _shape(ranks, placement)

    def difference(stride: int) -> tuple[int, int]:
        own_nodes, own_ppn = _shape(Group(size, stride).members(p)[0], placement)
        return abs(own_nodes - nodes), abs(own_ppn - ppn)

    strides = [one for one in range(1, p // size + 1) if p % (size * one) == 0]
    return Group(size, min(strides or [1], key=difference))


def _shape(ranks: Sequence[int] | IntArray, placement: Placement) -> tuple[int, int]:
    """Return the number of nodes of some ranks, and the largest number of them on one."""
    return Placement(placement.topology, placement.node_of[np.asarray(ranks)]).shape


class Call(NamedTuple):
    """A call of a collective, or another operation, by all groups of one kind at once.

    operation   the value of a `Collective`, or SEND: each first member sends one message to the
                second; or DISPATCH
    nbytes      bytes of the whole buffer, as for a `Collective`; those of dropped tokens included;
                of DISPATCH those of a rank's tokens
    routing     of the tokens that the call carries to experts; None for equal blocks
    dispatch    how the messages of DISPATCH go
    """

    operation: str
    nbytes: int
    group: Group
    routing: Routing | None = None
    dispatch: TokenDispatch | None = None

    @property
    def own_algorithm(self) -> AlgorithmChoice | None:
        """Return what carries out an operation that is no `Collective`; None for a `Collective`."""
        if self.dispatch:
            return AlgorithmChoice(self.dispatch.dispatcher, runner=SCHEDULE)
        return MESSAGE if self.operation == SEND else None


def simulate_groups(
    call: Call, choice: AlgorithmChoice, predictor: CallPredictor, calls: int = 1
) -> float:
    """Return the seconds of a call by all groups of a job at once, which share links and ports.

    predictor   predictor on the ranks of the job
    calls       how often the call is made, one after the other

    Raises InputError and ScheduleError for an algorithm that is not for groups of this size, or
    that no schedule describes.
    """
    counted = None if call.dispatch else call.routing
    if counted:
        predictor = replace(predictor, counts=expert_counts(counted, call.group.size))
    p = predictor.placement.p
    own = _dispatch(call, predictor) if call.dispatch else _own_schedule(call, choice, predictor)
    whole = own if own.p == p else _side_by_side(own, call.group.members(p), p)
    if calls > 1:
        whole = _repeated(whole, calls)
    nbytes = own.n_chunks * predictor.itemsize if counted else call.nbytes
    kernels = calls * call.dispatch.kernel_seconds if call.dispatch else 0.0
    return kernels + predictor.simulated_seconds(whole, nbytes)


def _own_schedule(call: Call, choice: AlgorithmChoice, predictor: CallPredictor) -> Schedule:
    """Return the schedule of one group."""
    size = call.group.size
    if call.operation == SEND:
        return Schedule(UNNAMED, size, 1, lambda: [Round.of([0], 1, 0)], choice.algorithm)
    return predictor.schedule(Collective(call.operation), choice, call.nbytes, size)


def _dispatch(call: Call, predictor: CallPredictor) -> Schedule:
    """Return the schedule of all groups, whose messages depend on the nodes of each."""
    assert call.dispatch is not None
    node_of, p = predictor.placement.node_of, predictor.placement.p
    chunks = min(call.nbytes, MAX_TOKEN_CHUNKS)
    members = call.group.members(p)
    rounds = partial(call.dispatch.rounds, chunks, members, node_of, call.routing)
    return Schedule(UNNAMED, p, chunks, rounds, call.dispatch.dispatcher)


def _side_by_side(own: Schedule, members: IntArray, p: int) -> Schedule:
    """Return the schedule of all groups, each of which does the same."""

    def rounds() -> Iterator[Round]:
        for r in own.rounds():
            rest = (np.tile(column, len(members)) for column in r.columns[2:])
            ends = members[:, r.src].ravel(), members[:, r.dst].ravel()
            yield Round.of(*ends, *rest, src_runs=r.src_runs, dst_runs=r.dst_runs)

    return replace(own, collective=UNNAMED, p=p, root=0, make_rounds=rounds)


def _repeated(own: Schedule, calls: int) -> Schedule:
    """Return the schedule of several calls; a rank begins one when it is done with the last."""

    def rounds() -> Iterator[Round]:
        for _ in range(calls):
            yield from own.rounds()

    return replace(own, collective=UNNAMED, make_rounds=rounds)
