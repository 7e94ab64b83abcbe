"""`tuner table accept` and `compare`: the real library with a table's file and without."""

from __future__ import annotations

import argparse
import importlib
import math
from collections.abc import Iterator
from pathlib import Path

from tuner.base.atomic_io import require_writable_file
from tuner.base.errors import InputError
from tuner.base.units import parse_duration, plural
from tuner.cli.options import host_options, native_options
from tuner.cli.options.argument_types import file_option
from tuner.cli.terminal.output import add_subcommand, print_cautions, print_result, print_text, warn
from tuner.cli.terminal.progress import Display
from tuner.cli.views.comparison_view import print_comparison
from tuner.cli.views.table_view import format_rule_count
from tuner.core.table import TuningTable, table_record, write_table
from tuner.launch import Hosts, Launcher, LauncherTemplate, find_interpreter
from tuner.report import split_control
from tuner.report.cautions import comparison_cautions, is_slower, table_cautions
from tuner.report.summary import describe_outcome
from tuner.workflows import native_files, validation
from tuner.workflows.time_limit import TimeLimit

EXAMPLES = """examples:
  tuner table accept table.json --out accepted.json
  tuner table accept table.json --budget 5min --out accepted.json
  tuner table accept table.json --hosts node1,node2,node3,node4 --out accepted.json
  tuner table compare accepted.json

Both start a C program that is compiled with the library's mpicc, once as you would and once with
the table's file and everything that belongs to it.

With --budget, verdicts that are not certain when time is up follow from the launches so far.

Exit status of `compare`: 1 when a call is significantly slower with the file, also one that the
table leaves to the library, or gives a wrong result."""


def add_subcommands(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare both actions."""
    accept = add_subcommand(
        actions, "accept", "keep the rules that make a C program faster", EXAMPLES, run_accept
    )
    accept.add_argument("table", type=Path)
    accept.add_argument("--out", type=Path, required=True, metavar="FILE")
    accept.add_argument(
        "--budget",
        type=parse_duration,
        default=math.inf,
        help="maximum wall-clock time of the whole command, such as 10min, but for the first rounds"
        " of launches, without which nothing is decided (default: unlimited)",
    )
    compare = add_subcommand(
        actions,
        "compare",
        "time the library with the table and without, at other sizes",
        EXAMPLES,
        run_compare,
    )
    compare.add_argument("table", type=Path)
    for action in (accept, compare):
        host_options.add_host_options(action)
        native_options.add_ppn_option(action)
        file_option(
            action,
            "--python",
            "interpreter of the environment with the table's library",
            metavar="PYTHON",
        )


def run_accept(options: argparse.Namespace) -> None:
    """Write the table with the rules that win."""
    from tuner.workflows import acceptance  # SciPy, which other actions of `table` do without

    require_writable_file(options.out, options.table)
    there = host_options.resolve_hosts(options)
    asked = native_options.read_table_part(options.table, options.ppn)
    table, launcher = open_table(asked, options.table, options.python, there, options.launcher)
    limit = TimeLimit(options.budget, options.begun)
    trying = acceptance.TRYING_SHARE * limit.remaining
    with Display().stage(f"trying the rules of {table.library}") as report:
        accepted = acceptance.accept_winning_rules(
            table, launcher, report, there, warn, budget=trying
        )
    with Display().stage(f"comparing them again, {table.library}") as report:
        found, records = acceptance.withdraw_losing_rules(
            accepted, launcher, report, there, warn, budget=limit.remaining
        )
    write_table(found, options.out)
    cautions = [
        *comparison_cautions(*split_control(records)),
        *table_cautions(found),
        *_undecided_cautions(found),
    ]

    def show() -> None:
        print_cautions(cautions)
        kept = sum(not rule.choice.is_default for rule in found.rules)
        asked = sum(not rule.choice.is_default for rule in table.rules)
        print_text(
            f"{options.out}: {format_rule_count(found)}, {kept} of them for an algorithm"
            f" other than the default (of {asked} that were tried)"
        )

    print_result(options.json, table_record(found), show)


def _undecided_cautions(table: TuningTable) -> Iterator[str]:
    """Yield what was left undecided in an accepted table for want of time."""
    found = table.provenance
    parts = [found["comparison"], *found["acceptance"]["files"]]
    calls = {call for part in parts for call in part["undecided"]}
    if calls:
        yield (
            f"time was up before {plural(len(calls), 'call')} could be decided by as many rounds of"
            " launches as that takes: with a larger --budget other rules may stay"
        )


def run_compare(options: argparse.Namespace) -> int:
    """Print tuned against default; return 1 when a call is slower or wrong."""
    from tuner.workflows import acceptance  # as above

    there = host_options.resolve_hosts(options)
    asked = native_options.read_table_part(options.table, options.ppn)
    table, launcher = open_table(asked, options.table, options.python, there, options.launcher)
    with Display().stage(f"timing {table.library}") as report:
        records = acceptance.time_against_default(table, launcher, report, there, warn)
    changed, control = split_control(records)
    cautions = [*comparison_cautions(changed, control), *table_cautions(table)]

    def show() -> None:
        print_comparison(table.library, records)
        print_cautions(cautions)
        print_text(describe_outcome(records))

    print_result(options.json, {"cautions": cautions, "calls": records}, show)
    return int(any(is_slower(record) or record["wrong"] for record in records))


def open_table(
    asked: TuningTable,
    path: Path,
    given: Path | None,
    there: Hosts,
    template: LauncherTemplate | None,
) -> tuple[TuningTable, Launcher]:
    """Return the rules of a table that can be tried, and a launcher of its library.

    Warns of what cannot be tried. Raises InputError for a table without such rules.
    """
    from tuner.validation.libraries import TUNED_LIBRARIES  # as above

    importlib.import_module("scipy.special")  # if it is missing, say so before anything is measured

    table = asked.held_by_files()
    library = table.library.partition(" ")[0]
    if library not in TUNED_LIBRARIES:
        raise InputError(f"{path} is for {table.library}: expected Open MPI or MPICH")
    if not table.rules:
        raise InputError(f"{path}: expected a table with rules")
    python = find_interpreter(library, given)
    warn(TUNED_LIBRARIES[library].limitation(python))
    warn(native_files.omitted_rules_note(asked).removeprefix("; "))
    if there.is_local:
        return table, validation.local_launcher(table, python)
    return table, validation.multi_host_launcher(table, python, there, template).launcher
