"""The program whose ranks time collectives: compiled C where there is a compiler, else Python."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tuner.base.thread_levels import THREAD_SINGLE
from tuner.launch.rank_program import rank_arguments

SOURCE = Path(__file__).with_name("collectives.c")
# Takes the same arguments, prints the same lines.
PYTHON_PROGRAM = "tuner.rank_programs.collective_times"
TIMEOUT_S = 60.0  # for the compiler
USAGE_STATUS = 2  # exit status of the program without arguments, for which it needs no launcher


@dataclass(frozen=True)
class TimingProgram:
    """The program that every rank runs.

    program             compiled program; None for the ranks' Python interpreter
    thread_level        level at which MPI is initialised
    fallback_reason     why it is not the C program; "" when it is
    """

    program: Path | None
    thread_level: str = THREAD_SINGLE
    fallback_reason: str = ""

    @property
    def description(self) -> str:
        """The kind of program, for people."""
        return "mpi4py program" if self.fallback_reason else "C program"

    def arguments(self, *own: str) -> list[str]:
        """Return the command-line arguments for the program's interpreter, if any, and `own`."""
        if self.program is None:
            return [*rank_arguments(PYTHON_PROGRAM, self.thread_level), *own]
        return [*own, self.thread_level]


def build_program(
    compiler: Path | None, directory: Path, thread_level: str = THREAD_SINGLE
) -> TimingProgram:
    """Compile the program into `directory`, which all hosts see.

    compiler        the MPI library's own `mpicc`; None where there is none
    thread_level    for MPI_Init_thread: that of the programs which a table is for

    Without a compiler, or where the compiled program does not start here, the Python program is
    used.
    """
    target = directory.resolve() / "collectives"
    reason = "no mpicc was found" if compiler is None else _build_failure(compiler, target)
    return TimingProgram(None if reason else target, thread_level, reason)


def _build_failure(compiler: Path, target: Path) -> str:
    """Return why a compiler cannot make the program; "" on success."""
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
