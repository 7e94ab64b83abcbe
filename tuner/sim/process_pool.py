"""Work over the cores of this computer."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import connection
from typing import Any, TypeVar

from tuner.sim.blocked_signals import undisturbed

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

TICK = 0.2  # seconds
MOST_PROCESSES = 1024


def usable() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def spread(
    prepare: Callable[..., Callable[[Asked], Answer]],
    given: Sequence[object],
    asked: Sequence[Asked],
    number: int,
) -> Generator[list[Answer]]:
    """Answers in any order, and an empty list at least every TICK seconds: then whoever asks can
    look whether to stop. Closing the iterator stops everything.

    prepare     what each of `number` processes begins with, on `given`: it gives what answers

    Raises BrokenProcessPool when a process was killed, as happens for want of memory.
    """
    with _processes(prepare, given, min(number, len(asked), MOST_PROCESSES)) as pool:
        with undisturbed():  # who is started now inherits that: signals are for us
            pending: set[Future[Answer]] = {pool.submit(_answer, one) for one in asked}
        while pending:
            done, pending = wait(pending, TICK, FIRST_COMPLETED)
            yield [future.result() for future in done]


class _Here:
    """What a process of the pool does, from `_begin` on."""

    answer: Callable[[Any], Any]


def _begin(prepare: Callable[..., Callable[[Any], Any]], given: Sequence[object]) -> None:
    """Begin a process of the pool; it logs no warnings, which would break into a progress bar."""
    logging.getLogger("tuner").setLevel(logging.ERROR)
    _Here.answer = staticmethod(prepare(*given))
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _answer(asked: Any) -> Any:
    return _Here.answer(asked)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


@contextmanager
def _processes(
    prepare: Callable[..., Callable[[Any], Any]], given: Sequence[object], number: int
) -> Iterator[ProcessPoolExecutor]:
    """A pool whose processes are gone when it is left, in the middle of a task if need be."""
    others = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(number, spawn, _begin, (prepare, given))
    try:
        yield pool
    finally:
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        pool.shutdown(cancel_futures=True)
