"""A pool of processes over the cores of this computer."""

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

POLL_INTERVAL_S = 0.2
MAX_PROCESSES = 1024


def map_unordered(
    prepare: Callable[..., Callable[[Asked], Answer]],
    prepare_args: Sequence[object],
    items: Sequence[Asked],
    processes: int,
) -> Generator[list[Answer]]:
    """Yield lists of answers in any order, and an empty list at least every POLL_INTERVAL_S.

    The caller can stop by closing the iterator, which kills the processes.

    prepare         called in each process with `prepare_args`; returns the function for the items
    items           what to apply that function to
    processes       most processes to start

    Raises BrokenProcessPool when a process was killed, as happens when memory runs out.
    """
    with _open_pool(prepare, prepare_args, min(processes, len(items), MAX_PROCESSES)) as pool:
        with block_signals():  # inherited by the processes, so that only this one gets signals
            pending: set[Future[Answer]] = {pool.submit(_apply, one) for one in items}
        while pending:
            done, pending = wait(pending, POLL_INTERVAL_S, FIRST_COMPLETED)
            yield [future.result() for future in done]


class _Worker:
    """A holder of the function that a process of the pool applies."""

    apply: Callable[[Any], Any]


def _start_worker(
    prepare: Callable[..., Callable[[Any], Any]], prepare_args: Sequence[object]
) -> None:
    """Prepare a process of the pool; it logs no warnings, which would break into a progress bar."""
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
    """Open a pool whose processes are killed on exit, even in the middle of a task."""
    others = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, spawn, _start_worker, (prepare, prepare_args))
    try:
        yield pool
    finally:
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        pool.shutdown(cancel_futures=True)
