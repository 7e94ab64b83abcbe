"""Time a whole program with a table and without, in pairs of runs, and say what the table gains.

The runs of a pair follow one another in random order; a first pair is not counted. The program must
do the same work each time. What it prints is dropped. Standard input that is not a terminal is read
once, and given to each run; from a terminal the program gets none.
"""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

from tuner.base.atomic_io import require_writable_file
from tuner.base.errors import InputError, TunerError, UsageError
from tuner.base.progress import with_eta
from tuner.base.units import format_time, plural
from tuner.cli.options.argument_types import count_option, file_option
from tuner.cli.options.program_options import add_program_options
from tuner.cli.terminal.output import finish_command, print_result, print_table, print_text, warn
from tuner.cli.terminal.progress import Display
from tuner.launch.launcher import PRELOAD_VARIABLE
from tuner.preload.command import PreparedCommand, rank_command
from tuner.preload.execution import REPORT_VARIABLE, run_directory
from tuner.preload.paired_runs import (
    MIN_PAIRS,
    ProgramComparison,
    RunTimes,
    continue_comparison,
    keep_standard_input,
    read_comparison,
    recorded_run,
    timed_run,
    write_comparison,
)
from tuner.preload.preparation import Preparation, prepare
from tuner.preload.report import choice_names, read_counts

SENSELESS_RATIO = 10.0  # of the ends of an interval: what is wider says nothing about a program
EXAMPLES = """examples:
  tuner compare --table table.json -- mpirun -n 64 ./solver input.dat
  tuner compare --runs 12 --out solver.json -- srun -n 64 ./solver input.dat

Interrupted, it prints the result of the pairs that are complete, and with --out the same command
without --restart resumes; a larger --runs adds pairs.

Exit status: 1 when the program is significantly slower with the table."""

WAITING = (
    "waiting for standard input, which each run is to be given: end it, or write </dev/null where"
    " the program reads none"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    count_option(parser, "--runs", "pairs of runs that count (default: 6)", default=6, metavar="N")
    parser.add_argument(
        "--collectives",
        action="store_true",
        help="record the calls on both sides, and compare the time in each collective",
    )
    add_program_options(parser)
    file_option(parser, "--out", "JSON file that keeps all times, and is continued")
    parser.add_argument("--restart", action="store_true", help="start anew instead of going on")
    finish_command(parser, run)


def run(options: argparse.Namespace) -> int:
    """Compare, print the gain, and return 1 where the program became slower."""
    importlib.import_module("scipy.special")  # if it is missing, say so before anything is run
    if options.runs < MIN_PAIRS:
        raise UsageError(
            f"--runs {options.runs}: an interval needs {MIN_PAIRS} pairs of runs at least, as one"
            " does not show how far others would differ"
        )
    made = prepare(options.command, options.table, options.service, options.cluster)
    if not made.environment:
        raise InputError(f"both sides would be the same: {made.note}")
    warn(made.note)
    if options.out:
        require_writable_file(options.out, options.table)
        options.resumes = True

    def show(found: ProgramComparison, is_followed: bool = True) -> None:
        print_result(options.json, found.record(), partial(print_comparison, found, is_followed))

    with run_directory() as folder:
        given, digest = keep_standard_input(folder, partial(warn, WAITING))
        begun = ProgramComparison(
            tuple(options.command), made.table, records=options.collectives, input=digest
        )
        if options.out and not options.restart:
            begun = read_comparison(options.out, begun)
        counts = Path(os.environ.get(REPORT_VARIABLE) or folder / "counts")
        made = replace(made, environment={**made.environment, REPORT_VARIABLE: str(counts)})
        sides = _sides(options.command, made, given, records=options.collectives)
        sides["with"] = partial(_followed_run, sides["with"], counts)
        found = _compare(begun, sides, options.runs, options.out, show)
        is_followed = not counts.exists() or any(read_counts(counts).values())
        show(found, is_followed)
        if not is_followed:
            warn("no call followed the table: both sides did the same")
    return int(found.gain[2] < 1)


def _compare(
    begun: ProgramComparison,
    sides: Mapping[str, Callable[[], RunTimes]],
    pairs: int,
    out: Path | None,
    show: Callable[[ProgramComparison], None],
) -> ProgramComparison:
    """Return the comparison with all pairs; one that is interrupted is shown as far as it came."""
    found = begun
    try:
        with Display().stage(f"comparing {plural(pairs, 'pair')} of runs") as report:
            for found in continue_comparison(begun, sides, pairs, with_eta(report)):
                if out:
                    write_comparison(found, out)
    except KeyboardInterrupt:
        show(found)
        raise
    except TunerError:
        if found.pairs:
            show(found)
        raise
    return found


def _followed_run(run_once: Callable[[], RunTimes], counts: Path) -> RunTimes:
    """Return the times of a run whose ranks have written which rules they followed to `counts`.

    Raises InputError where they have not: then nobody knows if there was a table.
    """
    counts.unlink(missing_ok=True)
    times = run_once()
    if not counts.exists():
        raise InputError(
            "the ranks did not say whether they followed the table: does the program call"
            " MPI_Finalize, with the MPI of its launcher? `tuner run` shows what it says"
        )
    return times


def _sides(
    command: Sequence[str], made: Preparation, given: Path, *, records: bool
) -> dict[str, Callable[[], RunTimes]]:
    """Return what runs a command once with its table, and once without; it reads `given`."""
    if records:
        choices = choice_names(made.flat.read_bytes())
        recorder = {PRELOAD_VARIABLE: made.environment[PRELOAD_VARIABLE]}
        return {
            "with": partial(recorded_run, command, made.environment, choices, given),
            "without": partial(recorded_run, command, recorder, choices, given),
        }
    return {
        "with": partial(timed_run, rank_command(command, made.environment), given),
        "without": partial(timed_run, PreparedCommand(tuple(command), os.environ), given),
    }


def print_comparison(comparison: ProgramComparison, is_followed: bool = True) -> None:
    """Print the gain of a comparison, and what its pairs can show.

    is_followed     whether any call followed the table
    """
    number = len(comparison.pairs)
    if number < MIN_PAIRS:
        print_text(f"{plural(number, 'pair')} of runs: too few to say anything")
        return
    without, tuned = (format_time(median(times)) for times in comparison.times)
    print_text(f"without the table {without}, with it {tuned} (medians of {number} pairs of runs)")
    gain, low, high = comparison.gain
    says_something = high <= SENSELESS_RATIO * low
    verdict = (
        "the program is faster with the table"
        if low > 1
        else "the program is slower with the table"
        if high < 1
        else "no difference that these runs can show"
    )
    print_text(
        f"gain {gain:.3f}, 95 % interval {low:.3f} to {high:.3f}: {verdict}"
        if says_something
        else "too few or too noisy runs to say anything"
    )
    if comparison.records:
        rows = (_collective_row(name, *each) for name, each in comparison.collective_gains.items())
        columns = ("time in", "gain", "95 % interval")
        print_table("", columns, rows, right=columns[1:])
    if is_followed and says_something and low <= 1 <= high:
        print_text(_further(comparison.further_pairs))


def _collective_row(name: str, gain: float, low: float, high: float) -> tuple[str, str, str]:
    if high > SENSELESS_RATIO * low:
        return name, "", "too noisy to say"
    return name, f"{gain:.3f}", f"{low:.3f} to {high:.3f}"


def _further(pairs: int | None) -> str:
    if pairs is None:
        return "the difference seen is so small that no number of runs is likely to show it"
    return f"{plural(pairs, 'more pair')} of runs would show a difference of this size"
