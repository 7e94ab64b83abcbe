"""Calls on one communicator, in the order in which they were issued, and how long they may take.

Asynchronous calls are made by a thread of the communicator, so that they overlap with the program's
own work. A synchronous call is made by the thread that asks for it while no other call is pending,
since handing it over would take several times as long as a small call. MPI cannot cancel a
collective, so that a thread which waits in one cannot be given an exception: where the program has
asked for a time limit below PyTorch's default, synchronous calls are made by the communicator's
thread, too, and the program gets an exception; otherwise the process ends with one sentence when
the time is over.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from threading import Lock, Thread, current_thread
from typing import Any

import torch
from torch.distributed import DistBackendError
from torch.distributed.constants import default_pg_timeout

from tuner.torch import process_end
from tuner.torch.pending_work import PendingWork

_MIN_PERIOD_S = 0.01  # between the first looks at the time
_MAX_PERIOD_S = 1.0  # between later ones
_PERIODS_PER_LIMIT = 20
_QUEUES = weakref.WeakSet["CallQueue"]()
_DEFAULT_TIMEOUT_S: float = default_pg_timeout.total_seconds()
_STATUS_OF_TIMEOUT = 1


class IssuedCall(PendingWork):
    """A call that was issued, for the program to wait for.

    name    name of the collective, for messages
    """

    def __init__(self, name: str, results: list[torch.Tensor], queue: CallQueue) -> None:
        super().__init__(results)
        self.name, self._queue = name, queue
        self._end = Lock()
        self._end.acquire()

    def finish(self, failure: Exception | None = None) -> bool:
        """Mark the call as complete or failed, and wake those that wait for it."""
        first = super().finish(failure)
        if first:
            self._end.release()
        return first

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait for the call; raises DistBackendError where it failed or the time is over."""
        self._queue.serve_until(self)
        seconds = timeout.total_seconds()
        if not self._end.acquire(timeout=seconds if seconds > 0 else -1):
            raise DistBackendError(self._queue.sentence(self.name, seconds))
        self._end.release()
        if self._failure is not None:
            raise self._failure
        return True


class CallQueue:
    """The calls on one communicator.

    name        name of the group of ranks, for messages
    timeout     seconds that a call may take once its turn has come
    """

    def __init__(self, name: str, timeout: float) -> None:
        self.name, self.timeout = name, timeout
        self._waiting = SimpleQueue[Any]()
        self._turn = Lock()  # held by the thread that makes a call
        self._issuing = Lock()
        self._issued = self._completed = 0
        self._thread: Thread | None = None
        self._failure: Exception | None = None
        self._call: IssuedCall | None = None  # that the thread makes
        self._direct = ""  # the call that a thread of the program makes
        self._limit, self._deadline = timeout, float("inf")  # of the call that is made
        _QUEUES.add(self)
        _start_clock()

    def run(self, name: str, act: Callable[[], None], timeout: float | None = None) -> None:
        """Make a synchronous call; raises DistBackendError where it fails.

        act         makes the call; it blocks
        timeout     seconds that it may take; None: those of the queue
        """
        limit = self.timeout if timeout is None else timeout
        patient = limit >= _DEFAULT_TIMEOUT_S  # the program asked for no shorter one
        if patient and self._is_idle() and self._turn.acquire(blocking=False):
            try:
                if self._is_idle():  # no other thread has issued a call meanwhile
                    self._direct = name
                    self._begin(limit)
                    act()
                    return
            finally:
                self._deadline, self._direct = float("inf"), ""
                self._turn.release()
        self.issue(name, act, [], limit).wait()

    def _begin(self, limit: float) -> None:
        self._limit, self._deadline = limit, time.monotonic() + limit

    def _is_idle(self) -> bool:
        return self._issued == self._completed and self._failure is None

    def issue(
        self,
        name: str,
        act: Callable[[], None],
        results: list[torch.Tensor],
        timeout: float | None = None,
    ) -> IssuedCall:
        """Issue an asynchronous call.

        act         makes the call; it blocks
        results     tensors that it writes
        timeout     seconds that it may take; None: those of the queue
        """
        call = IssuedCall(name, results, self)
        with self._issuing:
            if self._failure is not None:
                call.finish(self._failure)
                return call
            self._issued += 1
            self._waiting.put((call, act, self.timeout if timeout is None else timeout))
            if self._thread is None:
                self._thread = Thread(target=self._serve, name=f"tuner {self.name}", daemon=True)
                self._thread.start()
        return call

    def close(self, act: Callable[[], None]) -> None:
        """Make a last call after all others, and end the thread; later calls fail."""
        call = self.issue("shutdown", act, [])
        with self._issuing:
            destroyed = DistBackendError(f"process group {self.name} has been destroyed")
            self._failure = self._failure or destroyed
        self._waiting.put(None)
        call.wait()
        if self._thread is not None:
            self._thread.join()
        _QUEUES.discard(self)

    def abort(self, failure: Exception) -> None:
        """Let all calls fail that are not complete, and those to come."""
        with self._issuing:
            self._failure = self._failure or failure
        process_end.leave_mpi_unfinished()
        running = self._call
        if running is not None:
            running.finish(self._failure)
        while not self._waiting.empty():
            item = self._waiting.get()
            if item is not None:
                item[0].finish(self._failure)

    def check_time(self, now: float) -> None:
        """End what has taken too long."""
        if now < self._deadline:
            return
        call, direct = self._call, self._direct
        if call is not None:
            self.abort(DistBackendError(self.sentence(call.name, self._limit)))
        elif direct:
            sys.stderr.write(f"tuner: {self.sentence(direct, self._limit)}\n")
            sys.stderr.flush()
            os._exit(_STATUS_OF_TIMEOUT)

    def sentence(self, name: str, seconds: float) -> str:
        """Return the message for a call that took too long."""
        return (
            f"{name} of process group {self.name}: timeout after {seconds:g} s: another rank has"
            " ended, or does not make the same call"
        )

    def serve_until(self, call: IssuedCall) -> None:
        """Make calls until this one is complete, where the queue's own thread waits for it.

        So callbacks of futures, which that thread runs, may make further calls and wait for them.
        """
        if current_thread() is self._thread:
            while not call.is_completed():
                self._serve_next()

    def _serve(self) -> None:
        """Make the calls one after the other, until the end of the queue."""
        while self._serve_next():
            pass

    def _serve_next(self) -> bool:
        """Make the next call; return False at the end of the queue."""
        item = self._waiting.get()
        if item is None:
            return False
        call, act, timeout = item
        with self._turn:
            self._call = call
            self._begin(timeout)
            failure = _attempt(act)
            self._deadline, self._call = float("inf"), None
        self._completed += 1
        call.finish(failure)
        return True


def _attempt(act: Callable[[], None]) -> Exception | None:
    try:
        act()
    except Exception as failure:  # noqa: BLE001 - the program gets it when it waits
        return failure
    return None


_clock: Thread | None = None


def _start_clock() -> None:
    """Start the thread that looks at the time of calls."""
    global _clock
    if _clock is None:
        _clock = Thread(target=_watch, name="tuner timeouts", daemon=True)
        _clock.start()


def _watch() -> None:
    while True:
        limits = [queue.timeout for queue in list(_QUEUES)]
        period = min(limits, default=_MAX_PERIOD_S * _PERIODS_PER_LIMIT) / _PERIODS_PER_LIMIT
        time.sleep(min(max(period, _MIN_PERIOD_S), _MAX_PERIOD_S))
        now = time.monotonic()
        for queue in list(_QUEUES):
            queue.check_time(now)
