"""Compiling the simulation: said where it has to be done, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
from tuner.sim.compiled import compiled

@compiled()
def twice(number):
    return number + number

@compiled()
def thrice(number):
    return number + twice(number)

print(thrice(2))
"""


def said(program: Path) -> str:
    """What it prints on standard error."""
    places = {"NUMBA_CACHE_DIR": str(program.parent), "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, program], env={**os.environ, **places}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert run.stdout == "6\n"
    return run.stderr


def test_the_first_use_says_once_what_takes_so_long(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    assert said(program) == "compiling the simulation: this takes up to a minute, once\n"
    assert not said(program)
