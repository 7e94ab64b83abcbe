"""Running a study: planning its tasks, having them executed, and assembling the points."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from tuner.base.errors import InputError, TunerError
from tuner.machines import Machine
from tuner.machines.model_accuracy import NCCL, SIMULATION, SizedCall
from tuner.prediction.call_candidates import is_run_by_nccl
from tuner.prediction.ordering import rounded_seconds
from tuner.whatif.axes import MACHINE_AXES, MACHINE_AXIS, NODE_LINK_AXES, UPLINK_AXES
from tuner.whatif.break_even import with_break_even
from tuner.whatif.checked_study import Study
from tuner.whatif.executors import Executor, run_serial
from tuner.whatif.library_default import title_of_default
from tuner.whatif.machine_resources import (
    IMPROVEMENT,
    RESOURCE_NAMES,
    SLOWING,
    resources_of_nccl,
    share_of_time,
)
from tuner.whatif.prices import count_parts, machine_price
from tuner.whatif.study_checkpoint import Checkpoint, OpenCheckpoint
from tuner.whatif.study_result import (
    MachineValue,
    StudyPoint,
    StudyResult,
    TimedCandidate,
    axis_steps,
    crossovers,
    machine_values,
    summarise_table_regret,
)
from tuner.whatif.study_summary import summarise
from tuner.whatif.study_tasks import (
    BestCall,
    PlannedPoint,
    SensitivityTask,
    StudyPlan,
    StudyTask,
    TaskEvaluator,
    TaskTimes,
    about_nccl_versions,
    plan_sensitivities,
    plan_study,
)
from tuner.whatif.study_verdicts import verdicts
from tuner.whatif.table_regret import compute_table_regret

OTHER_MACHINES = {*MACHINE_AXES, *UPLINK_AXES, *NODE_LINK_AXES}  # axes that change costs
MAX_CORE_SECONDS = 1e6  # days on the cores of a node, hours on a cluster

StudyProgressCallback = Callable[[float, str], None]  # (fraction done, description)


class CancelledError(TunerError):
    """Raised when a study is cancelled before its end."""


def run_study(
    study: Study,
    progress: StudyProgressCallback = lambda *_: None,
    is_cancelled: Callable[[], bool] = lambda: False,
    executor: Executor = run_serial,
    open_checkpoint: OpenCheckpoint = lambda *_: Checkpoint(),
) -> StudyResult:
    """Simulate a study; the same study gives the same result with every executor.

    progress            called repeatedly with the fraction of the work that is done
    is_cancelled        called repeatedly; CancelledError is raised when it returns True
    executor            what evaluates the tasks, see `executors` and `dask_executor`
    open_checkpoint     returns the checkpoint, with the times of an earlier run if there are any

    Raises InputError, before anything is simulated, when there are too many candidates to simulate.
    """
    todo = plan_study(study, _EffortLimit(is_cancelled))
    share = _share_of_candidates(study, todo)
    run = _Run(study, progress, is_cancelled, executor, open_checkpoint)
    times = run.evaluate(todo.tasks, (0.0, share), "schedules")
    evaluator = TaskEvaluator(study)
    points = tuple(_point(study, evaluator, planned, times) for planned in todo.points)
    if study.limits:
        points = tuple(_limited_points(run, todo, points, evaluator, share))
    steps = tuple(with_break_even(study, one, points) for one in axis_steps(points, study.axes))
    values = tuple(_machine_values(study, points))
    return StudyResult(
        study.name,
        study.title,
        study.axes,
        points,
        tuple(crossovers(points, study.axes)),
        summarise_table_regret(points),
        steps,
        values,
        " ".join([summarise(points, study.axes, values), *about_nccl_versions(study)]),
        verdicts(points, study.axes, steps),
        _accuracy(study, points),
        title_of_default(study.table) if study.table else "",
    )


def _limited_points(
    run: _Run, todo: StudyPlan, points: Sequence[StudyPoint], evaluator: TaskEvaluator, begin: float
) -> Iterator[StudyPoint]:
    """Yield the points with what limits their best candidates.

    begin   fraction of the progress at which that begins
    """
    best = [_best_call(*pair) for pair in zip(todo.points, points, strict=True)]
    changed = plan_sensitivities(todo, best, IMPROVEMENT)
    changed += plan_sensitivities(todo, _simulated(best, points), SLOWING)
    times = run.evaluate([one.task for one in changed], (begin, 1.0), "limits")
    limited = _times_by_call(changed, times)
    for planned, point, call in zip(todo.points, points, best, strict=True):
        yield _with_limits(planned, point, limited[call[1:]], evaluator)


def _accuracy(study: Study, points: Sequence[StudyPoint]) -> str:
    """Return how far predictions were off on the machines; "" for costs that were measured."""
    if study.calibration is not None:
        return ""
    return " ".join(_accuracy_on(machine, study, points) for machine in study.all_machines)


def _accuracy_on(machine: Machine, study: Study, points: Sequence[StudyPoint]) -> str:
    """Return how far predictions of the calls on one machine, on its nodes, were off."""
    own = [
        point
        for point in points
        if point.axis_values.get(MACHINE_AXIS, machine.name) == machine.name
    ]
    predicted = defaultdict[str, dict[SizedCall, None]](dict)
    for point in own:
        nodes = int(study.with_shape(point.axis_values)["nodes"])
        for one in point.candidates:
            predicted[one.predicted_by][SizedCall(point.collective, nodes, point.nbytes)] = None
    changed = not OTHER_MACHINES.isdisjoint(study.axes)
    return machine.accuracy_sentence(predicted, changed=changed)


def _machine_values(study: Study, points: Sequence[StudyPoint]) -> Iterator[MachineValue]:
    if study.prices:
        parts = [count_parts(study.machine_at(at).topology) for at in study.grid]
        prices = [
            (machine_price(study.prices, own, at), own)
            for own, at in zip(parts, study.coordinates, strict=True)
        ]
        yield from machine_values(prices, points, study.coordinates)


class _EffortLimit:
    """A limit on the planned work that stops the planning, which may itself take long."""

    def __init__(self, is_cancelled: Callable[[], bool]) -> None:
        self._is_cancelled = is_cancelled
        self._core_seconds = 0.0

    def __call__(self, core_seconds: float) -> None:
        if self._is_cancelled():
            raise CancelledError("the study was cancelled")
        self._core_seconds += core_seconds
        if self._core_seconds > MAX_CORE_SECONDS:
            raise InputError(
                f"the study would take more than {MAX_CORE_SECONDS / 3600:.0f} hours on one core:"
                " give fewer values, sizes or algorithms, or smaller machines"
            )


def _share_of_candidates(study: Study, plan: StudyPlan) -> float:
    """Return the share of all work that is for candidates and not for what limits the best."""
    if not study.limits:
        return 1.0
    calls = sum(len(point.calls) for point in plan.points)
    return calls / (calls + 2 * len(plan.points) * len(RESOURCE_NAMES))


@dataclass(frozen=True)
class _Run:
    """What runs the tasks of a study; see `run_study` for its parts."""

    study: Study
    progress: StudyProgressCallback
    is_cancelled: Callable[[], bool]
    executor: Executor
    open_checkpoint: OpenCheckpoint

    def evaluate(
        self, tasks: Sequence[StudyTask], stretch: tuple[float, float], what: str
    ) -> dict[int, TaskTimes]:
        """Return the times of all tasks by number.

        stretch     fractions of the progress at which they begin and end
        """
        checkpoint = self.open_checkpoint(self.study, tasks)
        done = _ProgressReporter(tasks, self, stretch, what)
        done.add(list(checkpoint.times))
        left = {i: task for i, task in enumerate(tasks) if i not in checkpoint.times}
        with closing(self.executor(self.study, left)) as arriving:
            for answered in arriving:
                for number, answer in answered:
                    checkpoint.add(number, answer)
                done.add([number for number, _ in answered])
        return checkpoint.times


class _ProgressReporter:
    """A reporter of progress that raises CancelledError when the study is cancelled."""

    def __init__(
        self, tasks: Sequence[StudyTask], run: _Run, stretch: tuple[float, float], what: str
    ) -> None:
        self._tasks, self._run, self._stretch, self._what = tasks, run, stretch, what
        self._total_s = sum(task.core_seconds for task in tasks)
        self._done_s, self._done_tasks = 0.0, 0

    def add(self, numbers: Sequence[int]) -> None:
        if self._run.is_cancelled():
            raise CancelledError("the study was cancelled")
        self._done_tasks += len(numbers)
        self._done_s += sum(self._tasks[number].core_seconds for number in numbers)
        begin, end = self._stretch
        fraction = begin + (end - begin) * min(1.0, self._done_s / self._total_s)
        self._run.progress(fraction, f"{self._done_tasks} of {len(self._tasks)} {self._what}")


def _best_call(planned: PlannedPoint, point: StudyPoint) -> BestCall:
    return next(call for call in planned.calls if point.best.is_same(call[0]))


def _simulated(best: Sequence[BestCall], points: Sequence[StudyPoint]) -> Iterator[BestCall]:
    """Yield the best calls of which slower resources tell what limits them."""
    for call, point in zip(best, points, strict=True):
        if point.best.predicted_by == SIMULATION:
            yield call


# Factor by which a resource was changed, and the resource -> seconds, None where it has no cost
ChangedTimes = dict[tuple[float, str], float | None]


def _times_by_call(
    changed: Sequence[SensitivityTask], answers: Mapping[int, TaskTimes]
) -> Mapping[tuple[int, int], ChangedTimes]:
    """Return the times on changed machines, by number of the task and index of the call in it."""
    found: dict[tuple[int, int], ChangedTimes] = defaultdict(dict)
    for number, one in enumerate(changed):
        seconds = answers[number]
        for call, own in zip(one.calls, seconds, strict=True) if seconds is not None else ():
            found[one.number, call][one.task.factor, one.task.changed] = own
    return found


def _with_limits(
    planned: PlannedPoint, point: StudyPoint, times: ChangedTimes, evaluator: TaskEvaluator
) -> StudyPoint:
    """Return a point with its sensitivities and shares.

    There are none for calls that take no time, and for those of which one cannot be simulated.
    """
    if point.best.seconds <= 0.0 or not all(times.values()):
        return point
    gains, shares, rates = dict[str, float](), dict[str, float](), dict[str, float]()
    for (factor, resource), own in times.items():
        if factor == SLOWING:
            shares[resource] = share_of_time(point.best.seconds, own or 0.0)
        else:
            gains[resource] = point.best.seconds / (own or math.inf)
    if point.best.predicted_by == NCCL:
        call = planned.collective, point.best.algorithm, planned.nbytes
        limits = evaluator.nccl_limits(planned.grid_index, *call)
        shares, rates = map(resources_of_nccl, (limits.shares, limits.rates))
    return replace(point, sensitivities=gains, shares=shares, rates=rates)


def _point(
    study: Study, evaluator: TaskEvaluator, planned: PlannedPoint, answers: Mapping[int, TaskTimes]
) -> StudyPoint:
    timings = tuple(
        sorted(_timings(planned, answers), key=lambda timing: rounded_seconds(timing.seconds))
    )
    at = study.grid[planned.grid_index]
    if not timings:
        raise InputError(
            f"no algorithm of {planned.collective} is for {int(at['nodes']) * int(at['ppn'])} ranks"
        )
    cost = (
        None
        if planned.table_lookup is None
        else compute_table_regret(planned.table_lookup, timings)
    )
    nccl_choice, nccl_seconds = evaluator.nccl_choice(planned)
    return StudyPoint(
        study.coordinates[planned.grid_index],
        planned.collective,
        planned.nbytes,
        timings,
        tuple(_skipped(planned, answers)),
        cost,
        nccl_choice,
        nccl_seconds=nccl_seconds,
    )


def _timings(planned: PlannedPoint, answers: Mapping[int, TaskTimes]) -> Iterator[TimedCandidate]:
    """Yield timings in the order of candidates, without those not for this rank count."""
    for candidate, task, call in planned.calls:
        times = answers[task]
        seconds = times[call] if times is not None else None
        if seconds is not None:
            of_nccl = is_run_by_nccl(candidate.choice, planned.of_nccl)
            model = NCCL if of_nccl else SIMULATION
            yield TimedCandidate(candidate.algorithm, candidate.params, seconds, model)


def _skipped(planned: PlannedPoint, answers: Mapping[int, TaskTimes]) -> Iterator[str]:
    """Yield the candidates that were too large to plan, or to simulate at this size."""
    yield from planned.skipped
    for candidate, task, call in planned.calls:
        times = answers[task]
        if times is not None and times[call] is None:
            yield str(candidate)
