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

from tuner.sim.blocked_signals import block_signals

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

POLL_INTERVAL_S = 0.2  # seconds
MAX_PROCESSES = 1024


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def map_unordered(
    prepare: Callable[..., Callable[[Asked], Answer]],
    prepare_args: Sequence[object],
    items: Sequence[Asked],
    processes: int,
) -> Generator[list[Answer]]:
    """Answers in any order, and an empty list at least every TICK seconds: then whoever asks can
    look whether to stop. Closing the iterator stops everything.

    prepare     what each of `number` processes begins with, on `given`: it gives what answers

    Raises BrokenProcessPool when a process was killed, as happens for want of memory.
    """
    with _open_pool(prepare, prepare_args, min(processes, len(items), MAX_PROCESSES)) as pool:
        with block_signals():  # who is started now inherits that: signals are for us
            pending: set[Future[Answer]] = {pool.submit(_apply, one) for one in items}
        while pending:
            done, pending = wait(pending, POLL_INTERVAL_S, FIRST_COMPLETED)
            yield [future.result() for future in done]


class _Worker:
    """What a process of the pool does, from `_begin` on."""

    apply: Callable[[Any], Any]


def _start_worker(
    prepare: Callable[..., Callable[[Any], Any]], prepare_args: Sequence[object]
) -> None:
    """Begin a process of the pool; it logs no warnings, which would break into a progress bar."""
    logging.getLogger("tuner").setLevel(logging.ERROR)
    _Worker.apply = staticmethod(prepare(*prepare_args))
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _apply(item: Any) -> Any:
    return _Worker.apply(item)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


@contextmanager
def _open_pool(
    prepare: Callable[..., Callable[[Any], Any]], prepare_args: Sequence[object], processes: int
) -> Iterator[ProcessPoolExecutor]:
    """A pool whose processes are gone when it is left, in the middle of a task if need be."""
    others = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, spawn, _start_worker, (prepare, prepare_args))
    try:
        yield pool
    finally:
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        pool.shutdown(cancel_futures=True)
