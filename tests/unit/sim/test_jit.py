"""Compiling the simulation: said where it has to be done, and nowhere else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tuner
from tests.support.waiting import patience

pytestmark = pytest.mark.slow

PROGRAM = """
from tuner.sim.jit import njit_no_alloc

@njit_no_alloc()
def twice(number):
    return number + number

@njit_no_alloc()
def thrice(number):
    return number + twice(number)

print(thrice(2))
"""


INTERRUPTED = """
import signal
import sys

from numba import njit
from numba.core import event

from tuner.cli import main
from tuner.topology import graph

@njit(cache=True)
def thrice(number):
    return 3 * number

class Signal(event.Listener):
    def on_start(self, _event):
        signal.raise_signal(getattr(signal, sys.argv[1]))

    def on_end(self, _event):
        pass

event.register("numba:compile", Signal())
with main._sigterm_as_interrupt():
    try:
        thrice(1)
    except KeyboardInterrupt:
        print(len(thrice.signatures), thrice(2))
"""

ALLOCATING = """
import sys

import numpy as np
from numba import njit

from tuner.base.compiled import compiled

@compiled()
def squares(count):
    found = np.empty(count)
    for i in range(count):
        found[i] = i * i
    return found

print(squares(3).sum(), "numba.np.linalg" in sys.modules)

@njit
def total(count):
    return squares(count)[count - 1] + 1.0

print(total(3))
"""


def test_what_is_cached_is_loaded_without_the_compiler_which_still_works(tmp_path: Path) -> None:
    assert ran(tmp_path, ALLOCATING) == "5.0 True\n5.0"
    assert ran(tmp_path, ALLOCATING) == "5.0 False\n5.0"


INNER = """
from tuner.sim.jit import njit_no_alloc

@njit_no_alloc()
def scaled(number):
    return FACTOR * number
"""
OUTER = """
from tuner.sim.inner import scaled
from tuner.sim.jit import njit_no_alloc

@njit_no_alloc()
def more(number):
    return 1 + scaled(number)
"""


def test_a_function_is_compiled_again_when_one_that_it_calls_has_changed(tmp_path: Path) -> None:
    program = "from tuner.sim.outer import more\nprint(more(2))"
    ran(tmp_path, "")
    folder = tmp_path / "copy" / "tuner" / "sim"
    (folder / "outer.py").write_text(OUTER)
    for factor in (2, 30):
        (folder / "inner.py").write_text(INNER.replace("FACTOR", str(factor)))
        assert ran(tmp_path, program) == str(1 + 2 * factor)
        assert ran(tmp_path, f"{FORBIDDEN}{program}") == str(1 + 2 * factor)


FORBIDDEN = """
from tuner.sim import jit
jit._compile_listener.is_allowed = False
"""


def said(program: Path) -> str:
    """What it prints on standard error."""
    places = {"NUMBA_CACHE_DIR": str(program.parent), "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, program],
        env={**os.environ, **places},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "6\n"
    return run.stderr


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_waits_until_something_is_compiled(name: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(INTERRUPTED)
    run = subprocess.run(
        [sys.executable, program, name],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (run.stdout, run.stderr) == ("1 6\n", "")


def test_the_first_use_says_once_what_takes_so_long(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    assert said(program) == "compiling the simulation: this takes up to a minute, once\n"
    assert not said(program)


def test_what_was_compiled_at_installation_is_used_with_any_cache(tmp_path: Path) -> None:
    """A user who cannot write beside the modules has a cache elsewhere, which is empty at first."""
    (tmp_path / "functions.py").write_text(PROGRAM)
    program = tmp_path / "program.py"
    program.write_text("import functions")
    places = {"PYTHONPATH": os.pathsep.join(sys.path)}
    for own in ({}, {"NUMBA_CACHE_DIR": str(tmp_path / "own")}):
        run = subprocess.run(
            [sys.executable, program],
            env={**os.environ, **places, **own},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout == "6\n"
        assert (run.stderr == "") == bool(own)
    assert not list((tmp_path / "own").rglob("*.nbi"))


WARM = """
import sys, time
from tuner.sim.warmup import compile_within

begun, said = time.monotonic(), []
lacking = compile_within(float(sys.argv[1]), lambda: said.append("compiling"))
print(not lacking, *said, time.monotonic() - begun < float(sys.argv[1]) + float(sys.argv[2]))
"""
EVERYTHING = """
from tuner.algorithms import algorithm_names, build
from tuner.core.collective import Collective
from tuner.core.path_classes import HOST
from tuner.sim import warmup
from tuner.sim.jit import forbid_compilation
from tuner.sim.fast_engine import PreparedSimulation
from tuner.topology import Placement

placement = Placement.block(warmup._topology(), warmup.PPN)
with forbid_compilation():
    for collective in Collective:
        for name in algorithm_names(collective):
            schedule = build(collective, name, placement.p, nbytes=2**20)
            for calibration in (warmup._calibration(), warmup._calibration(with_patterns=True)):
                PreparedSimulation(schedule, placement, calibration, 1, HOST).seconds((1024, 2**20))
print("all")
"""


def ran(folder: Path, program: str, *words: str) -> str:
    """Return what a program prints, with a copy of the package of which nothing is compiled."""
    path, package = folder / "program.py", Path(tuner.__file__).parent
    path.write_text(program)
    if not (folder / "copy").exists():
        shutil.copytree(package, folder / "copy" / "tuner", ignore=shutil.ignore_patterns("*.nb?"))
    places = {"PYTHONPATH": os.pathsep.join([str(folder / "copy"), *sys.path])}
    return subprocess.run(
        [sys.executable, path, *words],
        env={**os.environ, **places},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


@pytest.mark.weekly
@pytest.mark.slow
def test_compiling_ends_in_time_and_then_nothing_is_left_to_compile(tmp_path: Path) -> None:
    enough, late = str(patience(100)), str(patience())
    assert ran(tmp_path, WARM, "1", late) == "False compiling True"
    assert ran(tmp_path, WARM, enough, late) == "True compiling True"
    assert ran(tmp_path, WARM, enough, late) == "True True"
    assert ran(tmp_path, EVERYTHING) == "all"


BROKEN = """
import os
from tuner.sim.warmup import compile_within

os.environ["PYTHONPATH"] = "broken"
print(compile_within(600.0))
"""


def test_compiling_that_fails_says_why_and_takes_nothing_from_the_present_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "numba.py").write_text("raise ImportError('numba of the present folder')\n")
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "llvmlite.py").write_text("raise ImportError('no LLVM here')\n")
    path = [str(folder / "copy"), *sys.path]
    program = f"import sys; sys.path[:] = {path!r}\n{BROKEN}"
    sentence = "the simulation could not be compiled (ImportError: no LLVM here)"
    assert ran(tmp_path / "broken", program) == sentence
