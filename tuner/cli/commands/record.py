"""Record which collective calls a program makes, how long they take and how long ranks wait.

The program runs with the library's own collectives. Its calls are counted by a small C library that
is loaded into the ranks before their MPI.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tuner.base.atomic_io import require_writable_file
from tuner.base.errors import InputError
from tuner.base.signals import EXIT_SIGNAL
from tuner.base.units import format_exact_size, format_time, plural
from tuner.cli.options.argument_types import file_option
from tuner.cli.options.program_options import add_command
from tuner.cli.terminal.output import (
    finish_command,
    print_command,
    print_result,
    print_table,
    print_text,
    warn,
)
from tuner.core.call_profile import CallProfile, ProfiledCall, write_call_profile
from tuner.launch.launcher import PRELOAD_VARIABLE
from tuner.preload.command import program_of, rank_command
from tuner.preload.execution import RECORD_VARIABLE, run_directory, run_to_end
from tuner.preload.preparation import library_for
from tuner.preload.run_record import RecordedCalls, RunRecord, read_record

EXAMPLES = """examples:
  tuner record -- mpirun -n 64 ./solver input.dat
  tuner record --out solver.profile -- srun -n 64 ./solver input.dat
  tuner tune --profile solver.profile --hosts node1,node2 --ppn 32 \\
      --measurements measured.ndjson --out table.json

The record is written when the program calls MPI_Finalize. Then the library repeats the calls of up
to 16 MiB that took most time, eight at most, in turn with other calls that do the same, in up to
200 rounds or five seconds each: where those are significantly faster, the library breaks a
performance guideline. Interrupted then, it lists and writes what is recorded.

Exit status: that of COMMAND, 128 + N if signal N ended it, and 1 where it leaves no record."""
MOST_ROWS = 15
WAITING_VARIABLE = "TUNER_WAITING"  # whether our library measures how long ranks wait
GUIDELINES_VARIABLE = "TUNER_GUIDELINES"  # whether our library looks for broken ones


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    file_option(parser, "--out", "profile of the calls, for `tuner tune --profile`")
    parser.add_argument(
        "--no-guidelines",
        dest="guidelines",
        action="store_false",
        help="end with the program, do not look for guidelines that its calls break",
    )
    add_command(parser)
    finish_command(parser, run)


def run(options: argparse.Namespace) -> int:
    """Run the program, print and write what it did, and return its status."""
    if options.out:
        require_writable_file(options.out)
    if options.guidelines:
        importlib.import_module("scipy.special")  # if it is missing, say so before the run
    built, _ = library_for(options.command)
    with run_directory() as folder:
        path = folder / "record"
        variables = {PRELOAD_VARIABLE: str(built.path.absolute()), RECORD_VARIABLE: str(path)}
        variables[WAITING_VARIABLE] = "1"
        variables |= {GUIDELINES_VARIABLE: "1"} if options.guidelines else {}
        prepared = rank_command(options.command, variables)
        status, interruption = run_to_end(prepared, prints_to_stderr=options.json)
        try:
            found = read_record(path)
        except InputError:
            if not status:
                raise
            warn(
                f"the program ended with status {status} before MPI_Finalize, so that there is no"
                " record"
            )
            return status
    calls = found.profile()
    if options.out and calls:
        program = program_of(options.command) or Path(options.command[0])
        write_call_profile(options.out, CallProfile(program.name, calls, built.library))
    print_result(options.json, found.summary(), partial(_print, found))
    if options.out and not calls:
        warn(f"{options.out} is not written: the program makes no calls that can be tuned")
    elif options.out and not options.json:
        print_command("tune them:", _tuning(options.out, calls))
    return EXIT_SIGNAL + interruption if status and interruption else status


def _tuning(profile: Path, calls: Sequence[ProfiledCall]) -> str:
    """Return the command that makes a table for these calls."""
    hosts = "HOSTS" if max(call.nodes for call in calls) > 1 else "localhost"
    ppn = max(call.ppn for call in calls)
    return (
        f"tuner tune --profile {profile} --hosts {hosts} --ppn {ppn} --measurements measured.ndjson"
        " --out table.json"
    )


def _print(found: RunRecord) -> None:
    if not found.kinds:
        print_text(f"no collective calls in {format_time(found.run_seconds)}")
        return
    print_text(
        f"{plural(found.ranks, 'rank')}, {format_time(found.run_seconds)}:"
        f" {found.share:.0%} of the time in collectives"
    )
    if found.unrecorded:
        warn(f"{found.unrecorded} calls of further kinds are not listed")
    shown = found.kinds[:MOST_ROWS]
    columns = ("collective", "ranks", "bytes", "calls", "time", "waiting", "shortest")
    print_table("", columns, (_row(kind, found) for kind in shown), right=columns[2:])
    if len(found.kinds) > len(shown):
        print_text(
            f"and {plural(len(found.kinds) - len(shown), 'kind')} of calls that take less time"
        )
    _print_guidelines(found)


def _print_guidelines(found: RunRecord) -> None:
    """Print the calls that are slower than other calls which do the same."""
    if not found.tried:
        return
    print_text(
        f"{len(found.broken)} of the {plural(found.tried, 'call')} that were repeated would be"
        f" faster as other calls of the same library{' (95 % intervals):' if found.broken else ''}"
    )
    columns = ("collective", "ranks", "bytes", "time", "instead", "time then", "ratio")
    rows = (
        (
            one.collective.value,
            f"{one.nodes}x{one.ppn}",
            format_exact_size(one.nbytes) if one.collective.has_data else "",
            format_time(one.seconds[0]),
            one.instead,
            format_time(one.seconds[1]),
            f"{one.speedup[1]:.3g} to {one.speedup[2]:.3g}",
        )
        for one in found.broken
    )
    if found.broken:
        print_table("", columns, rows, right=("bytes", "time", "time then", "ratio"))


def _row(kind: RecordedCalls, found: RunRecord) -> tuple[str, ...]:
    ranks = f"{kind.nodes}x{kind.ppn}" if kind.ppn else f"on {plural(kind.nodes, 'node')}, uneven"
    return (
        kind.collective.value,
        ranks,
        format_exact_size(kind.nbytes) if kind.collective.has_data else "",
        f"{kind.calls}" if kind.ppn else "",
        f"{kind.seconds / max(found.seconds, 1e-9):.1%}",
        "" if kind.waiting is None else f"{kind.waiting:.0%}",
        format_time(kind.least_s),
    )
