"""The predicted times of the collective calls of a job.

A call is predicted once for each signature. A size between two simulated ones gets the time on the
straight line between theirs, so that searches over bucket sizes simulate few calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np

from tuner.core.calibration import Calibration
from tuner.core.collective import Collective
from tuner.core.path_classes import NETWORK_BIDIRECTIONAL, NETWORK_RING
from tuner.core.table import AlgorithmChoice
from tuner.machines.model_accuracy import NCCL, SIMULATION
from tuner.prediction.block_counts import expert_counts
from tuner.prediction.call_predictor import CallPredictor
from tuner.prediction.nccl_times import NcclTimes, nccl_times
from tuner.sim.simulation_cache import SimulationCache
from tuner.topology import Placement
from tuner.training.groups import Call, Group, simulate_groups

COARSE_BYTES = 1 << 20  # up to here all powers of two are simulated, above it those of four
PART = 4  # nodes of a larger part of a machine over those of the smaller one it is compared with
OUT_OF_STEP_RATIO = 1.02  # of the times of a call, from which on its messages are long


class TimedAlgorithm(NamedTuple):
    """The algorithm of a call, and its seconds.

    choice      the algorithm as it is simulated; None for one of NCCL's
    """

    algorithm: str
    seconds: float
    choice: AlgorithmChoice | None = None

    @property
    def predicted_by(self) -> str:
        """Return the model that predicts the time: NCCL or SIMULATION."""
        return SIMULATION if self.choice else NCCL


class AlgorithmPolicy(Protocol):
    """A policy that chooses the algorithms of collective calls."""

    def choose(self, call: Call, times: CallTimes) -> TimedAlgorithm:
        """Return the algorithm for a call with its time; raise InputError if there is none."""


class CallTimes:
    """The predicted times of the calls of one job.

    placement       ranks of the job
    memory          kind of memory that the buffers are in
    latency_factor  factor of the latencies of NCCL's own model
    of_fewer_nodes  returns the times on some number of the first nodes, under the same policy; by
                    default they are of this job alone
    """

    def __init__(
        self,
        placement: Placement,
        calibration: Calibration,
        memory: str,
        policy: AlgorithmPolicy,
        latency_factor: float = 1.0,
        of_fewer_nodes: Callable[[int], CallTimes] | None = None,
    ) -> None:
        self.placement, self.calibration, self.memory = placement, calibration, memory
        self.policy, self.latency_factor = policy, latency_factor
        self._predictor = CallPredictor(
            placement, calibration, memory, simulations=SimulationCache(calibration)
        )
        self._of_fewer_nodes = of_fewer_nodes or self._of_first_nodes
        self._chosen: dict[Call, TimedAlgorithm] = {}
        self._simulated: dict[tuple[Call, AlgorithmChoice], float] = {}
        self._of_groups: dict[Group, CallPredictor] = {}
        self._on_fewer: dict[int, CallTimes] = {}
        self._out_of_step: dict[Call, float] = {}

    @property
    def world(self) -> Group:
        return Group(self.placement.p)

    @property
    def nodes(self) -> int:
        return self.placement.shape[0]

    def knows(self, call: Call) -> bool:
        return call in self._chosen

    def seconds(self, call: Call) -> float:
        return self.timed(call).seconds

    def timed(self, call: Call) -> TimedAlgorithm:
        """Return the algorithm and the seconds of a call, 0 of a single rank or without any bytes.

        Raises InputError where the policy knows no algorithm.
        """
        if call.group.size == 1 or call.nbytes == 0:
            return TimedAlgorithm("none", 0.0)
        if call not in self._chosen:
            own = call.own_algorithm
            self._chosen[call] = (
                TimedAlgorithm(own.algorithm, self.simulated(call, own), own)
                if own
                else self.policy.choose(call, self)
            )
        return self._chosen[call]

    def seconds_after(self, before: Call | None, call: Call) -> float:
        """Return the seconds that a call adds when ranks make it as soon as another one ends.

        Ranks that begin together are in step in the first round of a call. They are not after a
        call with long messages, and then messages of receivers that send themselves take longer
        from the first round on, where the calibration knows by how much.

        before      the call before; None if ranks begin together
        """
        if before is None or not self._leaves_out_of_step(before):
            return self.seconds(call)
        return self._out_of_step_seconds(call)

    def _leaves_out_of_step(self, call: Call) -> bool:
        """Return whether ranks are out of step after a call: it is slower itself if they are."""
        return self._out_of_step_seconds(call) > OUT_OF_STEP_RATIO * self.seconds(call)

    def _out_of_step_seconds(self, call: Call) -> float:
        """Return the seconds of two calls in a row less those of one."""
        choice = self.timed(call).choice if self._knows_exchanges else None
        if choice is None:
            return self.seconds(call)
        if call not in self._out_of_step:
            one, two = (simulate_groups(call, choice, self._predictor, calls) for calls in (1, 2))
            self._out_of_step[call] = two - one
        return self._out_of_step[call]

    @property
    def _knows_exchanges(self) -> bool:
        """Return whether the calibration has messages whose receivers send at the same time."""
        classes = {path_class for path_class, _ in self.calibration.paths}
        return not classes.isdisjoint((NETWORK_BIDIRECTIONAL, NETWORK_RING))

    def shape(self, group: Group) -> tuple[int, int]:
        """Return the number of nodes of a group, and its largest number of ranks on one of them."""
        return self.predictor(group).placement.shape

    def predictor(self, group: Group) -> CallPredictor:
        """Return the predictor of calls by one group while all others do nothing.

        It has NCCL's model where that holds for all groups at once: NCCL can run, and a group
        shares no port of its nodes with others.
        """
        if group not in self._of_groups:
            placement, memory = self.placement, self.memory
            members = group.members(placement.p)[0]
            on_its_nodes = np.isin(placement.node_of, placement.node_of[members]).sum()
            own = Placement(placement.topology, placement.node_of[members])
            alone = group.size == on_its_nodes or own.shape[0] == 1
            nccl = nccl_times(own, memory, self.latency_factor) if alone else None
            self._of_groups[group] = replace(self._predictor, placement=own, nccl=nccl)
        return self._of_groups[group]

    def nccl(self, group: Group) -> NcclTimes | None:
        return self.predictor(group).nccl

    def of_nccl(self, call: Call, algorithm: str) -> TimedAlgorithm:
        """Return an algorithm of NCCL's with the time of a call by its model, which must hold."""
        predictor = self.predictor(call.group)
        if call.routing:
            counts = expert_counts(call.routing, call.group.size)
            predictor = replace(predictor, counts=counts)
        choice = AlgorithmChoice(algorithm)
        seconds = predictor.seconds(Collective(call.operation), choice, call.nbytes)
        return TimedAlgorithm(algorithm, seconds)

    def simulated(self, call: Call, choice: AlgorithmChoice) -> float:
        """Return the simulated seconds of an algorithm.

        Raises InputError, ScheduleError, LimitExceededError or MissingCostError as simulations do.
        """
        low, high = simulated_sizes(call.nbytes)
        first = self._simulated_at(call._replace(nbytes=low), choice)
        if low == high:
            return first
        second = self._simulated_at(call._replace(nbytes=high), choice)
        return first + (second - first) * (call.nbytes - low) / (high - low)

    def extrapolated(self, most: int, call: Call, choice: AlgorithmChoice) -> float:
        """Return the seconds of an algorithm, from simulations of at most `most` nodes.

        On more nodes the time grows on with the same power of the number of nodes as between two
        parts of the machine, of which the larger has a power of two fewer nodes than the job, as
        algorithms depend on it. Raises the errors of `simulated`.
        """
        nodes = self.nodes
        if nodes <= most or call.group != self.world:
            return self.simulated(call, choice)
        larger = part_of(nodes, most)
        smaller = max(1, larger // PART)
        first, second = (
            times.simulated(call._replace(group=times.world), choice)
            for times in (self.on_fewer_nodes(smaller), self.on_fewer_nodes(larger))
        )
        further = math.log(nodes / larger) / math.log(larger / smaller)
        return float(second * (second / first) ** further) if first else second

    def _simulated_at(self, call: Call, choice: AlgorithmChoice) -> float:
        known = (call, choice)
        if known not in self._simulated:
            self._simulated[known] = simulate_groups(call, choice, self._predictor)
        return self._simulated[known]

    def on_fewer_nodes(self, nodes: int) -> CallTimes:
        """Return the times on the first nodes of the job, under the same policy."""
        if nodes not in self._on_fewer:
            self._on_fewer[nodes] = self._of_fewer_nodes(nodes)
        return self._on_fewer[nodes]

    def _of_first_nodes(self, nodes: int) -> CallTimes:
        few = self.placement.node_of < nodes
        placement = Placement(self.placement.topology, self.placement.node_of[few])
        return CallTimes(placement, self.calibration, self.memory, self.policy, self.latency_factor)


def part_of(nodes: int, most: int) -> int:
    """Return a number of nodes halved until it is at most `most`."""
    while nodes > most:
        nodes //= 2
    return nodes


def simulated_sizes(nbytes: int) -> tuple[int, int]:
    """Return the nearest sizes that are simulated, not above and not below a size in bytes."""
    power = nbytes.bit_length() - 1
    step = 1 if nbytes <= COARSE_BYTES else 2
    low = 1 << (power - power % step)
    return (low, low) if low == nbytes else (low, low << step)
