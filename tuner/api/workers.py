"""Worker processes for requests that need much computation.

A computing thread would delay all other responses of the process by holding the interpreter lock.
Workers are forked from a process that has loaded what they need, so that one is there at once and
most of its memory is shared. multiprocessing starts that process with `python -c`, which looks in
the working directory for this package unless `ignore_working_directory` was called.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar, cast

from tuner.base.errors import InputError
from tuner.base.giving_up import GivenUpError, given_up_when
from tuner.db import UnavailableError

Result = TypeVar("Result")

IDLE_SECONDS = 60.0  # after which an idle worker exits and frees its memory
_MARGIN_SECONDS = 5.0  # an idle worker gets no more work this long before its end
_GIVE_UP = "give up"  # message to a worker
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tuner.api.worker_start"])


@dataclass
class _WorkerProcess:
    process: BaseProcess
    connection: Connection
    idle_since: float = 0.0

    @classmethod
    def start(cls) -> _WorkerProcess:
        ours, its = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=_worker_main, args=(its,), daemon=True)
        process.start()
        its.close()
        return cls(process, ours)

    @property
    def expired(self) -> bool:
        """Return whether the worker has ended, or may end before it receives its next function."""
        idle_seconds = time.monotonic() - self.idle_since
        return idle_seconds > IDLE_SECONDS - _MARGIN_SECONDS or not self.process.is_alive()

    def end(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.join()


@dataclass
class WorkerCall:
    """A call of `WorkerPool.run` that another thread may give up.

    worker          the one that was sent the function and has not answered yet, else None
    has_begun       whether a thread has begun to carry it out
    is_given_up     whether it is to end
    """

    worker: _WorkerProcess | None = None
    has_begun: bool = False
    is_given_up: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> bool:
        """Return whether to carry it out: False where it was given up before."""
        with self._lock:
            self.has_begun = True
            return not self.is_given_up

    def give_up(self) -> bool:
        """End the call; return whether a thread has begun to carry it out.

        Its function ends when it next calls `go_on`, and `run` returns None.
        """
        with self._lock:
            if not self.is_given_up:
                self.is_given_up = True
                self._end_function()
            return self.has_begun

    def assign(self, worker: _WorkerProcess | None) -> None:
        """Name the worker that has received the whole function; None once it has answered."""
        with self._lock:
            self.worker = worker
            if self.is_given_up:
                self._end_function()

    def _end_function(self) -> None:
        if self.worker is not None:
            with suppress(OSError):  # of a worker that has died
                self.worker.connection.send(_GIVE_UP)


@dataclass
class WorkerPool:
    """A pool of processes that each run one function at a time; started on demand, ended when idle.

    The number of processes is not limited: each concurrent call of `run` has one.
    """

    _idle: list[_WorkerProcess] = field(default_factory=list)
    _busy: list[_WorkerProcess] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def prepare() -> None:
        """Start the process from which workers are forked, without waiting for what it loads."""
        forkserver.ensure_running()

    def run(
        self, function: Callable[..., Result], *arguments: Any, call: WorkerCall | None = None
    ) -> Result:
        """Run `function`, which must be importable by name, in a worker and return its result.

        call    what another thread may give up

        The result of a call that is given up is None, or what the function had returned by then.
        Raises the InputError that it raised, and UnavailableError where the worker died.
        """
        call = call or WorkerCall()
        if not call.begin():
            return cast(Result, None)
        try:
            worker = self._take()
        except OSError:
            raise UnavailableError("no process can be started now: send it again later") from None
        try:
            worker.connection.send((function, arguments))
            call.assign(worker)
            outcome = worker.connection.recv()
        except (EOFError, OSError):
            call.assign(None)
            self._remove(worker)
            raise UnavailableError(
                "the process that worked on this request has died: send it again"
            ) from None
        call.assign(None)
        self._put_back(worker)
        if isinstance(outcome, InputError):
            raise outcome
        result: Result = outcome
        return result

    def close(self) -> None:
        """End all workers, including those that are running."""
        with self._lock:
            idle, self._idle = self._idle, []
            for worker in self._busy:
                worker.process.terminate()
        for worker in idle:
            worker.end()

    def _take(self) -> _WorkerProcess:
        with self._lock:
            expired = [worker for worker in self._idle if worker.expired]
            self._idle = [worker for worker in self._idle if not worker.expired]
            worker = self._idle.pop() if self._idle else _WorkerProcess.start()
            self._busy.append(worker)
        for each in expired:
            each.end()
        return worker

    def _put_back(self, worker: _WorkerProcess) -> None:
        worker.idle_since = time.monotonic()
        with self._lock:
            self._busy.remove(worker)
            self._idle.append(worker)

    def _remove(self, worker: _WorkerProcess) -> None:
        with self._lock:
            self._busy.remove(worker)
        worker.end()


def exit_with_parent() -> None:
    """Make this process exit when its parent has exited."""
    threading.Thread(target=_exit_after_parent, daemon=True).start()


def _worker_main(connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which ends this one
    exit_with_parent()
    while connection.poll(IDLE_SECONDS):
        try:
            message = connection.recv()
        except EOFError:
            return
        if message != _GIVE_UP:  # or the function had ended by then
            with given_up_when(connection.poll):
                outcome = _result_or_error(*message)
            connection.send(outcome)


def _result_or_error(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except InputError as reason:
        return reason
    except GivenUpError:
        return None


def _exit_after_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
