"""Calls that are carried out by worker processes, and given up at any moment."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import until
from tuner.api.workers import WorkerCall, WorkerPool
from tuner.base.giving_up import go_on

pytestmark = pytest.mark.slow

LARGE = 1 << 26  # bytes: sent in many parts


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    made = WorkerPool()
    yield made
    made.close()


def begun(pool: WorkerPool, call: WorkerCall, *words: Any) -> tuple[threading.Thread, list[Any]]:
    """Begin a call in a thread; return it and the list for its result."""
    results = list[Any]()
    thread = threading.Thread(target=lambda: results.append(pool.run(*words, call=call)))
    thread.start()
    return thread, results


def never_ending(mark: str) -> None:
    """Leave a file, and compute until that is given up."""
    Path(mark).touch()
    while True:
        go_on()


def test_what_is_given_up_before_it_begins_is_not_carried_out(
    pool: WorkerPool, tmp_path: Path
) -> None:
    call, mark = WorkerCall(), tmp_path / "mark"
    assert not call.give_up()
    assert pool.run(os.mkdir, str(mark), call=call) is None
    assert not mark.exists()


def test_the_worker_of_what_is_given_up_takes_the_next_call(
    pool: WorkerPool, tmp_path: Path
) -> None:
    worker, call, mark = pool.run(os.getpid), WorkerCall(), tmp_path / "mark"
    thread, results = begun(pool, call, never_ending, str(mark))
    until(mark.exists)
    assert call.give_up()
    assert call.give_up()  # again, which changes nothing
    thread.join()
    assert (results, pool.run(os.getpid)) == ([None], worker)


def test_a_call_is_given_up_while_its_arguments_are_sent(pool: WorkerPool) -> None:
    """The message to the worker does not get into the middle of the arguments."""
    worker, call = pool.run(os.getpid), WorkerCall()
    thread, results = begun(pool, call, len, bytes(LARGE))
    while thread.is_alive():
        call.give_up()
    assert results in ([None], [LARGE])
    assert pool.run(os.getpid) == worker
