"""What limits training: how many times as fast an iteration is with one thing twice as fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tuner.base.errors import LimitExceededError, MissingCostError
from tuner.training.call_times import CallTimes, TimedAlgorithm
from tuner.training.frameworks.parameter_server import ParameterServer
from tuner.training.groups import Call, Group
from tuner.training.iteration import PredictedIteration, make_job, predict_iteration
from tuner.training.policies import MOST_NODES
from tuner.training.timeline import CALL
from tuner.training.workload import Workload
from tuner.whatif.machine_resources import IMPROVEMENT, RESOURCE_NAMES, present_resources

COMPUTATION, COMMUNICATION, SERVERS = "computation", "communication", "servers"
LIMIT_NAMES: Mapping[str, str] = {  # for people
    COMPUTATION: "computation",
    COMMUNICATION: "all communication",
    SERVERS: "parameter servers",
    **RESOURCE_NAMES,
}
NEGLIGIBLE_SHARE = 0.02  # of an iteration, exposed, that limits nothing
MIN_SAVED_PART = 0.25  # of the exposed time, saved by communication twice as fast
SHORTEST = 1e-12  # seconds
Kind = tuple[str, Group, str]  # calls of one operation, group and algorithm


class ScaledTimes(CallTimes):
    """Times of calls, multiplied by a factor for each kind of calls.

    times       predicted times of the calls, as they are
    """

    def __init__(self, times: CallTimes, factors: Mapping[Kind, float]) -> None:
        super().__init__(
            times.placement, times.calibration, times.memory, times.policy, times.latency_factor
        )
        self._times, self._factors = times, factors

    def timed(self, call: Call) -> TimedAlgorithm:
        """Return the algorithm of the call, with the changed time."""
        timed = self._times.timed(call)
        return timed._replace(seconds=timed.seconds * self._factor(call))

    def seconds_after(self, before: Call | None, call: Call) -> float:
        """Return the changed seconds that a call adds after another one."""
        return self._times.seconds_after(before, call) * self._factor(call)

    def _factor(self, call: Call) -> float:
        kind = call.operation, call.group, self._times.timed(call).algorithm
        return self._factors.get(kind, 1.0)


def training_limits(
    workload: Workload, found: PredictedIteration, times: CallTimes
) -> dict[str, float]:
    """Return how many times as fast an iteration is with one thing twice as fast.

    Keys are COMPUTATION, COMMUNICATION (all calls) or SERVERS (the rates of parameter servers and
    of those that use them), and the resources of the machine. Algorithms and the number of servers
    stay. For a resource the calls of one operation, group and algorithm change as that one does
    which takes most time in all; it is left out where such a call cannot be simulated.

    times       times of the calls of `found`
    """
    faster = replace(workload, rate=replace(workload.rate, rate=IMPROVEMENT * workload.rate.rate))
    limits = {COMPUTATION: found.seconds / predict_iteration(faster, found.ranks, times).seconds}
    if isinstance(workload.framework, ParameterServer):
        return limits | _limits_of_servers(workload, workload.framework, found, times)
    longest = _longest_calls(found)
    if not longest:
        return limits
    halved = dict.fromkeys(longest, 1 / IMPROVEMENT)
    limits[COMMUNICATION] = found.seconds / _changed(workload, found, times, halved)
    machine, _ = workload.placement(found.ranks)
    for resource in present_resources(machine):
        try:
            factors = {
                kind: _factor_of_faster(workload, found.ranks, resource, call, times)
                for kind, call in longest.items()
            }
        except (MissingCostError, LimitExceededError):  # costs may be of paths of one rate alone
            continue
        if any(abs(factor - 1.0) > 1e-3 for factor in factors.values()):
            limits[resource] = found.seconds / _changed(workload, found, times, factors)
    return limits


def _limits_of_servers(
    workload: Workload, framework: ParameterServer, found: PredictedIteration, times: CallTimes
) -> dict[str, float]:
    """Return how many times as fast an iteration is with faster servers, and a faster machine."""
    if found.ranks == 1:
        return {}
    settled = framework.settled(make_job(workload, found.ranks, times))
    same, faster = (
        replace(workload, framework=one)
        for one in (settled, settled.with_faster_servers(IMPROVEMENT))
    )
    limits = {SERVERS: found.seconds / predict_iteration(faster, found.ranks, times).seconds}
    machine, _ = workload.placement(found.ranks)
    for resource in present_resources(machine):
        there = same.call_times(found.ranks, resource)
        gain = found.seconds / predict_iteration(same, found.ranks, there).seconds
        if abs(gain - 1.0) > 1e-3:
            limits[resource] = gain
    return limits


def _longest_calls(found: PredictedIteration) -> dict[Kind, Call]:
    """Return of each kind of calls the one that takes most time in all."""
    longest: dict[Kind, Call] = {}
    for one in sorted(found.calls, key=lambda one: one.count * one.seconds):
        if one.seconds > 0.0:
            longest[one.call.operation, one.call.group, one.algorithm] = one.call
    return longest


def _changed(
    workload: Workload, found: PredictedIteration, times: CallTimes, factors: Mapping[Kind, float]
) -> float:
    """Return the seconds of an iteration whose calls take longer or shorter by some factors."""
    return predict_iteration(workload, found.ranks, ScaledTimes(times, factors)).seconds


def _factor_of_faster(
    workload: Workload, ranks: int, resource: str, call: Call, times: CallTimes
) -> float:
    """Return the time of a call with the same algorithm on a faster machine, over that on this."""
    there = workload.call_times(ranks, resource)
    timed = times.timed(call)
    if timed.choice is not None:
        faster, now = (some.extrapolated(MOST_NODES, call, timed.choice) for some in (there, times))
        return faster / max(now, SHORTEST)
    if there.nccl(call.group) is None:
        raise MissingCostError(f"NCCL is not known on the machine with faster {resource}")
    return there.of_nccl(call, timed.algorithm).seconds / max(timed.seconds, SHORTEST)


def limiting_factor(limits: Mapping[str, float], found: PredictedIteration) -> str:
    """Return in words what limits an iteration.

    That is computation if a rank hardly waits, else what it waits for: the resource whose doubling
    saves a good part of the exposed time, parameter servers, all communication, or if faster
    communication saves little of it, other stages of a pipeline, slow ranks or cycles.
    """
    exposed = found.exposed / found.seconds
    if exposed < NEGLIGIBLE_SHARE:
        return LIMIT_NAMES[COMPUTATION]
    least = 1 / (1 - MIN_SAVED_PART * exposed)
    resources = {
        name: gain for name, gain in limits.items() if name in RESOURCE_NAMES or name == SERVERS
    }
    best = max(resources, key=lambda name: resources[name], default="")
    if best and resources[best] >= least:
        return LIMIT_NAMES[best]
    if any(one.phase == CALL and one.call is None for one in found.timeline):
        return LIMIT_NAMES[SERVERS]
    if limits.get(COMMUNICATION, 1.0) >= least:
        return COMMUNICATION
    piped = any(one.stream == "stage 1" for one in found.timeline)
    return "other stages" if piped else "slow ranks or cycles"
