"""Running a study: it becomes tasks, somebody carries them out, points are made of the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing

from tuner.base.errors import InputError, TunerError
from tuner.whatif.executors import Carry, serially
from tuner.whatif.study_candidates import Candidate
from tuner.whatif.study_checkpoint import Answers, Keep
from tuner.whatif.study_result import StudyPoint, StudyResult, Timing, keeping, switches
from tuner.whatif.study_spec import Study
from tuner.whatif.study_tasks import Answer, Plan, Planned, Task, plan
from tuner.whatif.table_regret import kept

MOST_EFFORT = 1e6  # seconds of one core: days on the cores of a node, hours on a cluster
DIGITS = 12  # significant ones of a time by which candidates are ordered: beyond is rounding

Progress = Callable[[float, str], None]  # (fraction done, what is done)


class CancelledError(TunerError):
    """The study was stopped before its end."""


def _quietly(_fraction: float, _text: str) -> None:
    pass


def _never() -> bool:
    return False


def _forgotten(_study: Study, _tasks: Sequence[Task]) -> Answers:
    return Answers()


def run(
    study: Study,
    progress: Progress = _quietly,
    cancelled: Callable[[], bool] = _never,
    carry: Carry = serially,
    keep: Keep = _forgotten,
) -> StudyResult:
    """Simulate everything; the same study gives the same result, whoever carries it out.

    progress    called again and again with how much of the work is done
    cancelled   asked again and again; raises CancelledError when it says yes
    carry       who prices the tasks, see `carry` and `cluster`
    keep        where answers are kept, and those of an earlier run found

    Raises InputError, before anything is simulated, when there is too much to simulate.
    """
    todo = plan(study, _Limit(cancelled))
    answers = keep(study, todo.tasks)
    _carry_out(study, todo, answers, carry, _Watch(todo, progress, cancelled))
    points = tuple(_point(study, planned, answers.known) for planned in todo.points)
    return StudyResult(
        study.name,
        study.topology.name,
        study.axes,
        points,
        tuple(switches(points, study.axes)),
        keeping(points),
    )


class _Limit:
    """Stops the planning as soon as it is too much: to plan the rest may take long, too."""

    def __init__(self, cancelled: Callable[[], bool]) -> None:
        self._cancelled = cancelled
        self._effort = 0.0

    def __call__(self, effort: float) -> None:
        if self._cancelled():
            raise CancelledError("the study was cancelled")
        self._effort += effort
        if self._effort > MOST_EFFORT:
            raise InputError(
                f"the study would take more than {MOST_EFFORT / 3600:.0f} hours on one core: give"
                " fewer values, sizes or algorithms, or smaller machines"
            )


class _Watch:
    """Tells how far it is, and stops when it is told to."""

    def __init__(self, todo: Plan, progress: Progress, cancelled: Callable[[], bool]) -> None:
        self._tasks, self._whole = todo.tasks, todo.effort
        self._progress, self._cancelled = progress, cancelled
        self._done, self._number = 0.0, 0

    def add(self, numbers: Sequence[int]) -> None:
        if self._cancelled():
            raise CancelledError("the study was cancelled")
        self._number += len(numbers)
        self._done += sum(self._tasks[number].effort for number in numbers)
        text = f"{self._number} of {len(self._tasks)} schedules"
        self._progress(min(1.0, self._done / self._whole), text)


def _carry_out(study: Study, todo: Plan, answers: Answers, carry: Carry, watch: _Watch) -> None:
    watch.add(list(answers.known))
    left = {i: task for i, task in enumerate(todo.tasks) if i not in answers.known}
    with closing(carry(study, left)) as arriving:
        for answered in arriving:
            for number, answer in answered:
                answers.add(number, answer)
            watch.add([number for number, _ in answered])


def _point(study: Study, planned: Planned, answers: Mapping[int, Answer]) -> StudyPoint:
    timings = tuple(sorted(_timings(planned, answers), key=_rounded))
    at = study.places[planned.place]
    if not timings:
        raise InputError(
            f"no algorithm of {planned.collective} is for {int(at['nodes']) * int(at['ppn'])} ranks"
        )
    cost = None if planned.rules is None else kept(planned.rules, timings)
    return StudyPoint(at, planned.collective, planned.nbytes, timings, planned.left_out, cost)


def _timings(planned: Planned, answers: Mapping[int, Answer]) -> Iterator[Timing]:
    """In the order of candidates, without those that are not for so many ranks."""
    for candidate, task, call in planned.calls:
        seconds = answers[task]
        if seconds is not None:
            yield _timing(candidate, seconds[call])


def _timing(candidate: Candidate, seconds: float) -> Timing:
    return Timing(candidate.algorithm, candidate.params, seconds)


def _rounded(timing: Timing) -> float:
    """Of equally fast ones the first in the order of candidates is the best."""
    return float(f"{timing.seconds:.{DIGITS}g}")
