"""How far long work is: the callbacks that hear it, and callbacks made of others."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

MIN_FRACTION_FOR_ETA = 0.1  # done fraction from which on the time taken tells the time left

ProgressCallback = Callable[[int, int], None]  # (parts done, parts altogether)
StageCallback = Callable[[float, float | None, str], None]
# (fraction done, seconds left or None while nobody knows, what is happening)


class StageDisplay(Protocol):
    """Show the stages of a workflow, one after the other."""

    def stage(self, title: str, expected: float = 0.0) -> AbstractContextManager[StageCallback]:
        """Announce a stage that takes `expected` seconds, and give what hears of its progress."""

    def note(self, text: str) -> None:
        """Show a line that stays."""


def no_progress(_done: int, _total: int) -> None:
    """Report no progress."""


def with_eta(report: StageCallback) -> Callable[[float, str], None]:
    """A callback (fraction, text) that estimates the time left from the time taken.

    What the first call reports was done before, or takes no time worth counting.
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
    """A callback (done, total) of one of several equal parts, of what `on_step` hears of whole."""
    return lambda done, total: callback((part + done / total) / parts, text)


def progress_from_counts(report: StageCallback) -> ProgressCallback:
    """Likewise a callback (done, total)."""
    tell = with_eta(report)
    return lambda done, total: tell(done / total if total else 1.0, f"{done} of {total}")
