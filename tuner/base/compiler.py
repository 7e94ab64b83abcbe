"""Runs of a C compiler."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from tuner.base.errors import InputError

TIMEOUT_S = 300.0


def run_compiler(command: Sequence[str], failing: str) -> str:
    """Return the output of a compiler, or of a program that it made; nothing is preloaded.

    Raises InputError, which begins with `failing`, with the first error in what it says.
    """
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=TIMEOUT_S,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired) as reason:
        raise InputError(f"{failing}: {reason}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        lines = [line for line in said if any(map(str.isalpha, line))] or ["no message"]
        first = next((line for line in lines if "error" in line), lines[0])
        raise InputError(f"{failing}: {first}")
    return done.stdout
