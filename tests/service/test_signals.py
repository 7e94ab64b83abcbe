"""A service ends by a signal at whatever moment it comes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.waiting import patience

SIGNALS = 10_000
PROGRAM = f"""
import random, signal
from tuner.api.server import _Shutdown

for _ in range({SIGNALS}):
    stopping = _Shutdown()
    signal.signal(signal.SIGALRM, stopping.on_signal)
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 3e-5))
    while not stopping.wait(0.1):
        pass
print("ended")
"""


@pytest.mark.extended
def test_signals_while_it_begins_to_wait_end_it_too() -> None:
    """One of ten thousand would do: the handler must not need what the waiting thread holds."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=patience(),
        check=True,
    )
    assert done.stdout == "ended\n"
