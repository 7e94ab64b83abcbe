"""Waiting for events: the only place where tests sleep, and how long they are patient.

A test names the seconds that its event takes on a quiet machine. It fails only after ten times as
many, so that a machine that is busy or ten times slower does not decide. TUNER_TEST_PATIENCE
multiplies that once more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Literal, TypeVar

Value = TypeVar("Value")

QUIET_S = 12.0  # what any one event of a test takes on a quiet machine, starts of programs included
MARGIN = 10.0 * float(os.environ.get("TUNER_TEST_PATIENCE", "1"))
SHORTEST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 1.0


def patience(quiet_s: float = QUIET_S) -> float:
    """Return the seconds after which something that takes `quiet_s` on a quiet machine has hung."""
    return MARGIN * quiet_s


def be_slow(seconds: float) -> None:
    """Take `seconds`, in a program under test that must be slow; never to wait for something."""
    time.sleep(seconds)


def expiring(seconds: float) -> float:
    """Return a time limit that is itself under test: what it limits never ends by itself."""
    return seconds


def until(
    condition: Callable[[], Value | Literal[False] | None],
    quiet_s: float = QUIET_S,
    longest_pause_s: float = LONGEST_PAUSE_S,
) -> Value:
    """Return what `condition` gives as soon as that is true.

    What takes long is looked at ever more rarely, as whoever looks keeps others from working. For a
    condition that does not stay true `longest_pause_s` is short.

    Raises AssertionError if it is not true within the patience for `quiet_s`.
    """
    start = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - start
        assert waited < patience(quiet_s), f"{condition} was not true within {waited:.0f} s"
        time.sleep(min(max(SHORTEST_PAUSE_S, waited / 10), longest_pause_s))
    return value
