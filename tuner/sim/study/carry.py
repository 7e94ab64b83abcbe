"""Ways to carry the tasks of a study out: here, in this process or over the cores of this computer.

Whoever asks gets lists of (task number, answer) in any order, and an empty list at least every
`TICK` seconds: then it can look whether it should stop. Closing the iterator stops everything.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection

from tuner.errors import TunerError
from tuner.sim.study.spec import Study
from tuner.sim.study.tasks import Answer, Pricer, Task
from tuner.sim.undisturbed import undisturbed

Answered = list[tuple[int, Answer]]
Carry = Callable[[Study, Mapping[int, Task]], Generator[Answered]]

TICK = 0.2  # seconds
ALONE = 0.5  # seconds of work that are done before other processes are started for the rest
SHORT = 0.05  # seconds: tasks that may be done in between, as nothing interrupts one
BATCH = 0.25  # seconds of tasks that travel together to another process
MOST_ANSWERS = 400  # of a batch: with more a killed process could leave half of what it wrote
MOST_PROCESSES = 1024


def serially(study: Study, tasks: Mapping[int, Task]) -> Generator[Answered]:
    """One after the other in this process."""
    price = Pricer(study)
    for number, task in tasks.items():
        yield [(number, price(task))]


def locally(processes: int | None = None) -> Carry:
    """Over the cores of this computer; all that this process may use unless it is told how many.

    The shortest tasks are done here while it pays, so that a small study starts no process at all.
    """
    number = processes or len(os.sched_getaffinity(0))

    def carry(study: Study, tasks: Mapping[int, Task]) -> Generator[Answered]:
        left = dict(tasks)
        begun = time.monotonic()
        for answered in serially(study, _short(tasks)):
            left.pop(answered[0][0])
            yield answered
            if time.monotonic() - begun > ALONE:
                break
        if left:
            yield from _spread(study, left, number)

    return carry


def _short(tasks: Mapping[int, Task]) -> dict[int, Task]:
    """The shortest first."""
    short = [number for number, task in tasks.items() if task.effort < SHORT]
    return {number: tasks[number] for number in sorted(short, key=lambda n: tasks[n].effort)}


def batches(tasks: Mapping[int, Task]) -> list[list[int]]:
    """Numbers of tasks of one machine, worth a journey together; the longest batch first."""
    found: list[list[int]] = []
    place, effort, answers = -1, 0.0, 0
    for number, task in tasks.items():
        answers += len(task.sizes)
        if task.place != place or effort >= BATCH or answers > MOST_ANSWERS:
            found.append([])
            place, effort, answers = task.place, 0.0, len(task.sizes)
        found[-1].append(number)
        effort += task.effort
    return sorted(found, key=lambda one: -sum(tasks[number].effort for number in one))


def _spread(study: Study, tasks: Mapping[int, Task], number: int) -> Iterator[Answered]:
    todo = batches(tasks)
    with _processes((study, tasks), min(number, len(todo), MOST_PROCESSES)) as pool:
        with undisturbed():  # who is started now inherits that: signals are for us
            pending: set[Future[Answered]] = {pool.submit(_priced, batch) for batch in todo}
        while pending:
            done, pending = wait(pending, TICK, FIRST_COMPLETED)
            try:
                yield [pair for future in done for pair in future.result()]
            except BrokenProcessPool:
                raise TunerError(
                    "a process of the study was killed, often for want of memory: the same"
                    " command goes on; --jobs with a smaller number needs less"
                ) from None


class _Here:
    """What a process of the pool has to do, from `_begin` on."""

    price: Pricer
    tasks: Mapping[int, Task]


def _begin(study: Study, tasks: Mapping[int, Task]) -> None:
    _Here.price, _Here.tasks = Pricer(study), tasks
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _priced(batch: Sequence[int]) -> Answered:
    return [(number, _Here.price(_Here.tasks[number])) for number in batch]


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


@contextmanager
def _processes(
    given: tuple[Study, Mapping[int, Task]], number: int
) -> Iterator[ProcessPoolExecutor]:
    """A pool whose processes are gone when it is left, in the middle of a task if need be."""
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(number, multiprocessing.get_context("spawn"), _begin, given)
    try:
        yield pool
    finally:
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        pool.shutdown(cancel_futures=True)
