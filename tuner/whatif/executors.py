"""Executors of a study's tasks in this process and over the cores of this computer.

An executor yields lists of (task number, times) in any order, and an empty list every few tenths of
a second, so that the caller can stop by closing the iterator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing

from tuner.base.errors import TunerError
from tuner.base.processes import available_cores
from tuner.whatif.checked_study import Study
from tuner.whatif.study_tasks import StudyTask, TaskEvaluator, TaskTimes

TaskResults = list[tuple[int, TaskTimes]]
Executor = Callable[[Study, Mapping[int, StudyTask]], Generator[TaskResults]]

MAX_SERIAL_S = 0.5  # time spent in this process before others are started for the rest
MAX_SHORT_TASK_S = 0.05  # longest task done in this process, as nothing interrupts a task
BATCH_TARGET_S = 0.25  # work that is sent to another process together
MAX_TIMES_PER_BATCH = 400  # with more, a killed process could leave a half-written answer


def run_serial(study: Study, tasks: Mapping[int, StudyTask]) -> Generator[TaskResults]:
    """Evaluate the tasks one after the other in this process."""
    price = TaskEvaluator(study)
    for number, task in tasks.items():
        yield [(number, price(task))]


def make_parallel_executor(processes: int | None = None) -> Executor:
    """Return an executor over the cores of this computer.

    processes   how many to start; by default as many as cores this process may use

    Short tasks are done in this process for up to MAX_SERIAL_S, so that a small study starts no
    other process.
    """
    number = processes or available_cores()

    def carry(study: Study, tasks: Mapping[int, StudyTask]) -> Generator[TaskResults]:
        left = dict(tasks)
        begun = time.monotonic()
        for answered in run_serial(study, _short_tasks(tasks)):
            left.pop(answered[0][0])
            yield answered
            if time.monotonic() - begun > MAX_SERIAL_S:
                break
        if left:
            yield from _run_in_processes(study, left, number)

    return carry


def _short_tasks(tasks: Mapping[int, StudyTask]) -> dict[int, StudyTask]:
    """Return the tasks of less than MAX_SHORT_TASK_S, shortest first."""
    short = [number for number, task in tasks.items() if task.core_seconds < MAX_SHORT_TASK_S]
    return {number: tasks[number] for number in sorted(short, key=lambda n: tasks[n].core_seconds)}


def batch_tasks(tasks: Mapping[int, StudyTask]) -> list[list[int]]:
    """Group tasks of one machine into batches of about BATCH_TARGET_S, the longest batch first."""
    found: list[list[int]] = []
    place, effort, answers = (-1, "", 1.0), 0.0, 0
    for number, task in tasks.items():
        answers += len(task.sizes)
        here = task.grid_index, task.changed, task.factor
        if here != place or effort >= BATCH_TARGET_S or answers > MAX_TIMES_PER_BATCH:
            found.append([])
            place, effort, answers = here, 0.0, len(task.sizes)
        found[-1].append(number)
        effort += task.core_seconds
    return sorted(found, key=lambda one: -sum(tasks[number].core_seconds for number in one))


def _run_in_processes(
    study: Study, tasks: Mapping[int, StudyTask], processes: int
) -> Iterator[TaskResults]:
    from concurrent.futures.process import BrokenProcessPool  # small studies start no process

    from tuner.sim.process_pool import map_unordered

    with closing(
        map_unordered(_make_batch_evaluator, (study, tasks), batch_tasks(tasks), processes)
    ) as found:
        try:
            for answers in found:
                yield [pair for answered in answers for pair in answered]
        except BrokenProcessPool:
            raise TunerError(
                "a process of the study was killed, often for want of memory: the same command"
                " goes on; --jobs with a smaller number needs less"
            ) from None


def _make_batch_evaluator(
    study: Study, tasks: Mapping[int, StudyTask]
) -> Callable[[Sequence[int]], TaskResults]:
    price = TaskEvaluator(study)
    return lambda batch: [(number, price(tasks[number])) for number in batch]
