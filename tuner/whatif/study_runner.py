"""Running a study: planning its tasks, having them executed, and assembling the points."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing

from tuner.base.errors import InputError, TunerError
from tuner.whatif.executors import Executor, run_serial
from tuner.whatif.nccl_times import NCCL, OPTIONAL_ALGORITHMS, SIMULATION
from tuner.whatif.study_candidates import Candidate
from tuner.whatif.study_checkpoint import Checkpoint, OpenCheckpoint
from tuner.whatif.study_result import (
    StudyPoint,
    StudyResult,
    TimedCandidate,
    axis_steps,
    crossovers,
    summarise_table_regret,
)
from tuner.whatif.study_spec import Study
from tuner.whatif.study_tasks import PlannedPoint, StudyPlan, StudyTask, TaskTimes, plan_study
from tuner.whatif.table_regret import compute_table_regret

MAX_CORE_SECONDS = 1e6  # days on the cores of a node, hours on a cluster
SIGNIFICANT_DIGITS = 12  # of times by which candidates are ordered; further ones are rounding

StudyProgressCallback = Callable[[float, str], None]  # (fraction done, description)


class CancelledError(TunerError):
    """Raised when a study is cancelled before its end."""


def _no_progress(_fraction: float, _text: str) -> None:
    pass


def _never_cancelled() -> bool:
    return False


def _no_checkpoint(_study: Study, _tasks: Sequence[StudyTask]) -> Checkpoint:
    return Checkpoint()


def run_study(
    study: Study,
    progress: StudyProgressCallback = _no_progress,
    is_cancelled: Callable[[], bool] = _never_cancelled,
    executor: Executor = run_serial,
    open_checkpoint: OpenCheckpoint = _no_checkpoint,
) -> StudyResult:
    """Simulate a study; the same study gives the same result with every executor.

    progress            called repeatedly with the fraction of the work that is done
    is_cancelled        called repeatedly; CancelledError is raised when it returns True
    executor            what evaluates the tasks, see `executors` and `dask_executor`
    open_checkpoint     returns the checkpoint, with the times of an earlier run if there are any

    Raises InputError, before anything is simulated, when there is too much to simulate.
    """
    todo = plan_study(study, _EffortLimit(is_cancelled))
    answers = open_checkpoint(study, todo.tasks)
    _execute(study, todo, answers, executor, _ProgressReporter(todo, progress, is_cancelled))
    points = tuple(_point(study, planned, answers.times) for planned in todo.points)
    return StudyResult(
        study.name,
        study.topology.name,
        study.axes,
        points,
        tuple(crossovers(points, study.axes)),
        summarise_table_regret(points),
        tuple(axis_steps(points, study.axes)),
    )


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


class _ProgressReporter:
    """A reporter of progress that raises CancelledError when the study is cancelled."""

    def __init__(
        self,
        study_plan: StudyPlan,
        progress: StudyProgressCallback,
        is_cancelled: Callable[[], bool],
    ) -> None:
        self._tasks, self._total_s = study_plan.tasks, study_plan.core_seconds
        self._progress, self._is_cancelled = progress, is_cancelled
        self._done_s, self._done_tasks = 0.0, 0

    def add(self, numbers: Sequence[int]) -> None:
        if self._is_cancelled():
            raise CancelledError("the study was cancelled")
        self._done_tasks += len(numbers)
        self._done_s += sum(self._tasks[number].core_seconds for number in numbers)
        text = f"{self._done_tasks} of {len(self._tasks)} schedules"
        self._progress(min(1.0, self._done_s / self._total_s), text)


def _execute(
    study: Study,
    study_plan: StudyPlan,
    checkpoint: Checkpoint,
    executor: Executor,
    progress: _ProgressReporter,
) -> None:
    progress.add(list(checkpoint.times))
    left = {i: task for i, task in enumerate(study_plan.tasks) if i not in checkpoint.times}
    with closing(executor(study, left)) as arriving:
        for answered in arriving:
            for number, answer in answered:
                checkpoint.add(number, answer)
            progress.add([number for number, _ in answered])


def _point(study: Study, planned: PlannedPoint, answers: Mapping[int, TaskTimes]) -> StudyPoint:
    timings = tuple(sorted(_timings(planned, answers), key=_rounded_seconds))
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
    return StudyPoint(
        at,
        planned.collective,
        planned.nbytes,
        timings,
        planned.skipped,
        cost,
        "" if study.algorithms else _nccl_choice(timings),
        planned.limit,
    )


def _nccl_choice(timings: Sequence[TimedCandidate]) -> str:
    """Return what NCCL chooses by itself: what it expects to be the fastest."""
    own = (t.algorithm for t in timings if t.predicted_by == NCCL)
    return next((name for name in own if name not in OPTIONAL_ALGORITHMS), "")


def _timings(planned: PlannedPoint, answers: Mapping[int, TaskTimes]) -> Iterator[TimedCandidate]:
    """Yield timings in the order of candidates, without those not for this rank count."""
    for candidate, task, call in planned.calls:
        seconds = answers[task]
        if seconds is not None:
            of_nccl = candidate.algorithm in planned.of_nccl and not candidate.params
            yield _timing(candidate, seconds[call], NCCL if of_nccl else SIMULATION)


def _timing(candidate: Candidate, seconds: float, predicted_by: str) -> TimedCandidate:
    return TimedCandidate(candidate.algorithm, candidate.params, seconds, predicted_by)


def _rounded_seconds(timing: TimedCandidate) -> float:
    """Round a time, so that of equally fast candidates the first in their order is the best."""
    return float(f"{timing.seconds:.{SIGNIFICANT_DIGITS}g}")
