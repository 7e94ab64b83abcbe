"""Ways to carry the tasks of a study out: here, in this process or over the cores of this computer.

Whoever asks gets lists of (task number, answer) in any order, and an empty list every few tenths of
a second: then it can look whether it should stop. Closing the iterator stops everything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing

from tuner.base.errors import TunerError
from tuner.sim.process_pool import spread, usable
from tuner.whatif.study_spec import Study
from tuner.whatif.study_tasks import Answer, Pricer, Task

Answered = list[tuple[int, Answer]]
Carry = Callable[[Study, Mapping[int, Task]], Generator[Answered]]

ALONE = 0.5  # seconds of work that are done before other processes are started for the rest
SHORT = 0.05  # seconds: tasks that may be done in between, as nothing interrupts one
BATCH = 0.25  # seconds of tasks that travel together to another process
MOST_ANSWERS = 400  # of a batch: with more a killed process could leave half of what it wrote


def serially(study: Study, tasks: Mapping[int, Task]) -> Generator[Answered]:
    """One after the other in this process."""
    price = Pricer(study)
    for number, task in tasks.items():
        yield [(number, price(task))]


def locally(processes: int | None = None) -> Carry:
    """Over the cores of this computer; all that this process may use unless it is told how many.

    The shortest tasks are done here while it pays, so that a small study starts no process at all.
    """
    number = processes or usable()

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
    with closing(spread(_pricing, (study, tasks), batches(tasks), number)) as found:
        try:
            for answers in found:
                yield [pair for answered in answers for pair in answered]
        except BrokenProcessPool:
            raise TunerError(
                "a process of the study was killed, often for want of memory: the same command"
                " goes on; --jobs with a smaller number needs less"
            ) from None


def _pricing(study: Study, tasks: Mapping[int, Task]) -> Callable[[Sequence[int]], Answered]:
    price = Pricer(study)
    return lambda batch: [(number, price(tasks[number])) for number in batch]
