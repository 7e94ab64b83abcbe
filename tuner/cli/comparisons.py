"""`tuner table accept` and `compare`: the real library with a table's file and without."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.base.atomic_io import require_target
from tuner.base.errors import InputError
from tuner.base.units import format_size, format_time, plural, readable
from tuner.cli import host_options, native_options
from tuner.cli.output import (
    add_action,
    console,
    emit,
    print_cautions,
    print_table,
    print_text,
    warn,
)
from tuner.cli.progress import Display
from tuner.cli.table_view import counted_rules
from tuner.core.table import TuningTable, table_record, write_table
from tuner.launch import Hosts, Launcher
from tuner.launch.interpreters import interpreter
from tuner.report import geometric_mean, split
from tuner.report.cautions import is_slower, of_comparison, of_file
from tuner.report.summary import outcome
from tuner.workflows import acceptance, following, native_files, validation

EXAMPLES = """examples:
  tuner table accept table.json --out accepted.json
  tuner table accept table.json --hosts node1,node2,node3,node4 --out accepted.json
  tuner table compare accepted.json

Both start a C program that is compiled with the library's mpicc, once as you would and once with
the table's file and everything that belongs to it.

Exit status of `compare`: 1 when a call is significantly slower with the file, also one that the
table leaves to the library, or gives a wrong result."""


def declare(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare both actions."""
    accept = add_action(
        actions, "accept", "keep the rules that make a C program faster", EXAMPLES, run_accept
    )
    accept.add_argument("table", type=Path)
    accept.add_argument("--out", type=Path, required=True, metavar="FILE")
    compare = add_action(
        actions,
        "compare",
        "time the library with the table and without, at other sizes",
        EXAMPLES,
        run_compare,
    )
    compare.add_argument("table", type=Path)
    for action in (accept, compare):
        host_options.place(action)
        native_options.add_ppn(action)
        action.add_argument(
            "--python",
            type=Path,
            metavar="PYTHON",
            help="interpreter of the environment with the table's library",
        )


def run_accept(options: argparse.Namespace) -> None:
    """Write the table with the rules that win."""
    require_target(options.out, options.table)
    table, launcher, there = _opened(options)
    with Display(console(error=True)).stage(f"trying the rules of {table.library}") as report:
        accepted = acceptance.accept(table, launcher, report, there, warn)
    with Display(console(error=True)).stage(f"comparing them again, {table.library}") as report:
        found, records = acceptance.settle(accepted, launcher, report, there, warn)
    write_table(found, options.out)
    cautions = [*of_comparison(*split(records)), *of_file(found)]

    def show() -> None:
        print_cautions(cautions)
        kept = sum(not rule.choice.is_default for rule in found.rules)
        asked = sum(not rule.choice.is_default for rule in table.rules)
        print_text(
            f"{options.out}: {counted_rules(found)}, {kept} of them for an algorithm other than the"
            f" default (of {asked} that were tried)"
        )

    emit(options, table_record(found), show)


def run_compare(options: argparse.Namespace) -> int:
    """Print tuned against default; status 1 when a call is slower."""
    table, launcher, there = _opened(options)
    with Display(console(error=True)).stage(f"timing {table.library}") as report:
        records = acceptance.compare(table, launcher, report, there, warn)
    changed, control = split(records)
    cautions = [*of_comparison(changed, control), *of_file(table)]

    def show() -> None:
        print_comparison(table.library, records)
        print_cautions(cautions)
        print_text(outcome(records))

    emit(options, {"cautions": cautions, "calls": records}, show)
    return int(any(is_slower(record) or record["wrong"] for record in records))


def _opened(options: argparse.Namespace) -> tuple[TuningTable, Launcher, Hosts]:
    """Return the table, what starts its ranks, and where."""
    asked = native_options.table_of(options.table, options)
    table = asked.consecutive()
    library = table.library.partition(" ")[0]
    if library not in acceptance.LIBRARIES:
        raise InputError(f"{options.table} is for {table.library}: expected Open MPI or MPICH")
    if not table.rules:
        raise InputError(f"{options.table}: the table has no rules")
    python, there = interpreter(library, options.python), host_options.hosts_of(options)
    warn(following.limitation(library, python))
    warn(native_files.left_out(asked).removeprefix("; "))
    if there.local:
        return table, validation.launcher(table, python), there
    return table, validation.spread(table, python, there, options.launch).launcher, there


def print_comparison(library: str, heldout: Sequence[Mapping[str, Any]]) -> None:
    """Print the calls that a table changes, and a line on those that it leaves alone."""
    changed, control = split(heldout)
    rows = (
        (
            record["collective"],
            str(record["p"]),
            format_size(record["nbytes"]),
            readable(record["algorithm"]),
            format_time(record["default_s"]),
            format_time(record["tuned_s"]),
            f"{record['ratio']:.2f}",
            f"{record['ci95'][0]:.2f} to {record['ci95'][1]:.2f}",
            _least(record),
            _sign(record) if changed else "",
        )
        for record in changed or control
    )
    which = "calls that the table changes" if changed else "calls, all left to the default"
    print_table(
        f"{library}: {which}, at sizes that were used for nothing else",
        ("call", "ranks", "size", "algorithm", "default", "tuned", "ratio", "95 %", "least", ""),
        rows,
        right=("ranks", "size", "default", "tuned", "ratio", "least"),
        spare=("default", "tuned", "95 %", "least"),
        prose=("algorithm",),
    )
    if changed and control:
        mean, low, high = geometric_mean(control)
        print_text(
            f"control: {plural(len(control), 'more call')} left to the default; the same code ran"
            f" on both sides, ratio {mean:.2f} ({low:.2f} to {high:.2f})\n"
        )


def _least(record: Mapping[str, Any]) -> str:
    """Return the smallest ratio under any of the conditions."""
    conditions = record.get("conditions", {}).values()
    return f"{min(one['ratio'] for one in conditions):.2f}" if conditions else ""


def _sign(record: Mapping[str, Any]) -> str:
    return "slower" if is_slower(record) else "faster" if record["ci95"][0] > 1 else ""
