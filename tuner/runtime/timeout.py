"""Deadlines for calls that have no timeout of their own, which run in another thread.

A name server, a service or a network file system that never answers must not keep the ranks of a
job waiting, and not every such call can be given a timeout.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tuner.base.errors import InputError

T = TypeVar("T")


class DeadlineExceededError(InputError):
    """An operation that did not end before its deadline."""


class Deadline:
    """A point in time, `timeout_s` seconds from now, that one or several operations share."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s

    @property
    def remaining_s(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def run(self, function: Callable[[], T], subject: str) -> T:
        """Run `function` in another thread and return its result.

        subject     name of the operation in messages

        Raises DeadlineExceededError when time is up (the thread goes on, and its result is
        ignored), the InputError that `function` raises, and InputError for any other exception.
        """
        answers: queue.SimpleQueue[tuple[T] | InputError] = queue.SimpleQueue()

        def attend() -> None:
            answer: tuple[T] | InputError
            try:
                answer = (function(),)
            except InputError as reason:
                answer = reason
            except Exception as reason:  # noqa: BLE001 - it is raised in the thread that waits
                answer = InputError(f"{subject}: {type(reason).__name__}: {reason}")
            answers.put(answer)

        try:
            threading.Thread(target=attend, daemon=True).start()
            answer = answers.get(timeout=self.remaining_s)
        except RuntimeError as reason:  # no more threads can be started
            raise InputError(f"{subject}: {reason}") from None
        except queue.Empty:
            raise DeadlineExceededError(
                f"{subject}: no answer within {self.timeout_s:g} s"
            ) from None
        if isinstance(answer, InputError):
            raise answer
        return answer[0]
