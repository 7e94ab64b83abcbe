"""The start of this package's modules as programs, whatever the working directory contains.

`python -m` looks in the working directory first, so that a user's tuner.py there would run in the
place of this package.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

SAFE_PATH_VARIABLE = "PYTHONSAFEPATH"  # as `python -P`, which Python before 3.11 lacks
_IMPORT_ROOT = Path(__file__).resolve().parents[2]  # where `tuner` is imported from


def own_module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this package, with `own_module_environment()`."""
    return [sys.executable, "-P", "-m", module, *arguments]


def own_module_environment() -> dict[str, str]:
    """Return the environment of this process, in which this package can be imported anywhere."""
    paths = [str(_IMPORT_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def ignore_working_directory() -> None:
    """Let all Python programs that this process starts from now on ignore the working directory.

    Call it before other threads start: a thread that copies the environment meanwhile can fail.
    """
    os.environ[SAFE_PATH_VARIABLE] = "1"
