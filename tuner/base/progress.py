"""Progress callbacks and functions that derive them from one another."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

MIN_FRACTION_FOR_ETA = 0.1  # fraction done from which the remaining time is estimated

ProgressCallback = Callable[[int, int], None]  # (parts done, parts in total)
StageCallback = Callable[[float, float | None, str], None]
# (fraction done, seconds left or None while unknown, what is happening)


class StageDisplay(Protocol):
    """A display of the stages of a workflow, one after the other."""

    def stage(self, title: str, expected: float = 0.0) -> AbstractContextManager[StageCallback]:
        """Return a context for a stage of `expected` seconds; it yields the progress callback."""

    def note(self, text: str) -> None:
        """Show a line that stays visible."""


def no_progress(_done: int, _total: int) -> None:
    """Report no progress."""


def with_eta(report: StageCallback) -> Callable[[float, str], None]:
    """Return a callback (fraction, text) that estimates the time left from the time taken.

    The fraction of the first call is taken as done before, or as taking no time worth counting.
    """
    first: tuple[float, float] | None = None

    def tell(fraction: float, text: str) -> None:
        nonlocal first
        now = time.monotonic()
        begun, before = first = first or (now, fraction)
        done = fraction - before
        left = (
            (now - begun) * (1 - fraction) / done
            if done > MIN_FRACTION_FOR_ETA * (1 - before)
            else None
        )
        report(fraction, left, text)

    return tell


def subtask_progress(
    callback: Callable[[float, str], None], part: int, parts: int, text: str
) -> ProgressCallback:
    """Return a callback (done, total) for one of several equal parts of what `callback` reports.

    part    number of the part, from 0
    """
    return lambda done, total: callback((part + done / total) / parts, text)


def progress_from_counts(report: StageCallback) -> ProgressCallback:
    """Return a callback (done, total) that estimates the time left and reports to `report`."""
    tell = with_eta(report)
    return lambda done, total: tell(done / total if total else 1.0, f"{done} of {total}")
