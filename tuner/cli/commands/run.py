"""Start a program in any language (C, C++, Fortran, Python) with its collectives as in a table.

COMMAND is what you type without tuner: mpirun, mpiexec, srun, or a script that starts one of them.
The table is compiled for a small C library, which is loaded into the ranks before their MPI.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from tuner.base.atomic_io import require_writable_file, write_atomically
from tuner.base.errors import InputError, TunerError
from tuner.cli.options.argument_types import file_option
from tuner.cli.options.program_options import add_program_options
from tuner.cli.terminal.output import console, warn
from tuner.core.table import parse_table
from tuner.preload.command import PreparedCommand, rank_command
from tuner.preload.execution import RECORD_VARIABLE, replace_process, run_directory, run_to_end
from tuner.preload.preparation import OWN, Preparation, prepare
from tuner.preload.report import choice_names, saved_seconds
from tuner.preload.run_record import RunRecord, read_record
from tuner.runtime.call_summaries import post_summaries

QUIET_VARIABLE = "TUNER_QUIET"  # whether our library in the ranks prints nothing
COLUMNS_VARIABLE = "TUNER_COLUMNS"  # width of the terminal for which it breaks lines
REPORT = "report"  # what may be wanted of a run, named as its option; as is the next one
FEEDBACK = "feedback"
FEEDBACK_VARIABLE = "TUNER_FEEDBACK"  # whether times go to the service
EXAMPLES = """examples:
  tuner run --table table.json -- mpirun -n 64 ./solver input.dat
  TUNER_SERVICE=http://head:8765 tuner run -- srun -n 64 ./solver input.dat
  tuner run --table table.json --report solver.html -- mpirun -n 64 ./solver input.dat
  tuner run --table table.json --print -- mpirun -n 64 ./solver input.dat

Without a table, or with one that cannot be used, the program runs with the library's own
collectives, and one line says why.

Exit status: that of COMMAND, which runs in the place of tuner, or with --report or --feedback as
its child; 127 where it is not found, and 126 where it cannot be executed."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_program_options(parser)
    file_option(parser, "--report", "page about the calls of the run, HTML")
    parser.add_argument(
        "--feedback",
        action="store_true",
        default=os.environ.get(FEEDBACK_VARIABLE, "") not in ("", "0"),
        help="report times to the service that the table comes from (default: TUNER_FEEDBACK)",
    )
    parser.add_argument(
        "--print", action="store_true", help="print the command with its variables, do not run it"
    )
    parser.add_argument("--quiet", action="store_true", help="print nothing of tuner's own")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the command, run it in the place of this process, or run it and report on it."""
    wanted = " and ".join(name for name in (REPORT, FEEDBACK) if getattr(options, name))
    if options.report:
        require_writable_file(options.report)
    try:
        made = prepare(options.command, options.table, options.service, options.cluster)
    except TunerError as reason:
        made = Preparation(note=f"{OWN}: {reason}")
    say = partial(_say, quiet=options.quiet)
    say(made.note)
    variables = made.environment
    if options.quiet and variables:
        variables = {**variables, QUIET_VARIABLE: "1"}
    if options.print:
        print(shell_line(rank_command(options.command, variables)))
        return 0
    if variables and sys.stderr.isatty():
        variables = {**variables, COLUMNS_VARIABLE: str(console(error=True).width)}
    if wanted and variables:
        made = replace(made, environment=variables)
        return _observe(options.command, made, options.report, say, wanted)
    say(wanted and f"{wanted} left out: the program follows no table")
    return replace_process(rank_command(options.command, variables))


def _say(sentence: str, *, quiet: bool) -> None:
    warn("" if quiet else sentence)


def _observe(
    command: Sequence[str],
    made: Preparation,
    report: Path | None,
    say: Callable[[str], None],
    wanted: str,
) -> int:
    """Run a command to its end, and make the report and the feedback that are wanted of it.

    Returns its status.
    """
    with ExitStack() as stack:
        try:
            content = made.flat.read_bytes()
            path = stack.enter_context(run_directory()) / "record"
        except (InputError, OSError) as reason:
            say(f"{wanted} left out: {reason}")
            replace_process(rank_command(command, made.environment))
        variables = {**made.environment, RECORD_VARIABLE: str(path)}
        status = run_to_end(rank_command(command, variables)).status
        try:
            found = read_record(path, choice_names(content))
        except InputError as reason:
            ended = f"the program ended with status {status}"
            say(f"{wanted} left out: {ended if status else reason}")
            return status
    if report:
        try:
            write_atomically(report, _page(command, made, found, content))
        except InputError as reason:
            say(f"report left out: {reason}")
    if FEEDBACK in wanted:
        say(_send_feedback(made, found))
    return status


def _page(command: Sequence[str], made: Preparation, found: RunRecord, content: bytes) -> str:
    """Return the page about a run under the table of a flat file."""
    from tuner.report.run_page import FollowedRun, render_run_page  # slow to import

    saved = saved_seconds(content, found)
    return render_run_page(FollowedRun(shlex.join(command), made.table, found, saved))


def _send_feedback(made: Preparation, found: RunRecord) -> str:
    """Send the times of a run to the service; return why that failed, "" where it did not."""
    if made.request is None or made.fetched is None or made.fetched.version is None:
        return "no feedback is sent: the table does not come from a service"
    table, version = parse_table(made.fetched.text), made.fetched.version
    try:
        post_summaries(made.request, version, table, found.ranks, found.summaries())
    except InputError as reason:
        return f"feedback is lost: {reason}"
    return ""


def shell_line(command: PreparedCommand) -> str:
    """Return a command as a shell takes it, after the variables that differ from ours."""
    changed = (item for item in command.environment.items() if os.environ.get(item[0]) != item[1])
    return " ".join([*(f"{n}={shlex.quote(v)}" for n, v in changed), shlex.join(command.words)])
