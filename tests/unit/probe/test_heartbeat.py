"""Signs of life of ranks to whom nobody listens."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.waiting import patience

LIVES = """
import time
from tuner.probe import heartbeat
heartbeat.HEARTBEAT_INTERVAL_S = 0.01
heartbeat.start("a")
time.sleep(0.5)
"""


def test_a_sign_that_nobody_takes_costs_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", LIVES],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=patience(),
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
