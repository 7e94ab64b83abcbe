"""The program whose ranks time collectives: compiled C where there is a compiler, else Python."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tuner.rank_program import rank_program

SOURCE = Path(__file__).with_name("collectives.c")
INTERPRETED = "tuner.probe.collective_times"  # takes the same arguments, prints the same lines
PATIENCE = 60.0  # seconds for the compiler


@dataclass(frozen=True)
class TimingProgram:
    """What every rank runs.

    program     compiled program; None: the interpreter of the ranks
    arguments   that come before its own
    reason      why it is not a C program; "" when it is
    """

    program: Path | None
    arguments: tuple[str, ...] = ()
    reason: str = ""

    @property
    def description(self) -> str:
        """Return the kind of program, for people."""
        return "mpi4py program, one thread" if self.reason else "C program, one thread"


def build(compiler: Path | None, directory: Path) -> TimingProgram:
    """Compile the program into `directory`, which all hosts see.

    compiler    the MPI library's own `mpicc`; None where there is none

    Without a compiler, or where compiling fails, the program is the Python one.
    """
    if compiler is None:
        return _interpreted("no mpicc was found")
    target = directory.resolve() / "collectives"
    command = [str(compiler), "-O2", "-o", str(target), str(SOURCE)]
    try:
        built = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired) as reason:
        return _interpreted(f"{compiler} cannot be used: {reason}")
    if built.returncode != 0:
        first = next(iter(built.stderr.splitlines()), "no message")
        return _interpreted(f"{compiler} cannot compile MPI programs: {first}")
    return TimingProgram(target)


def _interpreted(reason: str) -> TimingProgram:
    return TimingProgram(None, rank_program(INTERPRETED), reason)
