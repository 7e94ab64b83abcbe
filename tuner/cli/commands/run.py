"""Start a program in any language (C, C++, Fortran, Python) with its collectives as in a table.

COMMAND is what you type without tuner: mpirun, mpiexec, srun, or a script that starts one of them.
The table is compiled for a small C library, which is loaded into the ranks before their MPI.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal

from tuner.base.errors import InputError, TunerError
from tuner.cli.options.program_options import add_program_options
from tuner.cli.terminal.output import warn
from tuner.preload.command import PreparedCommand, rank_command
from tuner.preload.preparation import OWN, Preparation, prepare

QUIET_VARIABLE = "TUNER_QUIET"  # whether our library in the ranks prints nothing
EXAMPLES = """examples:
  tuner run --table table.json -- mpirun -n 64 ./solver input.dat
  TUNER_SERVICE=http://head:8765 tuner run -- srun -n 64 ./solver input.dat
  tuner run --table table.json --print -- mpirun -n 64 ./solver input.dat

Without a table, or with one that cannot be used, the program runs with the library's own
collectives, and one line says why.

Exit status: that of COMMAND, in whose place it runs."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_program_options(parser)
    parser.add_argument(
        "--print", action="store_true", help="print the command with its variables, do not run it"
    )
    parser.add_argument("--quiet", action="store_true", help="print nothing of tuner's own")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Print the command, or replace this process by it."""
    try:
        made = prepare(options.command, options.table, options.service, options.cluster)
    except TunerError as reason:
        made = Preparation(note=f"{OWN}: {reason}")
    variables = made.environment
    if not options.quiet:
        warn(made.note)
    elif variables:
        variables = {**variables, QUIET_VARIABLE: "1"}
    command = rank_command(options.command, variables)
    if options.print:
        print(shell_line(command))
    else:
        _execute(command)


def shell_line(command: PreparedCommand) -> str:
    """Return a command as a shell takes it, after the variables that differ from ours."""
    changed = (item for item in command.environment.items() if os.environ.get(item[0]) != item[1])
    return " ".join([*(f"{n}={shlex.quote(v)}" for n, v in changed), shlex.join(command.words)])


def _execute(command: PreparedCommand) -> None:
    """Run a command in the place of this process; raises InputError where it cannot start."""
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and then by the program, too
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvpe(command.words[0], command.words, command.environment)
    except OSError as reason:
        raise InputError(f"{command.words[0]} cannot be started: {reason.strerror}") from None
