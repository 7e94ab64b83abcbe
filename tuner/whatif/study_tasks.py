"""The tasks of a study: each simulates one schedule on one machine at all sizes that share it.

All executors use `TaskEvaluator`, which is a pure function of the study and the task, so any
process on any computer gives the same numbers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from tuner.algorithms import describe
from tuner.base.errors import InputError, LimitExceededError, MissingCostError
from tuner.core.collective import Collective
from tuner.core.path_classes import BLOCK
from tuner.core.table import RuleKey
from tuner.machines import Machine
from tuner.mpi_libraries.nccl import CURRENT_VERSION, NcclLimits, known_release, version_cautions
from tuner.prediction.call_candidates import (
    Candidate,
    estimate_transfers,
    is_in_network,
    is_run_by_nccl,
    list_candidates,
    schedule_key,
)
from tuner.prediction.call_predictor import CallPredictor, NoPrediction
from tuner.prediction.nccl_times import NcclTimes, nccl_times
from tuner.sim.rounds import MAX_CALL_TRANSFERS
from tuner.topology import CUDA
from tuner.whatif.axes import (
    MACHINE_AXIS,
    NCCL_AXIS,
    UPLINK_AXES,
    GridPoint,
    nccl_release,
    place_ranks,
)
from tuner.whatif.checked_study import Study
from tuner.whatif.machine_resources import (
    IMPROVEMENT,
    RESOURCE_NAMES,
    nccl_factors,
    studied_resources,
    with_faster,
)
from tuner.whatif.study_summary import place
from tuner.whatif.table_regret import TableLookup, look_up_exported

MAX_CACHED_MACHINES = 4  # per process, with their routes; tasks are ordered by machine
MAX_CACHED_OFFERS = 256  # lists of candidates of one collective, shape and size
TASK_OVERHEAD_S = 2e-3  # time to build and simulate the smallest schedule
TRANSFER_S = 3e-8  # time per transfer and size
IN_NETWORK_TRANSFER_S = 4e-6  # the same where the network combines or replicates messages

# Seconds at each size, None where it is too large; None instead of the list: not for this rank
# count, without a cost, or of a machine without the resource that would be faster
TaskTimes = list[float | None] | None


@dataclass(frozen=True)
class StudyTask:
    """One schedule on the machine at one point of the grid.

    params          with the segment of the first size; at the others the segment differs, and cuts
                    the message into as many pieces
    core_seconds    estimated seconds of one core
    changed         resource that is `factor` times as fast as the machine's own, if any
    """

    grid_index: int
    collective: Collective
    algorithm: str
    params: Mapping[str, int]
    sizes: tuple[int, ...]
    core_seconds: float
    changed: str = ""
    factor: float = IMPROVEMENT


@dataclass(frozen=True)
class PlannedPoint:
    """One point of a study, with candidates to simulate and candidates skipped.

    calls       candidate, number of its task, index of the call in the task
    of_nccl     algorithms whose times are predicted from NCCL's model
    """

    grid_index: int
    collective: Collective
    nbytes: int
    calls: tuple[tuple[Candidate, int, int], ...]
    skipped: tuple[str, ...]
    table_lookup: TableLookup | None
    of_nccl: tuple[str, ...] = ()


class TaskEvaluator:
    """An evaluator of tasks of one study that caches the last machines; it can be pickled.

    machine     returns the machine at one point of the grid
    """

    def __init__(self, study: Study) -> None:
        self._study = study
        self.machine = lru_cache(1)(self._changed_machine)
        self._cached_predictor = lru_cache(MAX_CACHED_MACHINES)(self._new_predictor)

    def __reduce__(self) -> tuple[type[TaskEvaluator], tuple[Study]]:
        return TaskEvaluator, (self._study,)

    def __call__(self, task: StudyTask, longest: Sequence[float] | None = None) -> TaskTimes:
        """Return the times of a task, or None if the schedule cannot be simulated.

        longest     seconds at each size beyond which a time may be infinite instead, as it then is
                    found sooner

        None is also the case for buffers in GPU memory staged through hosts whose messages have no
        cost. Raises MissingCostError where other messages have none.
        """
        predictor = self._cached_predictor(task.grid_index, task.changed, task.factor)
        if predictor is None:
            return None
        choice = Candidate(task.algorithm, task.params).choice
        limits = longest or [math.inf] * len(task.sizes)
        try:
            found = predictor.predict_sizes(task.collective, choice, task.sizes, limits)
        except MissingCostError as reason:
            if not task.changed:  # costs of paths of one rate hold for no others
                raise
            found = [NoPrediction(reason)] * len(task.sizes)
        return _task_times(found, costs_may_lack=bool(task.changed))

    def nccl_choice(self, planned: PlannedPoint) -> tuple[str, float | None]:
        """Return what NCCL chooses by itself at a point, and its seconds; "" if not known.

        It may be none of the candidates, where a study names them.
        """
        study, at = self._study, self._study.grid[planned.grid_index]
        times = self.predictor(planned.grid_index).nccl if at["memory"] == CUDA else None
        if times is None:
            return "", None
        known = study.known_algorithms(planned.collective, at)
        names = [name for name in times.algorithms(planned.collective) if name in known]
        chosen = times.choice(planned.collective, names, planned.nbytes) if names else ""
        if not chosen:
            return "", None
        return chosen, times.seconds(planned.collective, chosen, planned.nbytes)

    def predictor(self, grid_index: int) -> CallPredictor:
        """Return the predictor on the machine at one point of the grid."""
        found = self._cached_predictor(grid_index, "", IMPROVEMENT)
        assert found is not None
        return found

    def _changed_machine(self, grid_index: int) -> Machine:
        return self._study.machine_at(self._study.grid[grid_index])

    def nccl_limits(
        self, grid_index: int, collective: Collective, algorithm: str, nbytes: int
    ) -> NcclLimits:
        """Return what limits a call whose time NCCL's model predicts."""
        times = self.predictor(grid_index).nccl
        assert times is not None
        return times.limits(collective, algorithm, nbytes)

    def _new_predictor(self, grid_index: int, changed: str, factor: float) -> CallPredictor | None:
        """Return the predictor on a machine; None if that lacks the resource `changed`."""
        study, at = self._study, self._study.grid[grid_index]
        machine, memory = self.machine(grid_index), str(at["memory"])
        is_measured = study.calibration is not None
        if changed:
            has_nccl = not is_measured and memory == CUDA
            if changed not in studied_resources(machine, has_nccl):
                return None
            machine = with_faster(machine, changed, factor)
        return CallPredictor.of_machine(
            place_ranks(machine, at),
            machine.calibration,
            memory,
            with_nccl=not is_measured,
            nccl_factors=nccl_factors(changed, factor),
            nccl_version=nccl_release(at),
        )


def _task_times(found: Sequence[float | NoPrediction], *, costs_may_lack: bool) -> TaskTimes:
    """Return the predictions of a task as its times."""
    passing = (LimitExceededError, MissingCostError) if costs_may_lack else LimitExceededError
    if all(isinstance(one, float) or isinstance(one.reason, passing) for one in found):
        return [one if isinstance(one, float) else None for one in found]
    return None


@dataclass(frozen=True)
class StudyPlan:
    """All points of a study in order, and the tasks that they need."""

    points: tuple[PlannedPoint, ...]
    tasks: tuple[StudyTask, ...]

    @property
    def core_seconds(self) -> float:
        return sum(task.core_seconds for task in self.tasks)


def plan_study(study: Study, on_progress: Callable[[float], None]) -> StudyPlan:
    """Return the points and tasks of a study.

    on_progress     called with the core seconds of each machine and collective

    Raises InputError for a point at which nothing can be simulated.
    """
    points: list[PlannedPoint] = []
    tasks: list[StudyTask] = []
    simulated: dict[object, _SimulatedCalls] = defaultdict(dict)
    for grid_index, at in enumerate(study.grid):
        on = tuple(value for axis, value in at.items() if axis != NCCL_AXIS)
        for collective in study.collectives:
            known = simulated[on, collective]
            machine = _TaskCollector(study, grid_index, collective, len(tasks), known)
            points += [machine.plan_point(nbytes) for nbytes in study.sizes]
            tasks += machine.tasks()
            on_progress(sum(task.core_seconds for task in tasks[machine.first_task :]))
    return StudyPlan(tuple(points), tuple(tasks))


BestCall = tuple[Candidate, int, int]  # of a point, as in `PlannedPoint.calls`


class SensitivityTask(NamedTuple):
    """A task that simulates calls of another one with a resource faster or slower.

    number      number of the other task
    calls       indices of the calls in it
    """

    number: int
    calls: tuple[int, ...]
    task: StudyTask


def plan_sensitivities(
    plan: StudyPlan, best: Iterable[BestCall], factor: float
) -> list[SensitivityTask]:
    """Return tasks that simulate the best candidates with each resource changed, by machine.

    factor  how many times as fast a resource becomes
    """
    by_task: dict[int, dict[int, BestCall]] = defaultdict(dict)
    for one in best:
        by_task[one[1]][one[2]] = one
    found = [
        _with_resource(number, plan.tasks[number], [*calls.values()], resource, factor)
        for resource in RESOURCE_NAMES
        for number, calls in by_task.items()
    ]
    return sorted(found, key=lambda one: one.task.grid_index)  # of one machine resource by resource


def _with_resource(
    number: int, task: StudyTask, best: Sequence[BestCall], resource: str, factor: float
) -> SensitivityTask:
    calls = tuple(call for _, _, call in best)
    changed = replace(
        task,
        params=dict(best[0][0].params),
        sizes=tuple(task.sizes[call] for call in calls),
        core_seconds=task.core_seconds * len(calls) / len(task.sizes),
        changed=resource,
        factor=factor,
    )
    return SensitivityTask(number, calls, changed)


def _times_of_nccl_on_few_nodes(study: Study, at: GridPoint, version: str) -> NcclTimes | None:
    """Return NCCL's times on at most two nodes of the machine, which are built in no time.

    version     of NCCL
    """
    if at["memory"] != CUDA or study.calibration is not None:
        return None
    few = {**at, "nodes": min(2, int(at["nodes"]))}
    few = {axis: value for axis, value in few.items() if axis not in UPLINK_AXES}
    ranks = place_ranks(study.machine_at(few), few)
    return nccl_times(ranks, CUDA, version=version)


def about_nccl_versions(study: Study) -> list[str]:
    """Return sentences on the versions of NCCL that choose; none where none are named."""
    releases = {str(one): known_release(str(one)) for one in study.axes.get(NCCL_AXIS, ())}
    found = [f"NCCL {one} chooses as {own} does." for one, own in releases.items() if own != one]
    offering = {(at.get(MACHINE_AXIS), at.get("gpu"), at.get(NCCL_AXIS)): at for at in study.grid}
    for at in offering.values() if releases else ():
        if times := _times_of_nccl_on_few_nodes(study, at, nccl_release(at)):
            found += version_cautions(times.version, times.compute_capability)
    return list(dict.fromkeys(found))


def algorithms_at(
    study: Study, at: GridPoint, collective: Collective
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the algorithms that a point's NCCL has, and those to study: without newer ones of it.

    Raises InputError where that leaves none to study.
    """
    own, newest = (
        times.algorithms(collective) if times else ()
        for version in (nccl_release(at), CURRENT_VERSION)
        for times in [_times_of_nccl_on_few_nodes(study, at, version)]
    )
    named = study.algorithm_names(collective, at)
    names = tuple(name for name in named if name in own or name not in newest)
    if not names:
        raise InputError(
            f"{collective} has none of {', '.join(study.algorithms or named)} at"
            f" {place(at, tuple(at))}: leave that out, or choose other algorithms"
        )
    return own, names


# Number of the task, and index of the call in it, by schedule and size
_SimulatedCalls = dict[tuple[tuple[object, ...], int], tuple[int, int]]


class _TaskCollector:
    """A collector of the calls of one collective on one machine, one task for each schedule.

    simulated   calls simulated on this machine that do not depend on the version of NCCL, to which
                its own are added
    """

    def __init__(
        self,
        study: Study,
        grid_index: int,
        collective: Collective,
        first_task: int,
        simulated: _SimulatedCalls,
    ) -> None:
        self.study = study
        self.grid_index = grid_index
        self.collective = collective
        self.first_task = first_task
        at = study.grid[grid_index]
        self.nodes, self.ppn = int(at["nodes"]), int(at["ppn"])
        self.p = self.nodes * self.ppn
        self.key = RuleKey(
            collective,
            self.nodes,
            self.ppn,
            str(at["memory"]),
            placement=str(at.get("placement", BLOCK)),
        )
        self.of_nccl, self.names = algorithms_at(study, at, collective)
        self._simulated = simulated
        self._task_of_schedule: dict[tuple[object, ...], int] = {}
        self._calls: list[list[tuple[_Offer, int]]] = []

    def plan_point(self, nbytes: int) -> PlannedPoint:
        offered = _offers(
            self.collective, self.names, self.nodes, self.ppn, nbytes, tuple(self.of_nccl)
        )
        rules = self._look_up(nbytes)
        ruled = rules.candidate if rules is not None and rules.key else None
        if ruled and all(ruled != one.candidate for one in offered):
            offered = (*offered, _offer(self.collective, ruled, self.p, nbytes, self.of_nccl))
        able = [one for one in offered if one.transfers <= MAX_CALL_TRANSFERS]
        if not able:
            raise InputError(
                f"{self.collective} on {self.p} ranks: every candidate has more than"
                f" {MAX_CALL_TRANSFERS} transfers; study a smaller machine or other algorithms"
            )
        left_out = tuple(
            str(one.candidate) for one in offered if one.transfers > MAX_CALL_TRANSFERS
        )
        calls = tuple(self._call(one, nbytes) for one in able)
        own_names = tuple(name for name in self.of_nccl if name in self.names)
        return PlannedPoint(
            self.grid_index, self.collective, nbytes, calls, left_out, rules, own_names
        )

    def tasks(self) -> list[StudyTask]:
        return [self._task(calls) for calls in self._calls]

    def _look_up(self, nbytes: int) -> TableLookup | None:
        table = self.study.table
        if table is None:
            return None
        return look_up_exported(table, self.key, nbytes)

    def _call(self, offer: _Offer, nbytes: int) -> tuple[Candidate, int, int]:
        if is_run_by_nccl(offer.candidate.choice, self.of_nccl):
            return offer.candidate, *self._new_call(offer, nbytes)
        key = offer.schedule, nbytes
        if key not in self._simulated:
            self._simulated[key] = self._new_call(offer, nbytes)
        return offer.candidate, *self._simulated[key]

    def _new_call(self, offer: _Offer, nbytes: int) -> tuple[int, int]:
        """Add a call to the task of its schedule; return the task's number and the call's index."""
        alike = self._task_of_schedule.setdefault(offer.schedule, len(self._task_of_schedule))
        if alike == len(self._calls):
            self._calls.append([])
        self._calls[alike].append((offer, nbytes))
        return self.first_task + alike, len(self._calls[alike]) - 1

    def _task(self, calls: list[tuple[_Offer, int]]) -> StudyTask:
        offer, candidate = calls[0][0], calls[0][0].candidate
        entry = describe(self.collective, candidate.algorithm)
        each = IN_NETWORK_TRANSFER_S if is_in_network(entry) else TRANSFER_S
        return StudyTask(
            self.grid_index,
            self.collective,
            candidate.algorithm,
            dict(candidate.params),
            tuple(size for _, size in calls),
            TASK_OVERHEAD_S + each * offer.transfers * len(calls),
        )


@dataclass(frozen=True)
class _Offer:
    """A candidate for one size.

    transfers   estimated number of them
    schedule    equal for calls that share a schedule
    """

    candidate: Candidate
    transfers: float
    schedule: tuple[object, ...]


@lru_cache(MAX_CACHED_OFFERS)
def _offers(
    collective: Collective,
    names: tuple[str, ...],
    nodes: int,
    ppn: int,
    nbytes: int,
    of_nccl: tuple[str, ...],
) -> tuple[_Offer, ...]:
    """Return the candidates for one size; rates and latencies of the machine change none."""
    candidates = list_candidates(collective, names, nodes, ppn, nbytes, of_nccl)
    return tuple(_offer(collective, one, nodes * ppn, nbytes, of_nccl) for one in candidates)


def _offer(
    collective: Collective, candidate: Candidate, p: int, nbytes: int, of_nccl: Sequence[str]
) -> _Offer:
    is_of_nccl = is_run_by_nccl(candidate.choice, of_nccl)
    transfers = 1.0 if is_of_nccl else estimate_transfers(collective, candidate, p, nbytes)
    return _Offer(candidate, transfers, schedule_key(collective, candidate, p, nbytes))
