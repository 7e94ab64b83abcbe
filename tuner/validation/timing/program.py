"""The program whose ranks time collectives: compiled C where there is a compiler, else Python."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tuner.launch.rank_program import THREAD_SINGLE, rank_arguments

SOURCE = Path(__file__).with_name("collectives.c")
PYTHON_PROGRAM = (
    "tuner.rank_programs.collective_times"  # takes the same arguments, prints the same lines
)
TIMEOUT_S = 60.0  # seconds for the compiler
USAGE_STATUS = (
    2  # status of the program where it is given no arguments; it needs no launcher for that
)


@dataclass(frozen=True)
class TimingProgram:
    """What every rank runs.

    program         compiled program; None: the interpreter of the ranks
    thread_level    with which MPI is initialised
    reason          why it is not a C program; "" when it is
    """

    program: Path | None
    thread_level: str = THREAD_SINGLE
    fallback_reason: str = ""

    @property
    def description(self) -> str:
        """Return the kind of program, for people."""
        return "mpi4py program" if self.fallback_reason else "C program"

    def arguments(self, *own: str) -> list[str]:
        """Return the words after the program's name that run it with these arguments."""
        if self.program is None:
            return [*rank_arguments(PYTHON_PROGRAM, self.thread_level), *own]
        return [*own, self.thread_level]


def build_program(
    compiler: Path | None, directory: Path, thread_level: str = THREAD_SINGLE
) -> TimingProgram:
    """Compile the program into `directory`, which all hosts see.

    compiler        the MPI library's own `mpicc`; None where there is none
    thread_level    of MPI_Init_thread, that of the programs which a table is for

    Without a compiler, or where what it makes cannot start here, the program is the Python one.
    """
    target = directory.resolve() / "collectives"
    reason = "no mpicc was found" if compiler is None else _build_failure(compiler, target)
    return TimingProgram(None if reason else target, thread_level, reason)


def _build_failure(compiler: Path, target: Path) -> str:
    """Return why a compiler cannot make the program; "" where it has."""
    try:
        built = _run(str(compiler), "-O2", "-o", str(target), str(SOURCE))
        if built.returncode != 0:
            return f"{compiler} cannot compile MPI programs: {_first_line(built.stderr)}"
        started = _run(str(target))
    except (OSError, subprocess.TimeoutExpired) as failure:
        return f"{compiler} cannot be used: {failure}"
    if started.returncode == USAGE_STATUS:
        return ""
    return f"what {compiler} makes does not start: {_first_line(started.stderr)}"


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)


def _first_line(text: str) -> str:
    return next(iter(text.splitlines()), "no message")
