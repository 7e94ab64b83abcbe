"""Pending work: calls and messages that another thread, or MPI, completes."""

from __future__ import annotations

from threading import Lock
from typing import Any

import torch
from torch.distributed import Work


class WorkFuture(torch.futures.Future[Any]):
    """A future of the results of some work; whoever waits for it waits for the work.

    work    is forgotten when it is complete, so that its tensors are not kept
    """

    def __init__(self, work: PendingWork) -> None:
        super().__init__()
        self._work: PendingWork | None = work

    def wait(self) -> Any:
        """Wait for the results; raises DistBackendError where the work failed."""
        work = self._work
        if work is not None:
            work.wait()
        return super().wait()

    def forget_work(self) -> None:
        """Let go of the work."""
        self._work = None


class PendingWork(Work):
    """Work that is complete once `finish` was called, with a future of its results.

    results     tensors that the work writes
    """

    def __init__(self, results: list[torch.Tensor]) -> None:
        super().__init__()
        self._results = results
        self._ended, self._failure = False, None
        self._guard = Lock()
        self._future: WorkFuture | None = None

    _failure: Exception | None

    def finish(self, failure: Exception | None = None) -> bool:
        """Mark the work as complete or failed; return whether it was neither before."""
        with self._guard:
            if self._ended:
                return False
            self._failure, self._ended = failure, True
            future = self._future
        if future is not None:
            self._complete(future)
        return True

    def is_completed(self) -> bool:
        return self._ended

    def is_success(self) -> bool:
        return self.is_completed() and self._failure is None

    def exception(self) -> Exception | None:
        return self._failure

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> list[torch.Tensor]:
        self.wait()
        return self._results

    def get_future(self) -> Any:
        """Return a future of the tensors that the work writes."""
        with self._guard:
            if self._future is not None:
                return self._future
            future = self._future = WorkFuture(self)
            ended = self._ended
        if ended:
            self._complete(future)
        return future

    def _complete(self, future: WorkFuture) -> None:
        future.forget_work()
        if self._failure is None:
            future.set_result(self._results)
        else:
            future.set_exception(self._failure)
