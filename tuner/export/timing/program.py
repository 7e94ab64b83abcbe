"""The program whose ranks time collectives: compiled C where there is a compiler, else Python."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tuner.rank_program import SINGLE, rank_program

SOURCE = Path(__file__).with_name("collectives.c")
INTERPRETED = "tuner.probe.collective_times"  # takes the same arguments, prints the same lines
PATIENCE = 60.0  # seconds for the compiler


@dataclass(frozen=True)
class TimingProgram:
    """What every rank runs.

    program         compiled program; None: the interpreter of the ranks
    thread_level    with which MPI is initialised
    reason          why it is not a C program; "" when it is
    """

    program: Path | None
    thread_level: str = SINGLE
    reason: str = ""

    @property
    def description(self) -> str:
        """Return the kind of program, for people."""
        return "mpi4py program" if self.reason else "C program"

    def arguments(self, *own: str) -> list[str]:
        """Return the words after the program's name that run it with these arguments."""
        if self.program is None:
            return [*rank_program(INTERPRETED, self.thread_level), *own]
        return [*own, self.thread_level]


def build(compiler: Path | None, directory: Path, thread_level: str = SINGLE) -> TimingProgram:
    """Compile the program into `directory`, which all hosts see.

    compiler        the MPI library's own `mpicc`; None where there is none
    thread_level    of MPI_Init_thread, that of the programs which a table is for

    Without a compiler, or where compiling fails, the program is the Python one.
    """
    if compiler is None:
        return TimingProgram(None, thread_level, "no mpicc was found")
    target = directory.resolve() / "collectives"
    command = [str(compiler), "-O2", "-o", str(target), str(SOURCE)]
    try:
        built = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        return TimingProgram(None, thread_level, f"{compiler} cannot be used: {failure}")
    if built.returncode != 0:
        first = next(iter(built.stderr.splitlines()), "no message")
        reason = f"{compiler} cannot compile MPI programs: {first}"
        return TimingProgram(None, thread_level, reason)
    return TimingProgram(target, thread_level)
